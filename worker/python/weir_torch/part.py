# SPDX-License-Identifier: Apache-2.0
"""What the table of functions (table.py) asks of a layer, whatever the model comes from."""
from dataclasses import dataclass, field

import torch

from weir_torch.footprint import Line

MASK = 2**64 - 1


def mixed(seed, index):
    """Another seed for each index (SplitMix64)."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@dataclass
class Settings:
    """What weir_settings says, for Python."""
    model: str
    options: dict
    sequence: int
    vocabulary: int
    precision: str   # fp32 or bf16
    seed: int
    threads: int = 1

    @property
    def dtype(self):
        return torch.bfloat16 if self.precision == "bf16" else torch.float32


@dataclass(eq=False)
class Part:
    """One layer. Its places hold parameters without memory until a Bound is installed."""
    id: str = ""
    kind: str = ""
    description: str = ""
    needs_inputs: bool = False
    last: bool = False
    input_shape: tuple = None    # of one sample; None: tokens
    output_shape: tuple = ()
    parameters: list = field(default_factory=list)   # (name, shape, trainable)
    tied: dict = field(default_factory=dict)         # {name of a parameter of the last layer: that of the first layer whose table it is}
    stash: Line = field(default_factory=Line)
    transient: Line = field(default_factory=Line)
    places: dict = None
    installed: object = None     # the Bound whose parameters the modules hold
    bound_count: int = 0

    def ready(self):
        """Before it is bound: `places` are there."""

    def release(self):
        """Nothing is bound any more."""

    def use(self, bound, training):
        """A layer may be bound twice, but passes of one do not come while the other has tickets."""
        if self.installed is not bound:
            bound.install()
            self.installed = bound
        self.mode(training)

    def uninstall(self):
        """Memory of a Bound goes away: the modules hold parameters without memory again."""
        self.installed = None
        for parameter, holders in self.places.items():
            for module, name in holders:
                module._parameters[name] = parameter

    def mode(self, training):
        raise NotImplementedError

    def run(self, x, tokens):
        raise NotImplementedError

    def initial_values(self):
        """Tensors in the order of `parameters`."""
        raise NotImplementedError

    def as_json(self):
        return {"id": self.id, "kind": self.kind, "description": self.description,
                "outputValues": 0 if self.last else int(torch.Size(self.output_shape).numel()), "needsInputs": self.needs_inputs,
                "needsTargets": self.last, "stashBytesPerSample": self.stash.per_sample, "stashBytes": self.stash.once,
                "transientBytesPerSample": self.transient.per_sample, "transientBytes": self.transient.once,
                "parameters": [{"name": name, "shape": shape or [1], "trainable": trainable, **({"tiedTo": self.tied[name]} if name in self.tied else {})}
                               for name, shape, trainable in self.parameters]}
