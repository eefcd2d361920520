#!/usr/bin/env python3
"""Writes char-decoder.onnx: a small GPT over characters, exported in training mode.

Recorded with PyTorch 1.13.1 (Debian 12: python3-torch). Run: python3 export.py
"""
import math
import pathlib

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=3)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.ln2(x))))


class CharDecoder(nn.Module):
    def __init__(self, vocabulary=65, length=64, width=128, layers=4, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "down" not in name else 0.02 / math.sqrt(2 * layers))

    def forward(self, tokens):  # [N, T] -> [N, T, vocabulary]
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def export(model, length, path):
    torch.onnx.export(
        model.train(),
        torch.zeros(2, length, dtype=torch.int64),
        str(path),
        input_names=["tokens"],
        output_names=["logits"],
        dynamic_axes={"tokens": {0: "batch"}, "logits": {0: "batch"}},
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        opset_version=17,
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    export(CharDecoder(), 64, pathlib.Path(__file__).with_name("char-decoder.onnx"))
