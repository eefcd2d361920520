#!/usr/bin/env python3
"""Records ctc.onnx, triplet.onnx and losses.json: two small networks, ten steps of SGD on one batch by the losses that compare
sequences and distances, f64.

PyTorch 1.13.1 (Debian 12: python3-torch). Run: python3 record_losses.py
"""
import json
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES, FRAMES, FEATURES, CLASSES = 4, 12, 6, 5
TARGETS = [[1, 1, 3], [2, 4, 1], [3, -100, -100], [4, 2, -100]]
FRAMES_USED = [12, 10, 12, 7]
LABELS_USED = [3, 3, 1, 2]


def save(name, nodes, weights, inputs, outputs):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, name, [value(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [value(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), HERE / f"{name}.onnx")


def train(weights, loss_of, steps=10, lr=0.1):
    p = {k: torch.tensor(v.astype(np.float32).astype(np.float64), requires_grad=True) for k, v in weights.items()}
    optimizer, losses = torch.optim.SGD(list(p.values()), lr=lr), []
    for step in range(steps):
        loss = loss_of(p)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {k: v.grad.reshape(-1).tolist() for k, v in p.items()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def ctc(generator):
    weights = {"w1": generator.normal(0, 0.5, (FEATURES, 16)), "b1": generator.normal(0, 0.1, 16),
               "w2": generator.normal(0, 0.5, (16, CLASSES))}
    save("ctc", [helper.make_node("MatMul", ["x", "w1"], ["m"]), helper.make_node("Add", ["m", "b1"], ["h"]),
                 helper.make_node("Tanh", ["h"], ["a"]), helper.make_node("MatMul", ["a", "w2"], ["logits"])],
         weights, {"x": [SAMPLES, FRAMES, FEATURES]}, {"logits": [SAMPLES, FRAMES, CLASSES]})
    x = generator.normal(0, 1, (SAMPLES, FRAMES, FEATURES)).astype(np.float32)
    targets = torch.tensor(TARGETS).clamp(min=0)

    def loss_of(p):
        logits = torch.tanh(torch.tensor(x.astype(np.float64)) @ p["w1"] + p["b1"]) @ p["w2"]
        return torch.nn.functional.ctc_loss(logits.log_softmax(2).transpose(0, 1), targets, torch.tensor(FRAMES_USED),
                                            torch.tensor(LABELS_USED))

    losses, gradients = train(weights, loss_of)
    return {"x": x.tolist(), "labels": TARGETS, "frames": FRAMES_USED, "lengths": LABELS_USED, "losses": losses,
            "gradients": gradients}


def triplet(generator):
    weights = {"w1": generator.normal(0, 0.5, (FEATURES, 8)), "w2": generator.normal(0, 0.5, (8, 3))}
    nodes, inputs, outputs = [], {}, {}
    for part in ("anchor", "positive", "negative"):
        nodes += [helper.make_node("MatMul", [part, "w1"], [part + "_h"]), helper.make_node("Tanh", [part + "_h"], [part + "_a"]),
                  helper.make_node("MatMul", [part + "_a", "w2"], [part + "_out"])]
        inputs[part], outputs[part + "_out"] = [SAMPLES, FEATURES], [SAMPLES, 3]
    save("triplet", nodes, weights, inputs, outputs)
    data = {part: generator.normal(0, 1, (SAMPLES, FEATURES)).astype(np.float32) for part in inputs}
    record = {"inputs": {k: v.tolist() for k, v in data.items()}, "runs": []}
    for options in ({"margin": 1.0}, {"margin": 0.5, "p": 1}, {"margin": 2.0, "swap": True}):
        def loss_of(p):
            a, b, c = [torch.tanh(torch.tensor(v.astype(np.float64)) @ p["w1"]) @ p["w2"] for v in data.values()]
            return torch.nn.functional.triplet_margin_loss(a, b, c, **options)

        losses, gradients = train(weights, loss_of)
        record["runs"].append({"options": options, "losses": losses, "gradients": gradients})
    return record


def main():
    torch.set_default_dtype(torch.float64)
    generator = np.random.default_rng(11)
    record = {"ctc": ctc(generator), "triplet": triplet(generator)}
    (HERE / "losses.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
