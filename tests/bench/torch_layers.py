#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of a Llama by layers in Weir's engine (weir-torch, one worker) against one process of torch with the same model, tokens and optimizer.

Both run in turn, with the same number of threads. Needs the torch of tests/setup torch.
usage: torch_layers.py [--width C] [--blocks L] [--threads N] [--rounds N] [--steps N]
"""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "worker/python"), str(ROOT / "tests/torch")]
import torch   # noqa: E402
import transformers   # noqa: E402
from weir_torch.check import loss_sum   # noqa: E402
from workers import TEXT, alone   # noqa: E402

SEQUENCE, MICRO_BATCHES, SAMPLES, WARM_UP = 128, 4, 4, 2


def config_of(given):
    return transformers.LlamaConfig(hidden_size=given.width, intermediate_size=4 * given.width, num_hidden_layers=given.blocks,
                                    num_attention_heads=given.width // 64, num_key_value_heads=given.width // 64, vocab_size=256,
                                    max_position_embeddings=SEQUENCE, tie_word_embeddings=False)


def by_layers(given, folder):
    config_of(given).save_pretrained(folder / "model")
    words = [f"--model=hf:{folder}/model", f"--seq={SEQUENCE}", f"--data={TEXT}", f"--steps={given.steps}", f"--threads={given.threads}"]
    one = alone(folder / "run", words, micro_batches=MICRO_BATCHES, micro_batch_size=SAMPLES)
    try:
        if one.wait(600) != 0:
            sys.exit(one.errors())
    finally:
        one.end()
    times = [step["iteration_seconds"] for step in one.steps()[WARM_UP:]]
    one.loss_file.unlink()
    return times


def plain(given):
    torch.manual_seed(0)
    torch.set_num_threads(given.threads)
    torch.use_deterministic_algorithms(True)
    model = transformers.AutoModelForCausalLM.from_config(config_of(given), dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    tokens, times = torch.randint(0, 256, (MICRO_BATCHES, SAMPLES, SEQUENCE + 1)), []
    for _ in range(given.steps):
        begin = time.monotonic()
        optimizer.zero_grad()
        for ids in tokens:
            loss = loss_sum(model(input_ids=ids[:, :-1], use_cache=False).logits, ids[:, 1:])
            (loss / (MICRO_BATCHES * SAMPLES * SEQUENCE)).backward()
        optimizer.step()
        times.append(time.monotonic() - begin)
    return times[WARM_UP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--width", 512), ("--blocks", 4), ("--threads", 1), ("--rounds", 3), ("--steps", 8)):
        parser.add_argument(name, type=int, default=value)
    given = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            ours += by_layers(given, pathlib.Path(folder))
            theirs += plain(given)
    text = "torch_layers C={} L={} threads={}: {:.1f} ms by layers, {:.1f} ms in one process of torch, ratio {:.3f} (medians of {} steps; lowest {:.1f}, {:.1f})"
    print(text.format(given.width, given.blocks, given.threads, 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs),
                      statistics.median(ours) / statistics.median(theirs), len(ours), 1e3 * min(ours), 1e3 * min(theirs)))


if __name__ == "__main__":
    main()
