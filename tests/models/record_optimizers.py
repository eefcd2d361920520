#!/usr/bin/env python3
"""Records mlp.onnx and mlp-losses.json: a small network trained 100 steps on one batch by each optimizer, f64.

PyTorch 1.13.1 (Debian 12: python3-torch); what it lacks is in tests/ir/record_optimizers.py. Run: python3 record_optimizers.py
"""
import json
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
SPECS = {
    "sgd": ({"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}, torch.optim.SGD),
    "adam": ({"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}, torch.optim.Adam),
    "adamw": ({"lr": 0.01}, torch.optim.AdamW),
    "nadam": ({"lr": 0.01, "weight_decay": 0.01}, torch.optim.NAdam),
    "radam": ({"lr": 0.02}, torch.optim.RAdam),
    "adagrad": ({"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}, torch.optim.Adagrad),
    "rmsprop": ({"lr": 0.002, "alpha": 0.9, "momentum": 0.8, "centered": True, "eps": 1e-3}, torch.optim.RMSprop),
}


def parameters(generator):
    return {
        "w1": generator.normal(0, 0.5, (16, 6)), "b1": generator.normal(0, 0.1, 16),
        "w2": generator.normal(0, 0.3, (4, 16)), "b2": generator.normal(0, 0.1, 4)}


def model(weights, batch):
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1), helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"], transB=1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "mlp", [value("x", TensorProto.FLOAT, [batch, 6])], [value("logits", TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def losses(make, weights, x, labels):
    p = {k: torch.tensor(v.astype(np.float32).astype(np.float64), requires_grad=True) for k, v in weights.items()}
    optimizer, result = make(list(p.values())), []
    for _ in range(100):
        hidden = torch.tanh(x @ p["w1"].T + p["b1"])
        loss = torch.nn.functional.cross_entropy(hidden @ p["w2"].T + p["b2"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(round(loss.item(), 9))
    return result


def main():
    torch.set_default_dtype(torch.float64)
    generator = np.random.default_rng(7)
    weights = parameters(generator)
    x = generator.normal(0, 1, (32, 6)).astype(np.float32)
    labels = generator.integers(0, 4, 32)
    onnx.save(model(weights, 32), HERE / "mlp.onnx")
    record = {"x": x.astype(np.float64).round(9).tolist(), "labels": labels.tolist(), "runs": {}}
    tensors = torch.tensor(x.astype(np.float64)), torch.tensor(labels)
    for kind, (options, optimizer) in SPECS.items():
        extra = {"foreach": True} if kind == "nadam" else {}  # one at a time, 1.13.1's NAdam multiplies by mu_t twice
        record["runs"][kind] = {"options": options, "losses": losses(lambda p: optimizer(p, **options, **extra), weights, *tensors)}
    (HERE / "mlp-losses.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
