#!/usr/bin/env python3
"""Writes fashion-cnn.onnx: a small CNN with batch norm and dropout, exported in training mode.

Recorded with PyTorch 1.13.1 (Debian 12: python3-torch). Run: python3 export.py
"""
import pathlib

import torch
from torch import nn


class FashionCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 7 * 7, 64)
        self.dropout = nn.Dropout(0.2)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):  # [N, 1, 28, 28] -> [N, 10]
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(self.dropout(x))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.onnx.export(
        FashionCnn().train(),
        torch.zeros(2, 1, 28, 28),
        str(pathlib.Path(__file__).with_name("fashion-cnn.onnx")),
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        opset_version=17,
    )
