#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir-torch --model=hf:DIR: unmodified families give the same losses and parameters for every cut and k, and those of a plain loop of torch."""
import os
import pathlib
import signal
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker/python"))
import torch   # noqa: E402
import transformers   # noqa: E402
from weir_torch.check import check, loss_sum, shrunk   # noqa: E402
from weir_torch.decompose import Decomposition   # noqa: E402
from weir_torch.errors import Refused   # noqa: E402
from safetensors.torch import load_file   # noqa: E402
from workers import NATIVE, ROOT, TEXT, Workers, alone, until, values_of   # noqa: E402

STEPS, MICRO_BATCHES, LAYERS = 50, 4, 6
RATE = 0.001   # of the comparison with torch: differences of rounding grow with it
SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
             max_position_embeddings=64, tie_word_embeddings=False)
CONFIGS = {
    "Llama": lambda: transformers.LlamaConfig(**SIZES),
    "GPT2": lambda: transformers.GPT2Config(n_embd=32, n_layer=4, n_head=4, n_positions=64, vocab_size=256, tie_word_embeddings=False),
    "Qwen2": lambda: transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=2),
    "Qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8),
    "LlamaTied": lambda: transformers.LlamaConfig(**{**SIZES, "tie_word_embeddings": True}),
    "GPT2Tied": lambda: transformers.GPT2Config(n_embd=32, n_layer=4, n_head=4, n_positions=64, vocab_size=256),
    "Mixtral": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
}
CONTROLS = {"a block left out": lambda l: l[:2] + l[3:], "the norm left out": lambda l: [*l[:-1], ("head", l[-1][2][1], [])]}
FULL = os.environ.get("WEIR_FULL")
CHECKED = "Llama Qwen2 Qwen3 Mistral Mixtral GPT2".split()
MORE = """Phi3 Gemma2 Olmo2 SmolLM3 Granite StableLm Starcoder2 GPTNeoX Qwen3Moe Gemma3Text GptOss DeepseekV3 Cohere Falcon Bloom Qwen3Next Jamba""".split()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def words(self, family, steps=STEPS, rate=0.003):
        CONFIGS[family]().save_pretrained(self.folder / family)
        return [f"--model=hf:{self.folder / family}", "--seq=32", f"--data={TEXT}", f"--lr={rate}", f"--steps={steps}"]

    def alone(self, name, words, **more):
        one = alone(self.folder / name, [*words, f"--checkpoint-dir={self.folder / name}-saved"], micro_batches=MICRO_BATCHES, **more)
        self.addCleanup(one.process.wait)
        self.addCleanup(one.end)
        return one

    def pipeline(self, name, words, k=(1,), **of):
        """Losses and hashes of a run on several workers; k changes while it trains."""
        with Workers(self.folder / name, [*words, f"--checkpoint-dir={self.folder / name}-saved"], layers=LAYERS, k=k[0], micro_batches=MICRO_BATCHES,
                     **of) as workers:
            for revision, wider in enumerate(k[1:], 2):
                workers.all[-1].adopts(revision - 1)
                workers.write(layers=LAYERS, k=wider, micro_batches=MICRO_BATCHES, revision=revision, trigger="Retune", **of)
            workers.wait()
            if len(k) > 1:
                self.assertEqual({step["epoch"] for step in workers.all[-1].steps()}, set(range(1, len(k) + 1)))
            return workers.losses(), values_of(self.folder / f"{name}-saved")


