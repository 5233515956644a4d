#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir-torch --model=FILE.py: the example trains the same for every cut, failures end with 84 and their line, signals and threads of torch get along."""
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker/python"))
from workers import EXAMPLE, TEXT, Workers, alone, until, values_of   # noqa: E402

SMALL = ["--model-option=width=16", "--model-option=blocks=3", "--seq=16", f"--data={TEXT}", "--lr=0.01"]
NO_END = "--steps=1000000"

HEAD = """
import os, time
from torch import nn
import torch
class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(256, 8)
    def forward(self, tokens):
        return self.table(tokens)
"""


def tensors_of(folder):
    """{name: bytes} of all layers of the newest checkpoint."""
    from safetensors import safe_open   # pylint: disable=import-outside-toplevel
    newest, found = max(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1])), {}
    for path in newest.glob("layer-*"):
        with safe_open(path, framework="np") as file:
            found.update({name: file.get_tensor(name).tobytes() for name in file.keys()})
    return found


def planned_of(process):
    return int(re.search(r'"planned_bytes":(\d+)', process.errors()).group(1))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text, name="own.py"):
        path = self.folder / name
        path.write_text(HEAD + text)
        return path

    def run_alone(self, *arguments, name="run", **more):
        one = alone(self.folder / name, arguments, **more)
        self.addCleanup(one.process.wait)
        self.addCleanup(one.end)
        return one


class Example(Case):
    def test_trains_and_gives_the_same_losses_for_every_cut_and_k(self):
        words = [f"--model={EXAMPLE}", *SMALL, "--steps=20"]
        one = self.run_alone(*words, f"--checkpoint-dir={self.folder}/a")
        two = self.folder / "two"
        with Workers(two, [*words, f"--checkpoint-dir={self.folder}/b"], stages=2, layers=5, k=2) as workers:
            self.assertEqual(one.wait(), 0, one.errors())
            workers.wait()
            losses = workers.losses()
        self.assertEqual(losses, one.losses())
        self.assertEqual(values_of(self.folder / "a"), values_of(self.folder / "b"))
        numbers = [float.fromhex(loss) for loss in losses]
        self.assertEqual(len(numbers), 20)
        self.assertLess(numbers[-1], numbers[0] - 1)

    def test_resumes_with_another_cut(self):
        words = [f"--model={EXAMPLE}", *SMALL, "--steps=200"]
        quiet = self.run_alone(*words, name="quiet")
        self.assertEqual(quiet.wait(), 0, quiet.errors())
        saves = [f"--checkpoint-dir={self.folder}/saved", "--checkpoint-interval=5"]
        with Workers(self.folder / "two", [*words, *saves], stages=2, layers=5) as workers:
            until(lambda: list((self.folder / "saved").glob("step-*[0-9]")), "a checkpoint")
            for one in workers.all:
                one.end(signal.SIGKILL)
                one.process.wait()
        with Workers(self.folder / "three", [*words, *saves], stages=3, layers=5) as workers:
            workers.wait()
            losses = workers.losses()
        self.assertGreater(len(losses), 0)
        self.assertEqual(losses, quiet.losses()[-len(losses):])

    @unittest.skipUnless(os.environ.get("WEIR_FULL"), "of the long form")
    def test_trains_the_same_with_two_replicas_of_unequal_shares(self):
        words = [f"--model={EXAMPLE}", *SMALL, "--steps=10"]
        one = self.run_alone(*words)
        with Workers(self.folder / "replicas", words, stages=2, layers=5, shares=[3, 1]) as workers:
            self.assertEqual(one.wait(), 0, one.errors())
            workers.wait()
            found = [worker.losses() for worker in workers.all]
        self.assertIn(one.losses(), found)

    @unittest.skipUnless(os.environ.get("WEIR_FULL"), "of the long form")
    def test_trains_the_same_when_layers_move(self):
        words = [f"--model={EXAMPLE}", *SMALL, "--steps=600"]
        one = self.run_alone(*words)
        with Workers(self.folder / "moves", words, stages=2, layers=5, ranges=[(0, 0), (1, 4)]) as workers:
            workers.all[1].reaches(3)
            workers.write(stages=2, layers=5, ranges=[(0, 3), (4, 4)], revision=2, trigger="Regroup", state="Move")
            workers.wait()
            self.assertEqual({step["epoch"] for step in workers.all[1].steps()}, {1, 2})
            losses = workers.losses()
        self.assertEqual(one.wait(), 0, one.errors())
        self.assertEqual(losses, one.losses())

    def test_trains_in_bfloat16_with_the_same_losses_for_every_cut(self):
        words = [f"--model={EXAMPLE}", *SMALL, "--steps=6", "--precision=bf16"]
        one = self.run_alone(*words)
        with Workers(self.folder / "two", words, stages=2, layers=5) as workers:
            self.assertEqual(one.wait(), 0, one.errors())
            workers.wait()
            self.assertEqual(workers.losses(), one.losses())


