# SPDX-License-Identifier: Apache-2.0
"""weir-torch, which also writes the tokens of each micro-batch and the initial values: what a plain loop of torch needs to do the same.

usage: recording.py FILE OPTION...
"""
import atexit
import sys

import torch

from weir_torch import __main__ as program
from weir_torch import table
from weir_torch.views import tensor_at, tokens_at

FILE = sys.argv.pop(1)
RECORD = {"inputs": [], "targets": [], "values": {}}
FORWARD, INITIAL = table.BoundLayer.forward, table.BoundLayer.initial


def forward(self, of):
    for key, pointer, reads in (("inputs", of.inputs, self.part.needs_inputs), ("targets", of.targets, self.part.last)):
        if reads:
            RECORD[key].append(tokens_at(pointer, of.samples, self.sequence))
    FORWARD(self, of)


def initial(self, index, values, count):
    INITIAL(self, index, values, count)
    name, shape, _ = self.part.parameters[index]
    RECORD["values"][name] = tensor_at(values, shape, torch.float32)[0].clone()


table.BoundLayer.forward, table.BoundLayer.initial = forward, initial
atexit.register(lambda: torch.save(RECORD, FILE))
program.main()