class Cuts(Case):
    def in_full(self, family):
        words = self.words(family)
        one = self.alone("one", words)
        self.assertEqual(one.wait(), 0, one.errors())
        wanted = one.losses(), values_of(self.folder / "one-saved")
        self.assertEqual(len(wanted[0]), STEPS)
        self.assertLess(float.fromhex(wanted[0][-1]), float.fromhex(wanted[0][0]))
        for name, of in {**({"two": dict(stages=2)} if FULL else {}), "four": dict(stages=4, ranges=[(0, 0), (1, 3), (4, 4), (5, 5)]),
                         "other": dict(stages=4, ranges=[(0, 1), (2, 2), (3, 3), (4, 5)], k=(1, 2, 4))}.items():
            with self.subTest(name):
                self.assertEqual(self.pipeline(name, words, **of), wanted)

    def test_llama(self):
        self.in_full("Llama")

    def test_gpt2_with_dropout(self):
        self.in_full("GPT2")

    def test_tied_tables(self):
        for family in ("LlamaTied", "GPT2Tied"):
            with self.subTest(family):
                words = self.words(family, steps=20)
                one = self.alone(f"{family}-one", words)
                self.assertEqual(one.wait(), 0, one.errors())
                wanted = one.losses(), values_of(self.folder / f"{family}-one-saved")
                for stages, k in ((2, (1, 2)), (4, (1,))):
                    self.assertEqual(self.pipeline(f"{family}-{stages}", words, stages=stages, k=k), wanted)

    def test_other_families(self):
        for family in ("Qwen2", "Qwen3", "Mixtral"):
            with self.subTest(family):
                words = self.words(family, steps=STEPS if FULL else 10)
                one = self.alone(f"{family}-one", words)
                losses, values = self.pipeline(f"{family}-two", words, stages=2)
                self.assertEqual(one.wait(), 0, one.errors())
                self.assertEqual((losses, values), (one.losses(), values_of(self.folder / f"{family}-one-saved")))

    def test_a_killed_pipeline_goes_on_with_another_number_of_stages(self):
        words = self.words("Llama", steps=100)
        one = self.alone("one", words)
        saves = [f"--checkpoint-dir={self.folder}/saved", "--checkpoint-interval=4"]
        with Workers(self.folder / "two", [*words, *saves], stages=2, layers=LAYERS, micro_batches=MICRO_BATCHES) as workers:
            until(lambda: list((self.folder / "saved").glob("step-*[0-9]")), "a checkpoint")
            workers.all[1].end(signal.SIGKILL)
        self.assertEqual(one.wait(), 0, one.errors())
        with Workers(self.folder / "three", [*words, *saves], stages=3, layers=LAYERS, micro_batches=MICRO_BATCHES) as workers:
            workers.wait()
            losses = workers.losses()
        self.assertLess(len(losses), 100)
        self.assertEqual(losses, one.losses()[-len(losses):])
        self.assertEqual(values_of(self.folder / "saved"), values_of(self.folder / "one-saved"))

    def test_recomputed_blocks_give_the_same_bits(self):
        for family in ("Llama", "GPT2"):
            with self.subTest(family):
                words = self.words(family, steps=6)
                kept, again = (self.alone(f"{family}-{which}", [*words, f"--recompute={which}"]) for which in ("none", "all"))
                self.assertEqual((kept.wait(), again.wait()), (0, 0), kept.errors() + again.errors())
                self.assertEqual(len(kept.losses()), 6)
                self.assertEqual(kept.losses(), again.losses())

    def test_bfloat16(self):
        words = [*self.words("Llama", steps=6), "--precision=bf16"]
        one = self.alone("one", words)
        losses, values = self.pipeline("two", words, stages=2)
        self.assertEqual(one.wait(), 0, one.errors())
        self.assertEqual((losses, values), (one.losses(), values_of(self.folder / "one-saved")))


