#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What weir-torch refuses before training begins, each by one line that names the part; and what --describe prints."""
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "worker/python"))
import transformers   # noqa: E402
from weir_torch import __main__ as program   # noqa: E402
from workers import EXAMPLE   # noqa: E402

EMBED = """
import torch
from torch import nn
from weir_torch import later
class Embed(nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.table = nn.Embedding(256, 8, **more)
    def forward(self, tokens):
        return self.table(tokens)
"""
BLOCK = "class Block(nn.Linear):\n    def forward(self, x):\n        {}\ndef layers(config):\n    return [Embed(), Block(8, 8), nn.Linear(8, 256)]\n"
LLAMA = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, vocab_size=256,
             max_position_embeddings=64)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(sys.path.__init__, list(sys.path))

    def describe(self, model, *words):
        """(exit code, standard output, standard error)"""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), mock.patch.dict(os.environ, WEIR_TERMINATION_LOG=os.devnull):
            code = program.run(["--describe", f"--model={model}", "--seq=16", "--threads=1", *words])
        return code, out.getvalue(), errors.getvalue()

    def refused(self, model, wanted, *words):
        code, _, errors = self.describe(model, *words)
        self.assertEqual(code, 2, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertIn(wanted, errors)

    def own(self, text):
        path = self.folder / "own.py"
        path.write_text(EMBED + text)
        return path

    def hf(self, config, **changed):
        folder = self.folder / "model"
        config.save_pretrained(folder)
        if changed:
            path = folder / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
        return f"hf:{folder}"


class Own(Case):
    def test_the_example_is_described(self):
        code, out, errors = self.describe(EXAMPLE, "--model-option=width=16", "--model-option=blocks=8")
        self.assertEqual(code, 0, errors)
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^model.py, 10 layers, 0.0 M parameters, torch ")
        self.assertEqual(len(lines), 12)
        self.assertRegex(lines[3], r"^block0 +Block +")
        self.assertEqual(lines[9].split()[:2], ["block6", "Block"])   # the dilation of block0
        self.assertEqual(lines[8].split()[:2], ["block5", "Block.6"])

    def test_layers_that_cannot_be_trained_are_named(self):
        for body, wanted in [
                ("return x[:, : 5 + x.shape[0]]", "layer block returns 48 values for 1 sample and 112 for 2"),
                ("return x, x, x", "layer block returns a tuple of 3, no tensor"),
                ("return super().forward(x).double()", "layer block returns float64, but --precision=fp32"),
                ("x += 1; return super().forward(x)", "layer block"),
                ("self.weight.data += 1; return super().forward(x)", "layer block: parameter weight changes in forward or backward"),
                ("raise ValueError('bad shape')", "layer block (Block): ValueError: bad shape (own.py:13)"),
                ("return undefined(x)", "NameError: name 'undefined' is not defined (own.py:13)")]:
            with self.subTest(body):
                self.refused(self.own(BLOCK.format(body)), wanted)

    def test_running_statistics_are_refused(self):
        path = self.own("""
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)
def layers(config):
    return [Embed(), Block(), Block(), nn.Linear(8, 256)]
""")
        self.refused(path, "layer block0: buffer norm.running_mean changes in forward; use a norm without running statistics")

    def test_writing_to_the_input_in_evaluation_is_refused(self):
        body = "x = x if self.training else x.mul_(2); return super().forward(x)"
        self.refused(self.own(BLOCK.format(body)), "layer block writes to its input")

    def test_sparse_gradients_are_refused(self):
        self.refused(self.own("def layers(config):\n    return [Embed(sparse=True), nn.Linear(8, 256)]\n"),
                     "layer embed: parameter table.weight has sparse gradients")

    def test_a_parameter_that_others_than_the_first_and_the_last_layer_share_is_refused(self):
        path = self.own("def layers(config):\n    a, b = nn.Linear(8, 8), nn.Linear(8, 8)\n    b.weight = a.weight\n    return [Embed(), a, b, nn.Linear(8, 256)]\n")
        self.refused(path, "layer linear1 has a parameter that is layer linear0's, too; only the last and the first layer may share one")

    def test_a_module_of_two_layers_is_refused(self):
        path = self.own('''
class Head(nn.Module):
    def __init__(self, embed):
        super().__init__()
        self.embed = embed
    def forward(self, x):
        return x @ self.embed.table.weight.t()
def layers(config):
    embed = Embed()
    return [embed, Head(embed)]
''')
        self.refused(path, "layer head has a module that is layer embed's, too; share its parameter, not the module")

    def test_a_gpu_is_refused(self):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), mock.patch.dict(os.environ, {"WEIR_TERMINATION_LOG": os.devnull}):
            self.assertEqual(program.run([f"--model={EXAMPLE}", "--device=cuda"]), 2)
        self.assertEqual(told.getvalue(), "weir-torch: --device=cuda: this weir_torch was built without CUDA\n")

    def test_what_is_no_list_of_modules_is_refused(self):
        for text, wanted in [("layers = 5\n", "has no function layers(config)"), ("def layers(config): return 5\n", "returns no list of modules"),
                             ("def layers(config): return [Embed(), 7]\n", "layer 1 is no nn.Module but a int"),
                             ("import nothing_there\n", "No module named 'nothing_there'")]:
            with self.subTest(text):
                self.refused(self.own(text), wanted)
        self.refused(self.folder / "none.py", "none.py: no such file")
        self.refused("gpt-tiny", "must be hf:DIR, a Hugging Face folder, or FILE.py")


