#!/usr/bin/env python3
"""Writes optimizer-values.inc: weights after 1, 10 and 100 updates, in double precision.

PyTorch 1.13.1 where it has the optimizer; Adafactor with a PyTorch that has it (2.15 when recorded: run the script once
with each, the lines of missing optimizers are kept); LAMB, Lion and Muon by their papers' formulas in NumPy.
"""
import math
import pathlib
import re

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
OUT = pathlib.Path(__file__).with_name("optimizer-values.inc")
SHAPE = (2, 3)
INDEX = np.arange(6.0).reshape(SHAPE)
START, CURVATURE, TARGET = 0.2 * (INDEX + 1) - 0.7, 0.5 + 0.25 * INDEX, 0.3 * INDEX - 1


def gradient(w, step):
    return CURVATURE * (w - TARGET) + 0.1 * np.cos(step * (INDEX + 1))


def torch_run(make, transpose=False):
    p = torch.tensor(START.T.copy() if transpose else START, dtype=torch.float64, requires_grad=True)
    optimizer = make([p])
    for step in range(1, 101):
        w = p.detach().numpy()
        g = gradient(w.T if transpose else w, step)
        p.grad = torch.tensor(g.T.copy() if transpose else g)
        optimizer.step()
        yield step, p.detach().numpy().copy()


def numpy_run(update, transpose=False):
    w, state = (START.T if transpose else START).copy(), {}
    for step in range(1, 101):
        g = gradient(w.T if transpose else w, step)
        w = update(w, g.T if transpose else g, step, state)
        yield step, w


def lamb(w, g, t, s, lr=0.01, b1=0.8, b2=0.9, eps=1e-4, decay=0.1):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    r = s["m"] / (1 - b1**t) / (np.sqrt(s["v"] / (1 - b2**t)) + eps) + decay * w
    return w - lr * np.linalg.norm(w) / np.linalg.norm(r) * r


def lion(w, g, t, s, lr=0.01, b1=0.8, b2=0.9, decay=0.1):
    m = s.get("m", 0)
    s["m"] = b2 * m + (1 - b2) * g
    return w - lr * (np.sign(b1 * m + (1 - b1) * g) + decay * w)


def muon(w, g, t, s, lr=0.01, momentum=0.9, decay=0.1, nesterov=True, match=False):
    b = s["b"] = momentum * s.get("b", 0) + (1 - momentum) * g
    x = (1 - momentum) * g + momentum * b if nesterov else b
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    rows, columns = w.shape
    scale = 0.2 * math.sqrt(max(rows, columns)) if match else math.sqrt(max(1, rows / columns))
    return w * (1 - lr * decay) - lr * scale * x


betas = {"betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1, "lr": 0.01}
runs = {
    "lamb": numpy_run(lamb),
    "lion": numpy_run(lion),
    "muon": numpy_run(muon),
    "muon_tall": numpy_run(lambda *a: muon(*a, nesterov=False, match=True), transpose=True),
}
if torch.__version__.startswith("1.13"):
    optim = torch.optim
    runs |= {
        "sgd": torch_run(lambda p: optim.SGD(p, lr=0.02, momentum=0.9, dampening=0.2, weight_decay=0.1)),
        "nesterov": torch_run(lambda p: optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.1, nesterov=True)),
        "adam": torch_run(lambda p: optim.Adam(p, **betas)),
        "adamw": torch_run(lambda p: optim.AdamW(p, **betas)),
        "amsgrad": torch_run(lambda p: optim.Adam(p, amsgrad=True, **betas)),
        # One tensor at a time, 1.13.1 multiplies by mu_t twice (mended in 2.0); all at once it does not.
        "nadam": torch_run(lambda p: optim.NAdam(p, momentum_decay=0.01, foreach=True, **betas)),
        "radam": torch_run(lambda p: optim.RAdam(p, **betas)),
        "adagrad": torch_run(lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01, weight_decay=0.1,
                                                     initial_accumulator_value=0.5, eps=1e-4)),
        "rmsprop": torch_run(lambda p: optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-4, weight_decay=0.1)),
        "rmsprop_full": torch_run(lambda p: optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-4, weight_decay=0.1,
                                                          momentum=0.8, centered=True)),
    }
if hasattr(torch.optim, "Adafactor"):
    def adafactor(p):
        return torch.optim.Adafactor(p, lr=0.05, beta2_decay=-0.7, eps=(1e-3, 1e-2), d=1.0, weight_decay=0.1)
    runs["adafactor"] = torch_run(adafactor)
    vector = torch.tensor(START.reshape(-1), requires_grad=True)

    def flat():
        optimizer = adafactor([vector])
        for step in range(1, 101):
            vector.grad = torch.tensor(gradient(vector.detach().numpy().reshape(SHAPE), step).reshape(-1))
            optimizer.step()
            yield step, vector.detach().numpy().copy()

    runs["adafactor_vector"] = flat()

lines = dict(re.findall(r'^(\{"(?:\w+)", \d+), (.*)$', OUT.read_text(), re.M)) if OUT.exists() else {}
for name, run in runs.items():
    for step, w in run:
        if step in (1, 10, 100):
            lines[f'{{"{name}", {step}'] = "{" + ", ".join(f"{v:.15g}" for v in w.reshape(-1)) + "}},"
OUT.write_text("// Recorded by record_optimizers.py.\n" + "".join(f"{k}, {v}\n" for k, v in lines.items()))