class Own(Case):
    def test_dropout_does_not_depend_on_the_cut(self):
        path = self.file("""
def layers(config):
    block = lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())
    return [Embed(), block(), block(), nn.Linear(8, 256)]
""")
        words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--steps=6"]
        one = self.run_alone(*words)
        with Workers(self.folder / "two", words, stages=2, layers=4, k=2) as workers:
            self.assertEqual(one.wait(), 0, one.errors())
            workers.wait()
            self.assertEqual(workers.losses(), one.losses())

    def test_adapters_train_and_what_is_frozen_stays(self):
        path = self.file('''
from weir_torch import later
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.up.weight)
    def forward(self, x):
        return x + torch.tanh(self.base(x)) + self.up(self.down(x))
def layers(config):
    embed, head = Embed(), nn.Linear(8, 256)
    if config.get("frozen", True):
        embed.requires_grad_(False)
        head.weight.requires_grad_(False)
    return [embed, later(Block), later(Block), later(Block), head]
''')
        saved = {name: f"--checkpoint-dir={self.folder}/{name}" for name in ("whole", "parts", "few", "trains")}
        for precision in ("fp32", "bf16"):
            words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--lr=0.01", f"--precision={precision}", "--checkpoint-interval=100"]
            one = self.run_alone(*words, "--steps=8", saved["whole"], name=f"{precision}-run")
            self.assertEqual(one.wait(), 0, one.errors())
            with Workers(self.folder / f"{precision}-two", [*words, "--steps=8", saved["parts"]], stages=2, layers=5, k=2) as workers:
                workers.wait()
                self.assertEqual(workers.losses(), one.losses())
            self.assertEqual(values_of(self.folder / "parts"), values_of(self.folder / "whole"))
            with Workers(self.folder / f"{precision}-few", [*words, "--steps=4", saved["few"]], stages=2, layers=5, ranges=[(0, 0), (1, 4)]) as workers:
                workers.wait()
            early = tensors_of(self.folder / "few")
            rest = self.run_alone(*words, "--steps=8", saved["few"], name=f"{precision}-rest")
            self.assertEqual(rest.wait(), 0, rest.errors())
            self.assertEqual(rest.losses(), one.losses()[4:])
            self.assertEqual(values_of(self.folder / "few"), values_of(self.folder / "whole"))

            late = tensors_of(self.folder / "whole")
            frozen = {name for name in late if name.endswith((".base.weight", ".base.bias", "embed.table.weight", "linear.weight"))}
            self.assertEqual(len(frozen), 8)
            self.assertTrue(all(name.startswith("value/") for name in frozen), frozen)   # no moments
            self.assertEqual(len(late), 8 + 3 * 7)
            self.assertEqual({name for name in late if name.startswith("value/") and late[name] == early[name]}, frozen)
            numbers = [float.fromhex(loss) for loss in one.losses()]
            self.assertLess(numbers[-1], numbers[0])

            # Of a parameter 24 bytes or 4, and of the copy of a save 12 or 4.
            trains = self.run_alone(*words, "--model-option=frozen=false", "--steps=1", saved["trains"], name=f"{precision}-trains")
            self.assertEqual(trains.wait(), 0, trains.errors())
            self.assertAlmostEqual(planned_of(trains) - planned_of(one), (20 + 8) * 2 * 256 * 8, delta=1000)   # a backward needs less, too
            for name in saved:
                shutil.rmtree(self.folder / name)

    def test_a_table_that_the_first_and_the_last_layer_share(self):
        path = self.file('''
class Head(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.norm, self.table = nn.LayerNorm(8), table
    def forward(self, x):
        return self.norm(x) @ self.table.t()
def layers(config):
    embed = Embed()
    return [embed, nn.Linear(8, 8), nn.Linear(8, 8), Head(embed.table.weight)]
''')
        words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--lr=0.01", "--steps=10"]
        one = self.run_alone(*words, f"--checkpoint-dir={self.folder}/whole")
        self.assertEqual(one.wait(), 0, one.errors())
        with Workers(self.folder / "two", [*words, f"--checkpoint-dir={self.folder}/parts"], stages=3, layers=4, k=2) as workers:
            workers.wait()
            self.assertEqual(workers.losses(), one.losses())
        self.assertEqual(values_of(self.folder / "parts"), values_of(self.folder / "whole"))
        found = tensors_of(self.folder / "whole")
        for part in ("value", "adam_m", "adam_v"):
            self.assertEqual(found[f"{part}/embed.table.weight"], found[f"{part}/head.table"])
        numbers = [float.fromhex(loss) for loss in one.losses()]
        self.assertLess(numbers[-1], numbers[0])

    def test_layers_of_one_kind_are_frozen_alike(self):
        path = self.file('''
def layers(config):
    return [Embed(), nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8), nn.Linear(8, 256)]
''')
        words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--steps=2", f"--checkpoint-dir={self.folder}/saved"]
        one = self.run_alone(*words)
        self.assertEqual(one.wait(), 0, one.errors())
        moments = {name for name in tensors_of(self.folder / "saved") if name.startswith("adam_m/")}
        self.assertEqual(moments, {"adam_m/embed.table.weight", *(f"adam_m/linear{i}.{of}" for i in (0, 2, 3) for of in ("weight", "bias"))})

    def test_layers_that_need_tokens_get_them_in_every_cut(self):
        path = self.file("""
class Reads(nn.Module):
    needs_tokens = True
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(256, 8)
    def forward(self, both):
        x, tokens = both
        return x + self.table(tokens)
def layers(config):
    return [Embed(), nn.Linear(8, 8), Reads(), Reads(), nn.Linear(8, 256)]
""")
        words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--steps=6"]
        one = self.run_alone(*words)
        with Workers(self.folder / "two", words, stages=2, layers=5, ranges=[(0, 2), (3, 4)]) as workers:
            self.assertEqual(one.wait(), 0, one.errors())
            workers.wait()
            self.assertEqual(workers.losses(), one.losses())

    def test_recomputed_layers_give_the_same_losses_also_with_dropout(self):
        path = self.file("""
def layers(config):
    block = lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())
    return [Embed(), block(), block(), nn.Linear(8, 256)]
""")
        words = [f"--model={path}", "--seq=16", f"--data={TEXT}", "--steps=6"]
        found = []
        for which in ("none", "all", "sequential1"):
            one = self.run_alone(*words, f"--recompute={which}", name=which)
            self.assertEqual(one.wait(), 0, one.errors())
            found.append(one.losses())
        self.assertEqual(len(found[0]), 6)
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_on_step_is_told_of_each_step(self):
        path = self.file("""
def layers(config):
    return [Embed(), nn.Linear(8, 256)]
def on_step(record):
    with open(os.environ["TOLD"], "a") as file:
        print(sorted(record), record["step"], record["samples"], file=file)
""")
        one = self.run_alone(f"--model={path}", "--seq=16", "--steps=3", env={"TOLD": str(self.folder / "told")})
        self.assertEqual(one.wait(), 0, one.errors())
        self.assertEqual((self.folder / "told").read_text().splitlines(),
                         [f"['event', 'loss', 'samples', 'seconds', 'step'] {step} 8" for step in (1, 2, 3)])

    def test_an_exception_in_training_is_the_last_line_and_exit_code_84(self):
        path = self.file("""
class Fails(nn.Linear):
    steps = 0
    def forward(self, x):
        if self.training and x.shape[0] == 2 and torch.is_grad_enabled():
            Fails.steps += 1
            if Fails.steps == 50:
                raise RuntimeError("no luck at all")
        return super().forward(x)
def layers(config):
    return [Embed(), Fails(8, 8), nn.Linear(8, 256)]
""")
        told = self.folder / "told"
        one = self.run_alone(f"--model={path}", "--seq=16", NO_END, env={"WEIR_TERMINATION_LOG": str(told)})
        self.assertEqual(one.wait(), 84, one.errors())
        line = path.read_text().splitlines().index('                raise RuntimeError("no luck at all")') + 1
        wanted = f"layer fails (Fails) failed: RuntimeError: no luck at all (own.py:{line})"
        self.assertIn(wanted, one.errors())
        self.assertIn(wanted, told.read_text())
        self.assertIn("Traceback", one.errors())

    def test_a_view_that_outlives_its_pass_is_named(self):
        path = self.file("""
held, described = [], []
class Holds(nn.Linear):
    def forward(self, x):
        described.append(1)
        if torch.is_grad_enabled() == (os.environ["HOLDS"] == "training") and len(described) > 40:   # not in the trial
            held.append(x)
        return super().forward(x)
def layers(config):
    return [Embed(), Holds(8, 8), nn.Linear(8, 256)]
""")
        for when in ("training", "evaluation"):
            one = self.run_alone(f"--model={path}", "--seq=16", "--validation-interval=20", NO_END, env={"HOLDS": when}, name=when)
            self.assertEqual(one.wait(), 84, one.errors())
            self.assertIn("layer holds (Holds) keeps a view of its input after its pass", one.errors())

    def test_a_library_that_cannot_be_loaded_is_named(self):
        one = self.run_alone(f"--model={EXAMPLE}", env={"WEIR_LIBRARY": "/no/such.so"})
        self.assertEqual(one.wait(), 2, one.errors())
        self.assertEqual(one.errors(), "weir-torch: /no/such.so: cannot open shared object file: No such file or directory\n")

    def test_metrics_answer(self):
        path = self.file("def layers(config):\n    return [Embed(), nn.Linear(8, 256)]\n")
        one = self.run_alone(f"--model={path}", "--seq=16", NO_END)
        one.reaches(2)
        import urllib.request   # pylint: disable=import-outside-toplevel
        port = re.search(r'"metrics_port":(\d+)', one.errors()).group(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            self.assertTrue("weir_samples_total{" in page.read().decode())
        one.end(signal.SIGTERM)
        self.assertEqual(one.wait(), 143, one.errors())

    def test_a_first_sigterm_saves(self):
        words = [f"--model={EXAMPLE}", *SMALL, NO_END, f"--checkpoint-dir={self.folder}/saved"]
        one = self.run_alone(*words)
        one.reaches(2)
        one.end(signal.SIGTERM)
        self.assertEqual(one.wait(), 143, one.errors())
        self.assertTrue(values_of(self.folder / "saved"))

    def looping(self, *more):
        path = self.file("""
class Loops(nn.Linear):
    def forward(self, x):
        if os.path.exists(os.environ["LOOP"]):
            print("loops", flush=True)
            while True:
                time.sleep(0.01)
        return super().forward(x)
def layers(config):
    return [Embed(), Loops(8, 8), nn.Linear(8, 256)]
""")
        flag = self.folder / "loop"
        one = self.run_alone(f"--model={path}", "--seq=16", NO_END, *more, env={"LOOP": str(flag)})
        one.reaches(2)
        flag.touch()
        one.says("loops")
        one.end(signal.SIGTERM)
        return one

    def test_a_second_sigterm_ends_a_layer_that_loops_for_ever(self):
        one = self.looping()
        with self.assertRaises(AssertionError):
            one.wait(1.0)
        one.end(signal.SIGTERM)
        self.assertEqual(one.wait(30), 143, one.errors())

    def test_the_end_of_the_grace_does_too(self):
        one = self.looping("--grace=1")
        self.assertEqual(one.wait(30), 143, one.errors())
        self.assertIn("the grace after SIGTERM is over", one.errors())


if __name__ == "__main__":
    unittest.main()
