#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that layers keep and need are predicted: within 2 % of what is measured for 2, 4 and 8 samples, and never too few."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker/python"))
import torch   # noqa: E402
from hugging_face_test import CONFIGS   # noqa: E402
from weir_torch import table   # noqa: E402
from weir_torch.check import loss_sum   # noqa: E402
from weir_torch.footprint import Line, measured   # noqa: E402
from weir_torch.part import Settings   # noqa: E402
from weir_torch.views import own_memory   # noqa: E402

SEQUENCE = 64


class Saved:
    """Bytes of distinct storages that autograd holds for a backward: another way to count than footprint.Peak."""

    def __init__(self):
        self.storages = {}

    def take(self, tensor):
        self.storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    def bytes(self, known):
        without = {t.untyped_storage()._cdata for t in known}
        return sum(s.nbytes() for key, s in self.storages.items() if key not in without)


class Lines(unittest.TestCase):
    def test_a_line_is_at_or_above_both_points(self):
        for few, many in [(20, 40), (21, 40), (10, 40), (0, 0), (30, 30), (7, 8)]:
            line = Line.through(few, many)
            self.assertGreaterEqual(2 * line.per_sample + line.once, few)
            self.assertGreaterEqual(4 * line.per_sample + line.once, many)
            self.assertGreaterEqual(line.once, 0)


class Families(unittest.TestCase):
    def test_bytes_kept_are_predicted_within_two_percent(self):
        torch.set_num_threads(1)
        for family, make in CONFIGS.items():
            with tempfile.TemporaryDirectory() as folder:
                make().save_pretrained(folder)
                model = table.open_model(Settings(f"hf:{folder}", {}, SEQUENCE, 256, "fp32", 1))
                for part in {part.kind: part for part in model.parts}.values():
                    for samples in (2, 4, 8):
                        with self.subTest(f"{family} {part.kind}, {samples} samples"):
                            self.compare(model, part, samples)

    def compare(self, model, part, samples):
        bound = own_memory(part.places, torch.float32)
        part.use(bound, training=True)
        tokens = torch.randint(0, 256, (samples, SEQUENCE))
        x = None if part.index == 0 else torch.randn(samples, *part.input_shape).requires_grad_()
        part.run(x, tokens)   # notes the arguments of blocks
        saved = Saved()
        with torch.autograd.graph.saved_tensors_hooks(saved.take, lambda t: t):
            y = part.run(x, tokens.clone())
            y = loss_sum(y, tokens.clone()) if part.last else y
        shared = [t for t in torch.utils._pytree.tree_leaves(model.parts_of.arguments) if isinstance(t, torch.Tensor)]
        found = saved.bytes([*bound.tensors(), *shared, *model.parts_of.model.buffers(), *([] if x is None else [x])])
        del y, saved
        forward = lambda: loss_sum(part.run(x, tokens.clone()), tokens.clone()) if part.last else part.run(x, tokens.clone())   # noqa: E731
        gradient = torch.ones(() if part.last else (samples, *part.output_shape))
        _, *needed = measured(forward, gradient, [*bound.tensors(), *shared, *model.parts_of.model.buffers(), *([] if x is None else [x])])
        part.uninstall()
        self.assertGreaterEqual(part.transient.per_sample * samples + part.transient.once, max(needed))
        predicted = part.stash.per_sample * samples + part.stash.once
        self.assertLessEqual(abs(predicted - found), 0.02 * max(found, 1), f"predicted {predicted}, found {found}")


if __name__ == "__main__":
    unittest.main()
