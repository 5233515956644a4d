#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPT of worker/stage/models/decoder.cpp in PyTorch, for tests/gpu/report: same sizes, batch and precision; prints one JSON line
with the median seconds of a step. Ends with 77 where there is no PyTorch with CUDA.

usage: torch_gpt.py LAYERS CHANNELS HEADS SEQUENCE VOCABULARY MICRO_BATCHES MICRO_BATCH_SIZE STEPS eager|compiled fp32|bf16
"""
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(77)


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, channels, heads, sequence, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, channels), nn.Embedding(sequence, channels)
        self.blocks = nn.Sequential(*(Block(channels, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias=False)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main():
    layers, channels, heads, sequence, vocabulary, micro_batches, size, steps = map(int, sys.argv[1:9])
    mode, precision = sys.argv[9:11]
    if not torch.cuda.is_available():
        sys.exit(77)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = Gpt(layers, channels, heads, sequence, vocabulary).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    run = torch.compile(model) if mode == "compiled" else model
    ids = torch.randint(vocabulary, (micro_batches, size, sequence + 1), device="cuda")
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for part in ids:
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = run(part[:, :-1], part[:, 1:])
            (loss / micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": statistics.median(times[steps // 2:]), "torch": torch.__version__,
                      "parameters": sum(p.numel() for p in model.parameters())}))


main()
