# SPDX-License-Identifier: Apache-2.0
"""An unmodified Hugging Face causal language model as a list of layers: embed, block0 .. block{L-1}, head.

embed is the model's own forward around stand-ins for its blocks, head the model's own forward around a stand-in for its base model, and a
block is called with the arguments that the model itself would give it (masks, positions, rotary tables). Those depend on (samples, tokens,
type) only; a run around stand-ins notes them once, and all blocks and micro-batches share them. So there is no code for any family, and
check.py compares a small copy with the whole model bit by bit.
"""
import copy

import torch
from torch import nn

from weir_torch.errors import Refused

BLOCKS, NORMS = ("layers", "h", "blocks"), ("norm", "ln_f", "final_layer_norm", "final_layernorm")


def child(module, names, what):
    for name in names:
        if name in module._modules:
            return name
    raise Refused(f"{type(module).__name__} has no {what} named {' or '.join(names)}; use a model.py")


def shallow(module, **changed):
    """The same module, parameters and all, but for some children."""
    twin = copy.copy(module)
    twin.__dict__ = {**module.__dict__, "_modules": {**module._modules, **changed}}
    return twin


def first(output):
    return output[0] if isinstance(output, tuple) else output


class StandIn:
    """At a block's index while another layer runs: hands the hidden states on, notes what else it was given."""

    def __init__(self, block, notes, as_tuple):
        self.block, self.notes, self.as_tuple = block, notes, as_tuple

    def __getattr__(self, name):   # the model may ask for attributes, such as attention_type
        return getattr(self.block, name)

    def __call__(self, hidden_states, *args, **kwargs):
        self.notes.append((args, kwargs))
        return (hidden_states,) if self.as_tuple else hidden_states


class Normed:
    """In place of the base model while the head runs; also what the head reads of that model's output."""

    def __init__(self, hidden_states):
        self.last_hidden_state = hidden_states

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, index):
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name):
        return None


class Decomposition:
    def __init__(self, model):
        self.model, self.base = model, model.base_model
        if model.config.is_encoder_decoder:
            raise Refused(f"{type(model).__name__} is an encoder with a decoder")
        if getattr(model.config, "output_router_logits", False):
            raise Refused("output_router_logits adds a loss of the router that layers do not carry; set it to false")
        self.names = child(self.base, BLOCKS, "blocks"), child(self.base, NORMS, "final norm")
        self.blocks, self.norm = (self.base._modules[name] for name in self.names)
        self.arguments, self.as_tuple = {}, False   # (samples, tokens, type) -> (args, kwargs) of every block
        shape = (2, 3, model.get_input_embeddings().embedding_dim)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                self.as_tuple = self.around(torch.zeros(shape))[0].shape != shape
        except IndexError:
            self.as_tuple = True   # the model takes the first of what a block returns

    def around(self, x=None, ids=None):
        """The model without its blocks and its last norm: (hidden states, notes of every block)."""
        notes = []
        parts = dict(zip(self.names, ([StandIn(block, notes, self.as_tuple) for block in self.blocks], nn.Identity())))
        bare = {n: m for n, m in self.base._modules.items() if n not in parts and m and any(p.is_meta for p in m.parameters())}
        view = shallow(self.base, **parts, **{n: copy.deepcopy(m).to_empty(device="cpu") for n, m in bare.items()})   # another stage's
        return view(input_ids=ids, inputs_embeds=x, use_cache=False).last_hidden_state, notes

    def embed(self, ids):
        return self.around(ids=ids)[0]

    def block(self, index, x):
        size = (*x.shape[:2], x.dtype)   # rotary tables have the type of x
        if size not in self.arguments:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):   # dropout of the embedding draws, too
                self.arguments[size] = self.around(torch.zeros_like(x))[1]
        args, kwargs = self.arguments[size][index]
        return first(self.blocks[index](x, *args, **kwargs))

    def head(self, x):
        return shallow(self.model, **{self.model.base_model_prefix: Normed(self.norm(x))})(inputs_embeds=x, use_cache=False).logits

    def layers(self):
        """[(id, function, modules that own its parameters)]"""
        outer = [m for n, m in self.base._modules.items() if n not in self.names and m is not None]
        blocks = [(f"block{i}", lambda x, i=i: self.block(i, x), [b]) for i, b in enumerate(self.blocks)]
        return [("embed", self.embed, outer), *blocks, ("head", self.head, [self.norm, self.model.get_output_embeddings()])]

    def parameters(self):
        """({layer: {the model's own name: parameter}}, [tied: (layer, name, name of the owner's)]); every parameter has a layer."""
        names, owner, owned, tied = {p: n for n, p in self.model.named_parameters()}, {}, {}, []
        for layer, _, modules in self.layers():
            mine = dict.fromkeys(p for m in modules for p in m.parameters())
            tied += [(layer, names[p]) for p in mine if p in owner]
            owned[layer] = {names[p]: p for p in mine}
            owner.update((p, layer) for p in mine)
        for name in (n for p, n in names.items() if p not in owner):
            raise Refused(f"parameter {name} belongs to no layer")
        return owned, tied
