# SPDX-License-Identifier: Apache-2.0
"""A language model of one's own: weir-torch --model=model.py --data=text.txt --model-option width=128. Causal convolutions over time."""
from torch import nn
from torch.nn import functional as F
from weir_torch import later                         # makes a layer on the rank that holds it, and nowhere else


class Embed(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):                       # (samples, T) int64 -> (samples, T, width)
        return self.table(tokens)


class Block(nn.Module):                              # a causal convolution over time
    def __init__(self, width, dilation, kernel=3):
        super().__init__()
        self.norm, self.reach = nn.LayerNorm(width), (kernel - 1) * dilation
        self.conv = nn.Conv1d(width, 2 * width, kernel, dilation=dilation)

    def forward(self, x):                            # (samples, T, width) -> the same shape
        y = F.pad(self.norm(x).transpose(1, 2), (self.reach, 0))
        return x + F.glu(self.conv(y), dim=1).transpose(1, 2)


def layers(config):                                  # a dict: sequence, vocabulary, precision and every --model-option
    width = config.get("width", 256)
    blocks = [later(Block, width, 2 ** (i % 6)) for i in range(config.get("blocks", 8))]
    return [Embed(config["vocabulary"], width), *blocks, nn.Sequential(nn.LayerNorm(width), nn.Linear(width, config["vocabulary"]))]


def loss(logits, targets):                           # optional; this is the default: the sum over all tokens
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
