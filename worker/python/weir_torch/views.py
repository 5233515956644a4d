# SPDX-License-Identifier: Apache-2.0
"""torch tensors in memory that somebody else owns."""
import ctypes
import weakref
from contextlib import contextmanager

import torch
from torch import nn


def tensor_at(pointer, shape, dtype):
    """(tensor, weak reference that lives as long as any view of that memory)"""
    memory = (ctypes.c_char * (torch.Size(shape).numel() * dtype.itemsize)).from_address(pointer)
    return torch.frombuffer(memory, dtype=dtype).view(shape), weakref.ref(memory)


def tokens_at(pointer, samples, sequence):
    """A copy as int64, which embeddings and losses of torch take."""
    return tensor_at(pointer, (samples, sequence), torch.int32)[0].to(torch.int64)


@contextmanager
def parameters_on_meta():
    """Modules that are built here have no memory for parameters; their buffers (rotary tables) are real."""
    register = nn.Module.register_parameter

    def bare(module, name, parameter):
        if parameter is not None and not parameter.is_meta:   # a tied one is on meta already, and stays one object
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = bare
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def places_of(modules):
    """{parameter: [(module that holds it, name there)]} in the order of the modules; one that is held twice stays one."""
    places = {}
    for root in modules:
        for module in root.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and (module, name) not in places.setdefault(parameter, []):
                    places[parameter].append((module, name))
    return places


class Bound:
    """The parameters of one layer in foreign memory: values in `dtype`, gradients always in float32, added up."""

    def __init__(self, places, values, gradients, dtype):
        self.parameters, self.holders, self.gradients = [], list(places.values()), []
        for old, value, gradient in zip(places, values, gradients):
            trains = bool(gradient) and old.requires_grad
            parameter = nn.Parameter(tensor_at(value, old.shape, dtype)[0], requires_grad=trains)
            view = tensor_at(gradient, old.shape, torch.float32)[0] if trains else None
            if trains and dtype == torch.float32:
                parameter.grad = view   # autograd adds in place
            elif trains:
                parameter.register_post_accumulate_grad_hook(lambda p, view=view: self.take(p, view))
            self.parameters.append(parameter)
            self.gradients.append(view)

    @staticmethod
    def take(parameter, view):
        view.add_(parameter.grad)   # rounded to bfloat16 once a micro-batch, added up in float32
        parameter.grad = None

    def tensors(self):
        return [*self.parameters, *(view for view in self.gradients if view is not None)]

    def install(self):
        for parameter, holders in zip(self.parameters, self.holders):
            for module, name in holders:
                module._parameters[name] = parameter

    def misplaced(self):
        """After a backward: the index of a parameter whose gradient somebody has put elsewhere; None if all are where they were."""
        for i, (parameter, view) in enumerate(zip(self.parameters, self.gradients)):
            if parameter.grad is not None and (view is None or parameter.grad.is_sparse or parameter.grad.data_ptr() != view.data_ptr()):
                return i
        return None


def own_memory(places, dtype, values=None):
    """A Bound over memory of torch, which it keeps, for runs before training."""
    held = [torch.empty(p.shape, dtype=dtype) for p in places]
    for i, tensor in enumerate(held):
        tensor.copy_(values[i]) if values else tensor.normal_(0, 0.02)
    gradients = [torch.zeros(p.shape) for p in places]
    bound = Bound(places, [t.data_ptr() for t in held], [g.data_ptr() for g in gradients], dtype)
    bound.memory = held + gradients
    return bound
