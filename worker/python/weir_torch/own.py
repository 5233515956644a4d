# SPDX-License-Identifier: Apache-2.0
"""A model.py: a file with `layers(config)`, and perhaps `loss(logits, targets)` and `on_step(record)`.

Each kind of layer is tried before training begins: with 1, 2 and 4 samples, forward and backward. What layers must not do (sizes that depend
on data, buffers, parameters or inputs that change) is refused by its name.
"""
import importlib.util
import os
import sys
from contextlib import nullcontext

import torch
from torch import nn

from weir_torch.check import loss_sum
from weir_torch.errors import Refused, is_out_of_memory, one_line
from weir_torch.footprint import SAMPLES, lines, measured
from weir_torch.later import Later
from weir_torch.part import Part, mixed
from weir_torch.views import own_memory, parameters_on_meta, places_of

TRIED = (1, *SAMPLES)


def load(path):
    if not os.path.isfile(path):
        raise Refused(f"{path}: no such file")
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)   # modules beside it
    spec = importlib.util.spec_from_file_location("weir_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["weir_model"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "layers", None)):
        raise Refused(f"{path} has no function layers(config)")
    return module, folder


class OwnPart(Part):
    """A layer of the list: a module, or what makes one on the rank that holds it."""

    def __init__(self, model, index, made):
        super().__init__()
        self.model, self.index, self.made, self.module = model, index, made, None
        self.originals = None   # the values of a module that the list itself has made
        if isinstance(made, nn.Module):
            self.module = made
            self.places = places_of([made])
            self.originals = [p.detach() for p in self.places]

    def build(self, bare):
        """Under a seed of its own, so values depend on the job's seed and the layer's index alone."""
        with torch.random.fork_rng(devices=[]), parameters_on_meta() if bare else nullcontext():
            torch.manual_seed(mixed(self.model.settings.seed, self.index))
            module = self.made()
        if not isinstance(module, nn.Module):
            raise Refused(f"layer {self.index} is no nn.Module but a {type(module).__name__}")
        return module

    def ready(self):
        if self.module is None:
            self.module = self.build(bare=True)
            self.places = places_of([self.module])

    def release(self):
        if self.originals is None and self.bound_count == 0:
            self.module, self.places = None, None

    def initial_values(self):
        if self.originals is not None:
            return self.originals
        return [p.detach() for p in places_of([self.build(bare=False)])]

    def buffers(self):
        return dict(self.module.named_buffers())

    def names(self):
        """Of the parameters, in the order of places."""
        names = {p: n for n, p in self.module.named_parameters()}
        return [names[p] for p in self.places]

    def mode(self, training):
        if self.module.training != training:
            self.module.train(training)

    def run(self, x, tokens):
        if x is None:
            return self.module(tokens)
        return self.module((x, tokens)) if self.needs_inputs else self.module(x)

    def key(self, shape):
        """Layers with equal keys are of one kind."""
        if isinstance(self.made, Later):
            return *self.made.key(), shape
        return type(self.module), repr(self.module), tuple((tuple(p.shape), p.requires_grad) for p in self.places), shape


class OwnModel:
    note = ""

    def __init__(self, path, settings):
        self.settings = settings
        module, self.folder = load(path)
        self.name, self.source = os.path.basename(path), path
        self.engine = f"torch {torch.__version__}"
        self.loss, self.on_step = getattr(module, "loss", loss_sum), getattr(module, "on_step", None)
        torch.manual_seed(mixed(settings.seed, 0))
        made = module.layers({**settings.options, "sequence": settings.sequence, "vocabulary": settings.vocabulary,
                              "precision": settings.precision})
        if not isinstance(made, (list, tuple)) or not made:
            raise Refused(f"layers(config) of {path} returns no list of modules")
        for i, one in enumerate(made):
            if not isinstance(one, (nn.Module, Later)):
                raise Refused(f"layer {i} is no nn.Module but a {type(one).__name__}")
        self.parts = [OwnPart(self, i, one) for i, one in enumerate(made)]
        self.parts[-1].last = True
        self.name_parts()
        self.describe_parts()

    def begin(self):
        """Training begins."""

    @staticmethod
    def export():
        """No other program knows these modules."""
        return None

    def name_parts(self):
        names = [part.made.name if isinstance(part.made, Later) else type(part.made).__name__ for part in self.parts]
        ids = [name.lower() if names.count(name) == 1 else f"{name.lower()}{names[:i].count(name)}" for i, name in enumerate(names)]
        if len(set(ids)) < len(ids):
            ids = [f"layer{i}" for i in range(len(names))]
        for part, name, id_ in zip(self.parts, names, ids):
            part.id, part.description = id_, name

    def describe_parts(self):
        kinds, numbers, shape, owners = {}, {}, None, {}
        for part in self.parts:
            part.input_shape = shape
            key = part.key(shape)
            if key not in kinds:
                numbers[part.description] = numbers.get(part.description, 0) + 1
                part.kind = part.description + (f".{numbers[part.description]}" if numbers[part.description] > 1 else "")
                self.try_out(part)
                kinds[key] = part
            like = kinds[key]
            part.kind, part.output_shape, part.stash, part.transient = like.kind, like.output_shape, like.stash, like.transient
            part.needs_inputs = like.needs_inputs
            part.parameters = [(f"{part.id}.{name}", *rest) for name, *rest in like.own_parameters]
            if part.originals is not None:
                self.look_for_ties(part, owners)
            shape = part.output_shape
        for part in self.parts:
            part.release()

    def look_for_ties(self, part, owners):
        """owners: {parameter: (layer, name there, the modules that hold it)} of the layers before."""
        for (p, holders), (name, *_) in zip(part.places.items(), part.parameters):
            owner, table, places = owners.setdefault(p, (part, name, holders))
            if owner is part:
                continue
            if owner.index != 0 or not part.last:
                raise Refused(f"layer {part.id} has a parameter that is layer {owner.id}'s, too; only the last and the first layer may share one")
            if any(module is other for module, _ in holders for other, _ in places):
                raise Refused(f"layer {part.id} has a module that is layer {owner.id}'s, too; share its parameter, not the module")
            part.tied[name] = table

    def try_out(self, part):
        """Runs a layer as training will, and measures it."""
        try:
            self.tried(part)
        except Refused as refused:
            raise Refused(f"layer {part.id}{refused}") from None
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise Refused(f"layer {part.id} ({part.description}): {one_line(error, self.folder)}") from error

    def tried(self, part):
        part.ready()
        part.needs_inputs = part.index == 0 or bool(getattr(part.module, "needs_tokens", False))
        part.own_parameters = [(name, list(p.shape), p.requires_grad) for name, p in zip(part.names(), part.places)]
        for name, module in part.module.named_modules():
            if getattr(module, "sparse", False) is True and hasattr(module, "weight"):
                raise Refused(f": parameter {name + '.' if name else ''}weight has sparse gradients; make the embedding with sparse=False")
        dtype, passes, sizes = self.settings.dtype, [], {}
        bound = own_memory(part.places, dtype, part.initial_values())
        part.use(bound, training=True)
        values = [p.detach().clone() for p in bound.parameters]
        buffers = {name: b.clone() for name, b in part.buffers().items()}
        for samples in TRIED:
            x, tokens = self.input_of(part, samples)
            before = None if x is None else x.clone()
            trial = self.Trial(self, part, x, tokens)
            with torch.no_grad():
                part.mode(False)
                trial.forward()
                part.mode(True)
            unchanged = x is None or torch.equal(x.detach(), before)
            if not unchanged:
                raise Refused(" writes to its input")
            y = trial.forward()
            sizes[samples] = tuple(y.shape)
            gradient = torch.ones_like(y)
            if samples not in SAMPLES:
                if y.requires_grad:
                    y.backward(gradient)
                self.look(part, bound, values, buffers)
                continue
            del y
            known = [*bound.tensors(), *part.buffers().values(), *([] if x is None else [x])]
            passes.append(measured(trial.forward, gradient, known))
            self.look(part, bound, values, buffers)
        self.shapes_of(part, sizes)
        part.stash, part.transient = lines(passes)
        part.uninstall()

    class Trial:
        def __init__(self, model, part, x, tokens):
            self.model, self.part, self.x, self.tokens = model, part, x, tokens

        def forward(self):
            torch.default_generator.manual_seed(1)
            y = self.part.run(self.x, self.tokens.clone() if self.part.needs_inputs else None)
            if not isinstance(y, torch.Tensor):
                what = f"a tuple of {len(y)}" if isinstance(y, (tuple, list)) else f"a {type(y).__name__}"
                raise Refused(f" returns {what}, no tensor")
            if self.part.last:
                y = self.model.loss(y, self.tokens.clone())
                if not isinstance(y, torch.Tensor) or y.dim() != 0:
                    raise Refused(": loss(logits, targets) returns no tensor with one number, the sum over all tokens")
            elif y.dtype != self.model.settings.dtype:
                raise Refused(f" returns {str(y.dtype)[6:]}, but --precision={self.model.settings.precision}")
            return y

    def input_of(self, part, samples):
        tokens = torch.randint(0, self.settings.vocabulary, (samples, self.settings.sequence))
        if part.index == 0:
            return None, tokens
        return torch.randn(samples, *part.input_shape).to(self.settings.dtype).requires_grad_(), tokens

    @staticmethod
    def look(part, bound, values, buffers):
        """After a pass: what must be as it was."""
        for name, buffer in part.buffers().items():
            if name not in buffers or not torch.equal(buffer, buffers[name]):
                hint = "; use a norm without running statistics" if "running" in name or "num_batches" in name else ""
                raise Refused(f": buffer {name} changes in forward{hint}")
        names = [name for name, *_ in part.own_parameters]
        for name, p, value in zip(names, bound.parameters, values):
            if not torch.equal(p.detach(), value):
                raise Refused(f": parameter {name} changes in forward or backward")
        i = bound.misplaced()
        if i is not None:
            raise Refused(f": parameter {names[i]} has another tensor as gradient than Weir's")

    def shapes_of(self, part, sizes):
        if part.last:
            part.output_shape = ()
            return
        numbers = {n: torch.Size(shape).numel() for n, shape in sizes.items()}
        if any(shape[:1] != (n,) or numbers[n] != n * numbers[1] for n, shape in sizes.items()):
            n = next((n for n in TRIED[1:] if numbers[n] != n * numbers[1]), TRIED[1])
            raise Refused(f" returns {numbers[1]} values for 1 sample and {numbers[n]} for {n}")
        part.output_shape = sizes[1][1:]
