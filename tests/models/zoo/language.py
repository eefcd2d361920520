"""Small language models: an encoder, a decoder with rotary positions, and an LSTM."""
import math

import torch
from torch import nn


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.dense, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.inter, self.output, self.norm2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.LayerNorm(width, eps=1e-12)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        context = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.norm1(self.dense(context) + x)
        return self.norm2(self.output(nn.functional.gelu(self.inter(x))) + x)


class Bert(nn.Module):
    """Masked language model: attention mask, token types, a pooled head is left out, the decoder is tied."""

    def __init__(self, words=61, width=20, heads=2, depth=2, length=12):
        super().__init__()
        self.word, self.position, self.kind = nn.Embedding(words, width), nn.Embedding(length, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(depth))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.word.weight
        self.register_buffer("position_ids", torch.arange(length).unsqueeze(0))

    def forward(self, ids, mask, kinds):
        x = self.word(ids) + self.kind(kinds) + self.position(self.position_ids[:, :ids.shape[1]])
        x = self.norm(x)
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, added)
        return self.decoder(self.transform_norm(nn.functional.gelu(self.transform(x))))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, width, heads, groups, hidden):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        linear = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731
        self.q_proj, self.o_proj = linear(width, width), linear(width, width)
        self.k_proj, self.v_proj = linear(width, groups * self.size), linear(width, groups * self.size)
        self.gate_proj, self.up_proj, self.down_proj = linear(width, hidden), linear(width, hidden), linear(hidden, width)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)

    def repeat(self, x):
        b, groups, t, size = x.shape
        times = self.heads // groups
        return x[:, :, None].expand(b, groups, times, t, size).reshape(b, groups * times, t, size)

    def attend(self, x, cos, sin, mask):
        b, t, width = x.shape
        q = rotate(self.q_proj(x).view(b, t, self.heads, self.size).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, self.groups, self.size).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, self.groups, self.size).transpose(1, 2)
        scores = q @ self.repeat(k).transpose(2, 3) / math.sqrt(self.size)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        return self.o_proj((weights @ self.repeat(v)).transpose(1, 2).reshape(b, t, width))

    def forward(self, x, cos, sin, mask):
        x = x + self.attend(self.norm1(x), cos, sin, mask)
        y = self.norm2(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, words=53, width=24, heads=4, groups=2, hidden=40, depth=2, length=10):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, groups, hidden) for _ in range(depth))
        self.norm, self.lm_head = RmsNorm(width), nn.Linear(width, words, bias=False)
        size = width // heads
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size), persistent=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, tokens):
        t = tokens.shape[1]
        angles = torch.outer(torch.arange(t).float(), self.inv_freq)
        angles = torch.cat((angles, angles), -1)
        cos, sin, mask = angles.cos(), angles.sin(), self.mask[:t, :t]
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


class LstmLanguageModel(nn.Module):
    def __init__(self, words=41, width=14, hidden=18):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])
