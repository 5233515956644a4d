# SPDX-License-Identifier: Apache-2.0
"""A layer that only the rank makes which holds it."""


class Later:
    """A module as its class and arguments; two with equal ones are layers of one kind."""

    def __init__(self, make, args, kwargs):
        self.make, self.args, self.kwargs = make, args, kwargs
        self.name = getattr(make, "__name__", type(make).__name__)

    def __call__(self):
        return self.make(*self.args, **self.kwargs)

    def key(self):
        return self.make, repr(self.args), repr(sorted(self.kwargs.items()))


def later(make, *args, **kwargs):
    """In the list that `layers(config)` of a model.py returns: make(*args, **kwargs), on the rank that holds the layer and nowhere else."""
    return Later(make, args, kwargs)
