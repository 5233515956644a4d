# SPDX-License-Identifier: Apache-2.0
"""Bytes that a layer keeps from its forward to its backward, and needs while either of them runs; measured by running it."""
import weakref
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SAMPLES = (2, 4)   # with one sample torch may take another kernel, which keeps more


class Peak(TorchDispatchMode):
    """Bytes of all tensors that operations make: now and at most. Storages known before are not counted."""

    def __init__(self, known):
        super().__init__()
        self.now, self.most, self.seen = 0, 0, {t.untyped_storage()._cdata for t in known}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for storage in (t.untyped_storage() for t in tree_leaves(result) if isinstance(t, torch.Tensor)):
            if storage._cdata not in self.seen:
                self.seen.add(storage._cdata)
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
        return result

    def gone(self, key, size):
        self.seen.discard(key)
        self.now -= size


def end_of(y):
    """What a backward begins at. A tensor would keep its memory until then; its place in the graph does not."""
    if not y.requires_grad:
        return None
    return torch.autograd.graph.get_gradient_edge(y) if EDGES else y


EDGES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)   # torch.autograd.backward takes them


def measured(forward, gradient, known):
    """Bytes of one pass: (kept from forward to backward, most beside those in forward, in backward). gradient: of what forward() returns."""
    with Peak([gradient, *known]) as peak:
        end = end_of(forward())
        kept, in_forward, peak.most = peak.now, peak.most, peak.now
        if end is not None:
            torch.autograd.backward(end, gradient)
    return kept, in_forward - kept, peak.most - kept


@dataclass
class Line:
    """Bytes as a function of the samples."""
    per_sample: int = 0
    once: int = 0

    @classmethod
    def through(cls, few, many):
        """At SAMPLES; never below either point."""
        per_sample = -(-max(0, many - few) // (SAMPLES[1] - SAMPLES[0]))
        once = few - per_sample * SAMPLES[0]
        if once < 0:   # faster than in proportion
            return cls(-(-max(few * SAMPLES[1], many * SAMPLES[0]) // (SAMPLES[0] * SAMPLES[1])), 0)
        return cls(per_sample, once)

    def or_more(self, other):
        """At or above both lines everywhere."""
        return Line(max(self.per_sample, other.per_sample), max(self.once, other.once))


def lines(passes):
    """(bytes kept, most bytes beside those) as lines, from what measured() returned for SAMPLES."""
    kept, in_forward, in_backward = (Line.through(*values) for values in zip(*passes))
    return kept, in_forward.or_more(in_backward)
