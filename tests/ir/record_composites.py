#!/usr/bin/env python3
"""Values for NormalizeTest.cpp, PoolTest.cpp and TrainOpsTest.cpp, recorded with PyTorch 1.13.1 in double precision."""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def show(name, tensor):
    print(f"{name}: " + ", ".join(f"{v:.15g}" for v in tensor.detach().flatten().tolist()))


x = torch.arange(12.0).reshape(2, 6) * torch.tensor([[1.0], [-0.5]]) + 0.25
x.requires_grad_()
scale = torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0, 1.5])
bias = torch.tensor([0.0, 1.0, 0.5, -1.0, 2.0, 0.25])
dy = torch.tensor([[1.0, -1, 2, 0.5, 0, 3], [0, 1, -2, 1, 1, -0.5]])
y = F.layer_norm(x, (6,), scale, bias, 1e-5)
show("layer_norm y", y)
show("layer_norm dx", torch.autograd.grad(y, x, dy)[0])

x = (torch.arange(12.0).reshape(2, 3, 2) ** 2 / 10).requires_grad_()
mean, var = torch.zeros(3), torch.ones(3)
w, b = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.0, -1.0, 1.0])
y = F.batch_norm(x, mean, var, w, b, True, 0.1, 1e-5)
show("batch_norm y", y)
dy = torch.arange(12.0).reshape(2, 3, 2) / 7
show("batch_norm dx", torch.autograd.grad(y, x, dy)[0])
show("batch_norm running mean", mean)

logits = torch.tensor([[1.0, 2, 3], [3, 2, 1], [0, 0, 5], [1, -1, 0]], requires_grad=True)
labels = torch.tensor([0, 1, -100, 2])
weights = torch.tensor([0.2, 0.3, 0.5])
for smoothing in (0.0, 0.1):
    loss = F.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=smoothing)
    show(f"cross_entropy {smoothing}", loss)
    show(f"cross_entropy {smoothing} dlogits", torch.autograd.grad(loss, logits)[0])
show("cross_entropy mean", F.cross_entropy(logits[:2], labels[:2], weights))

x = torch.tensor([1.0, 3, 2, 3, 0, -1, 2, 5, 4, 4, 1, 0]).reshape(1, 1, 3, 4).requires_grad_()
y = F.max_pool2d(x, 2, 1, 1)
show("max_pool y", y)
show("max_pool dx", torch.autograd.grad(y, x, torch.arange(1.0, 21).reshape(y.shape))[0])
for include in (False, True):
    y = F.avg_pool2d(x, 2, 2, 1, count_include_pad=include)
    show(f"avg_pool {include} y", y)
    show(f"avg_pool {include} dx", torch.autograd.grad(y, x, torch.arange(1.0, 7).reshape(y.shape))[0])

for name, make in {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1),
}.items():
    p = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    optimizer = make([p])
    for step in range(3):
        p.grad = torch.tensor([0.1, -0.2, 0.3]) * (step + 1)
        optimizer.step()
        show(f"{name} {step}", p)