class Folders(Case):
    def test_a_folder_is_described(self):
        code, out, errors = self.describe(self.hf(transformers.LlamaConfig(**LLAMA)))
        self.assertEqual(code, 0, errors)
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^LlamaForCausalLM, 4 layers, .* torch .*, transformers .*; layers give the bits of the whole model$")
        self.assertEqual([line.split()[0] for line in lines[2:]], ["embed", "block0", "block1", "head"])

    def test_a_tied_table_counts_once(self):
        model = self.hf(transformers.LlamaConfig(**{**LLAMA, "vocab_size": 30000}, tie_word_embeddings=True))
        size = 30000 * LLAMA["hidden_size"] / 1e6
        found = [float(re.search(r"([0-9.]+) M parameters", self.describe(model, *words)[1]).group(1)) for words in ((), ("--untie",))]
        self.assertAlmostEqual(found[1] - found[0], size, delta=0.11)

    def test_longer_samples_than_the_model_allows_are_refused(self):
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA)), "--seq: 128 is above max_position_embeddings 64 of ", "--seq=128")

    def test_code_of_the_folder_is_refused(self):
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA), auto_map={"AutoModel": "own.Own"}),
                     "config.json has auto_map (trust_remote_code); put the code into a model.py")

    def test_quantized_weights_are_refused(self):
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA), quantization_config={"quant_method": "fp8"}), "config.json has quantization_config; train a copy")

    def test_another_vocabulary_is_refused(self):
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA)), "--vocab: 300, the model of ", "--vocab=300")

    def test_a_small_config_can_be_named_for_the_check(self):
        small = self.folder / "small.json"
        model = self.hf(transformers.LlamaConfig(**LLAMA))
        small.write_text((self.folder / "model/config.json").read_text())
        self.assertEqual(self.describe(model, f"--check-config={small}")[0], 0)
        self.refused(model, "has no other.json", f"--check-config={self.folder}/other.json")

    def test_pickled_weights_are_refused(self):
        model = self.hf(transformers.LlamaConfig(**LLAMA))
        (self.folder / "model/pytorch_model.bin").touch()
        self.refused(model, "holds pytorch_model.bin only; convert it to safetensors")

    def test_a_folder_without_weights_has_none_to_begin_with(self):
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA)), "holds no safetensors", "--init=folder")

    def test_other_nestings_are_refused(self):
        config = transformers.OPTConfig(hidden_size=32, num_hidden_layers=2, ffn_dim=64, num_attention_heads=2, vocab_size=256, word_embed_proj_dim=32,
                                        max_position_embeddings=64, tie_word_embeddings=False)
        self.refused(self.hf(config), "has no blocks named layers or h or blocks; use a model.py")

    def test_an_encoder_with_a_decoder_is_refused(self):
        config = transformers.T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=256)
        self.refused(self.hf(config), "is an encoder with a decoder")

    def test_losses_beside_the_head_are_refused(self):
        config = transformers.MixtralConfig(**LLAMA, num_local_experts=2, num_experts_per_tok=1, output_router_logits=True)
        self.refused(self.hf(config), "output_router_logits adds a loss of the router that layers do not carry; set it to false")

    def test_what_is_no_model_folder_is_refused(self):
        self.refused(f"hf:{self.folder}", "has no config.json")
        (self.folder / "config.json").write_text('{"model_type": "no-such-family"}')
        self.refused(f"hf:{self.folder}", "config.json of ")
        self.refused(self.hf(transformers.LlamaConfig(**LLAMA)), "knows no no_such_key", "--model-option=no_such_key=1")


class Start(Case):
    def test_without_torch_one_line_says_so(self):
        errors = io.StringIO()
        with mock.patch.object(program, "imports", side_effect=ImportError("No module named 'torch'")), contextlib.redirect_stderr(errors):
            self.assertEqual(program.run(["--model=x.py"]), 2)
        self.assertIn("weir-torch needs torch in this image: No module named 'torch'", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