class Plain(Case):
    """One process of torch with torch.optim.AdamW, on the same tokens and from the same initial values."""

    def test_losses_are_those_of_torch(self):
        for family, changed in {"Llama": [], "LlamaTied": [], "GPT2": [f"--model-option={key}=0" for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")]}.items():
            with self.subTest(family):
                file = self.folder / f"{family}.pt"
                one = self.alone(family + "-run", [*self.words(family, rate=RATE), *changed], program=(sys.executable, str(ROOT / "tests/torch/recording.py"), str(file)))
                self.assertEqual(one.wait(), 0, one.errors())
                config = CONFIGS[family]()
                for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop") if family == "GPT2" else ():
                    setattr(config, key, 0.0)
                plain = self.trained(config, torch.load(file))
                ours = [float.fromhex(loss) for loss in one.losses()]
                far = max(abs(a - b) for a, b in zip(ours, plain, strict=True))
                print(f"{family}: distance from one process of torch {far:.1e}", file=sys.stderr)
                self.assertLess(far, 1e-5)

    @staticmethod
    def trained(config, record):
        torch.set_num_threads(1)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, value in record["values"].items():
                if name in parameters:   # a tied table has one name
                    parameters[name].copy_(value)
        groups = [{"params": [p for p in parameters.values() if (p.dim() > 1) == decays], "weight_decay": 0.1 * decays} for decays in (True, False)]
        optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        losses, pairs = [], list(zip(record["inputs"], record["targets"], strict=True))
        for step in range(STEPS):
            optimizer.zero_grad()
            batch = pairs[step * MICRO_BATCHES : (step + 1) * MICRO_BATCHES]
            sums = [loss_sum(model(input_ids=x, use_cache=False).logits, y) for x, y in batch]
            tokens = sum(y.numel() for _, y in batch)
            for loss in sums:
                (loss / tokens).backward()
            optimizer.step()
            losses.append(sum(loss.item() for loss in sums) / tokens)
        return losses


class Export(Case):
    def test_from_pretrained_opens_it_with_the_values_of_the_checkpoint(self):
        for family in ("Llama", "LlamaTied", "GPT2", "Mixtral"):
            with self.subTest(family):
                saved = self.folder / f"{family}-one-saved"
                one = self.alone(f"{family}-one", [*self.words(family, steps=3), "--export=hf"])
                self.assertEqual(one.wait(), 0, one.errors())
                model, told = transformers.AutoModelForCausalLM.from_pretrained(saved / "hf", dtype=torch.float32, output_loading_info=True)
                self.assertFalse(told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"], told)
                newest = max(saved.glob("step-*"), key=lambda path: path.name)
                values = {key.removeprefix("value/"): value for file in newest.glob("layer-*.safetensors") for key, value in load_file(file).items()
                          if key.startswith("value/")}
                exported = dict(model.named_parameters())
                if family == "LlamaTied":
                    self.assertTrue(torch.equal(values["model.embed_tokens.weight"], values.pop("lm_head.weight")))
                self.assertEqual(exported.keys(), values.keys())
                again = transformers.AutoModelForCausalLM.from_config(CONFIGS[family](), dtype=torch.float32)
                with torch.no_grad():
                    for name, parameter in again.named_parameters():
                        parameter.copy_(values[name])
                    for parameter in model.parameters():   # kernels depend on alignment, and these lie as in the file
                        parameter.data = parameter.data.clone()
                    tokens = torch.arange(32)[None]
                    logits = [one.eval()(input_ids=tokens).logits for one in (model, again)]
                self.assertTrue(torch.equal(*logits))


class Native(Case):
    """weir-worker computes the same families in C++."""

    def test_losses_are_those_of_weir_torch(self):
        for family in ("Llama", "LlamaTied", "Qwen3", "GPT2"):
            with self.subTest(family):
                words = self.words(family, steps=20, rate=RATE)
                config = CONFIGS[family]()
                for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop") if family == "GPT2" else ():
                    setattr(config, key, 0.0)
                torch.manual_seed(5)
                transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(self.folder / family)
                ours, native = self.alone(f"{family}-torch", words), self.alone(f"{family}-native", words, program=NATIVE)
                self.assertEqual((ours.wait(), native.wait()), (0, 0), ours.errors() + native.errors())
                numbers = [[float.fromhex(loss) for loss in one.losses()] for one in (ours, native)]
                far = max(abs(a - b) for a, b in zip(*numbers, strict=True))
                print(f"{family}: distance between weir-torch and weir-worker {far:.1e}", file=sys.stderr)
                self.assertLess(far, 1e-4)


class Check(unittest.TestCase):
    def checked(self, family, layers=Decomposition.layers):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        config = shrunk(getattr(transformers, family + "Config")())
        return check(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32), layers)

    def test_layers_give_the_bits_of_the_whole_model(self):
        for family in CHECKED + (MORE if FULL else []):
            with self.subTest(family):
                self.assertGreaterEqual(self.checked(family), 4)

    def test_a_wrong_cut_is_noticed(self):
        for name, wrong in CONTROLS.items():
            with self.subTest(name), self.assertRaisesRegex(Refused, "differs from that of the whole model"):
                self.checked("Llama", lambda parts, wrong=wrong: wrong(parts.layers()))


    def test_an_argument_that_depends_on_the_data_is_refused(self):
        around, calls = Decomposition.around, []

        def changing(parts, x=None, ids=None):
            calls.append(1)
            y, notes = around(parts, x, ids)
            return y, [(args, {**kwargs, "per_layer_input": torch.tensor(len(calls))}) for args, kwargs in notes]

        with mock.patch.object(Decomposition, "around", changing), self.assertRaisesRegex(Refused, "argument per_layer_input of block0 depends on the data"):
            self.checked("Llama")


class Weights(Case):
    def test_initial_values_are_those_of_the_folder(self):
        import weir_torch.table as table   # pylint: disable=import-outside-toplevel
        from weir_torch.part import Settings   # pylint: disable=import-outside-toplevel
        for family in ("Llama", "LlamaTied", "GPT2", "Mixtral"):
            with self.subTest(family):
                torch.manual_seed(3)
                model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family](), dtype=torch.float32)
                model.save_pretrained(self.folder / family)
                ours = table.open_model(Settings(f"hf:{self.folder / family}", {}, 16, 256, "fp32", 1))
                found = {name: value for part in ours.parts for (name, *_), value in zip(part.parameters, part.initial_values(), strict=True)}
                wanted = dict(model.named_parameters(remove_duplicate=False))
                self.assertEqual(found.keys(), wanted.keys())
                for name, value in wanted.items():
                    self.assertTrue(torch.equal(found[name], value), name)

    def test_an_untied_table_is_read_from_its_twin(self):
        import weir_torch.table as table   # pylint: disable=import-outside-toplevel
        from weir_torch.part import Settings   # pylint: disable=import-outside-toplevel
        config = transformers.LlamaConfig(**{**SIZES, "tie_word_embeddings": True})
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.save_pretrained(self.folder / "tied")
        ours = table.open_model(Settings(f"hf:{self.folder / 'tied'}", {"untie": True}, 16, 256, "fp32", 1))
        head = ours.parts[-1]
        values = dict(zip((name for name, *_ in head.parameters), head.initial_values(), strict=True))
        self.assertTrue(torch.equal(values["lm_head.weight"], model.model.embed_tokens.weight))


if __name__ == "__main__":
    unittest.main()
