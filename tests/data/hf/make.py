#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the folders beside this file: small models of Hugging Face with random weights, and in expected.safetensors of each the
tokens, logits, loss and gradients that transformers computes. The unit tests of worker/huggingface compare with them.

    python3 tests/data/hf/make.py                 # torch 2.15.0, transformers 5.23.0, on the CPU
"""
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers import GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

SAMPLES, TOKENS = 2, 7
SIZES = dict(vocab_size=24, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32)
ONE = {**SIZES, "num_hidden_layers": 1}
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
# Folder, model, type of the weights, largest shard.
MODELS = [
    ("llama", LlamaForCausalLM(LlamaConfig(**{**SIZES, "hidden_size": 16, "intermediate_size": 12}, rope_parameters=LLAMA3, tie_word_embeddings=False)),
     torch.float32, "10KB"),
    ("llama-tied", LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=6, attention_bias=True, tie_word_embeddings=True)), torch.bfloat16, "1GB"),
    ("mistral", MistralForCausalLM(MistralConfig(**ONE, head_dim=4, sliding_window=4)), torch.bfloat16, "1GB"),
    ("qwen2", Qwen2ForCausalLM(Qwen2Config(**{**ONE, "hidden_size": 16},
                                           rope_parameters=dict(rope_type="default", rope_theta=1e6))), torch.float32, "1GB"),
    ("qwen3", Qwen3ForCausalLM(Qwen3Config(**ONE, head_dim=6, tie_word_embeddings=True)), torch.float32, "1GB"),
    ("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=24, n_embd=12, n_layer=1, n_head=3, n_positions=16, attn_pdrop=0.0, embd_pdrop=0.0,
                                        resid_pdrop=0.0)), torch.float16, "1GB"),
]


def write(folder, model, dtype, shard):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases, too, so that each of them counts
            start = 1.0 if parameter.dim() == 1 and bool((parameter == 1).all()) else 0.0
            parameter.copy_((start + 0.3 * torch.randn(parameter.shape, generator=generator)).to(dtype).float())
    model.eval()
    inputs, targets = torch.randint(0, model.config.vocab_size, (2, SAMPLES, TOKENS), generator=generator)
    logits = model(inputs).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    expected = {"inputs": inputs.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():  # a tied table is there once
        expected["gradient/" + name] = parameter.grad.clone()  # the model changes its type
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in expected.items()}, folder / "expected.safetensors")


def main():
    here = pathlib.Path(__file__).resolve().parent
    for name, model, dtype, shard in MODELS:
        write(here / name, model, dtype, shard)
        size = sum(file.stat().st_size for file in (here / name).iterdir())
        print(f"{name}: {size} bytes, loss {load_file(here / name / 'expected.safetensors')['loss'].item():.6f}")


if __name__ == "__main__":
    main()
