#!/usr/bin/env python3
"""Writes init-values.inc: the scales that torch.nn.init gives to the weights of layers.

    python3 tests/passes/train/record_init.py > tests/passes/train/init-values.inc

Each line: the layer, its weight's shape in PyTorch, the rule of the spec, and what PyTorch's draws have: for uniform rules
the bound, for normal ones the standard deviation. Both come from the fans and gains that torch computes, and are checked
here against draws of torch itself.
"""
import math

import torch
from torch import nn
from torch.nn import init

LAYERS = [("linear", nn.Linear(60, 80)), ("conv", nn.Conv2d(8, 24, 3)), ("grouped", nn.Conv2d(16, 32, 3, groups=4)),
          ("depthwise", nn.Conv2d(64, 64, 5, groups=64)), ("conv1d", nn.Conv1d(12, 20, 7)), ("conv3d", nn.Conv3d(4, 6, 3)),
          ("transposed", nn.ConvTranspose2d(16, 24, 4)), ("embedding", nn.Embedding(90, 48))]
GAINS = ["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]


def measured(weight, fill):
    """Largest magnitude and deviation of many draws."""
    torch.manual_seed(0)
    most, squares, count = 0.0, 0.0, 0
    for _ in range(max(1, 400000 // weight.numel())):
        with torch.no_grad():
            fill(weight)
        most = max(most, weight.abs().max().item())
        squares += weight.double().square().sum().item()
        count += weight.numel()
    return most, math.sqrt(squares / count)


def line(layer, weight, rule, value, fill):
    most, deviation = measured(weight, fill)
    is_uniform = "normal" not in rule
    assert abs((most if is_uniform else deviation) / value - 1) < 0.02, (layer, rule, value, most, deviation)
    dims = ", ".join(map(str, weight.shape))
    print(f'{{"{layer}", {{{dims}}}, "{rule}", {value:.17g}}},')


print(f"// Written by record_init.py with torch {torch.__version__.split('+')[0]}.")
for layer, module in LAYERS:
    w = module.weight
    fan_in, fan_out = init._calculate_fan_in_and_fan_out(w)
    for mode, fan in (("fan_in", fan_in), ("fan_out", fan_out)):
        std = init.calculate_gain("relu") / math.sqrt(fan)
        more = ", mode: fan_out" if mode == "fan_out" else ""
        line(layer, w, "{from: kaiming%s}" % more, math.sqrt(3) * std,
             lambda t: init.kaiming_uniform_(t, mode=mode, nonlinearity="relu"))
        line(layer, w, "{from: kaiming_normal%s}" % more, std, lambda t: init.kaiming_normal_(t, mode=mode, nonlinearity="relu"))
    std = math.sqrt(2 / (fan_in + fan_out))
    line(layer, w, "{from: xavier}", math.sqrt(3) * std, init.xavier_uniform_)
    line(layer, w, "{from: xavier_normal}", std, init.xavier_normal_)
w = LAYERS[0][1].weight
for name in GAINS:
    gain = init.calculate_gain(name)
    std = gain * math.sqrt(2 / (60 + 80))
    line("linear", w, "{from: xavier, gain: %s}" % name, math.sqrt(3) * std, lambda t: init.xavier_uniform_(t, gain))
default = nn.Linear(60, 80)
line("linear", w, "{from: kaiming, gain: 0.57735026918962573}", 1 / math.sqrt(60), lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)))
assert default.weight.abs().max().item() <= 1 / math.sqrt(60)
line("linear", w, "{normal: 0.02}", 0.02, lambda t: init.normal_(t, std=0.02))
line("linear", w, "{uniform: 0.3}", 0.3, lambda t: init.uniform_(t, -0.3, 0.3))
# Cut at two: the deviation of what is left.
_, left = measured(w, lambda t: init.trunc_normal_(t, std=1.0))
phi, mass = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(2 / math.sqrt(2))
exact = math.sqrt(1 - 4 * phi / mass)
assert abs(left / exact - 1) < 0.01
line("linear", w, "{trunc_normal: 1}", exact, lambda t: init.trunc_normal_(t, std=1.0))
