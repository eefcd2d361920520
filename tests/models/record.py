#!/usr/bin/env python3
"""Records what PyTorch computes for two small models, to compare Sluice with.

For each model: NAME.onnx and NAME.safetensors with the inputs (in/...), labels, logits, all gradients of the mean
cross entropy (grad/...), and the losses of ten AdamW steps (lr 1e-3, weight decay 0.01) on that one batch.
Recorded with PyTorch 1.13.1, CPU (Debian 12: python3-torch). Run: python3 record.py
"""
import importlib.util
import pathlib

import torch

from torch_safetensors import save

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(name, model, inputs, input_name, labels):
    model.train()
    torch.onnx.export(
        model, inputs, str(HERE / f"{name}.onnx"), input_names=[input_name], output_names=["logits"],
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17)
    out = {"in/" + input_name: inputs, "labels": labels}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out["logits"] = logits.clone()
            out.update({"grad/" + n: p.grad.clone() for n, p in model.named_parameters()})
        optimizer.step()
    out["losses"] = torch.tensor(losses)
    out.update({"final/" + n: p for n, p in model.state_dict().items() if p.dtype == torch.float32 and n != "mask"})
    save(HERE / f"{name}.safetensors", out)


def pseudo_random(count):
    s, values = 1.0, []
    for _ in range(count):
        s = (s * 1103515245 + 12345) % 2.0**31
        values.append(s / 2.0**31 - 0.5)
    return torch.tensor(values)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cnn = load(EXAMPLES / "fashion-mnist" / "export.py", "cnn").FashionCnn()
    cnn.dropout.p = 0.0
    cnn.fc1 = torch.nn.Linear(32 * 7 * 7, 8)
    cnn.fc2 = torch.nn.Linear(8, 10)
    record("small-cnn", cnn, pseudo_random(8 * 784).reshape(8, 1, 28, 28), "images", torch.arange(8) % 10)
    decoder = load(EXAMPLES / "char-decoder" / "export.py", "decoder").CharDecoder(33, 16, 32, 2, 2)
    tokens = (pseudo_random(4 * 16).add(0.5).mul(33)).long().reshape(4, 16)
    record("small-decoder", decoder, tokens, "tokens", (tokens * 7 + 3) % 33)
