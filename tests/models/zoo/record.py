#!/usr/bin/env python3
"""Records what PyTorch computes for the models here, to compare Sluice with.

For each: NAME.onnx, and NAME.safetensors with the inputs (in/...), labels, what the model gives in inference
(output), all gradients of the mean loss in training (grad/...), and the losses of ten AdamW steps (lr 1e-3, weight
decay 0.01) on that one batch. Recorded with PyTorch 1.13.1, CPU (Debian 12: python3-torch).
Run: python3 record.py [NAME...]
"""
import copy
import pathlib
import sys

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import language  # noqa: E402
import pairs  # noqa: E402
import vision  # noqa: E402
from torch_safetensors import save  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def cross_entropy(output, labels):
    if output.dim() == 3:  # the last dimension counts classes
        output = output.transpose(1, 2)
    return functional.cross_entropy(output, labels)


def settled(model, inputs):
    """Running statistics that are not those of a fresh network."""
    model.train()
    with torch.no_grad():
        for _ in range(5):
            model(*inputs)
    return model


def export(name, model, inputs, dynamic, as_trained):
    names = {key: {0: "batch"} for key in inputs} if dynamic else None
    how = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False} if as_trained else {}
    torch.onnx.export(model, tuple(inputs.values()), str(HERE / f"{name}.onnx"), input_names=list(inputs), output_names=["output"],
                      dynamic_axes=names, opset_version=17, **how)


def record(name, model, inputs, labels=None, loss=cross_entropy, dynamic=False, as_trained=True):
    model = settled(model, inputs.values())
    if not as_trained:
        model = model.folded() if hasattr(model, "folded") else model.eval()
    exported = copy.deepcopy(model)  # tracing updates its running statistics once more, and the file has those
    export(name, exported, inputs, dynamic, as_trained)
    out = {"in/" + key: value for key, value in inputs.items()}
    if labels is not None:
        out["labels"] = labels
    out["output"] = exported.eval()(*inputs.values())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        value = loss(model(*inputs.values()), labels)
        value.backward()
        losses.append(value.item())
        if step == 0:
            out.update({"grad/" + n: p.grad.clone() for n, p in model.named_parameters()})
        optimizer.step()
    out["losses"] = torch.tensor(losses)
    save(HERE / f"{name}.safetensors", out)


def tokens(words, *shape):
    return torch.randint(words, shape)


def bert(name, **how):
    mask = (torch.arange(12) < torch.tensor([[12], [7], [10], [3]])).long()
    labels = tokens(61, 4, 12).masked_fill((mask == 0) | (torch.rand(4, 12) < 0.5), -100)
    inputs = {"input_ids": tokens(61, 4, 12), "attention_mask": mask, "token_type_ids": (torch.arange(12) > 5).long().repeat(4, 1)}
    record(name, language.Bert(), inputs, labels, **how)


def image_classes(name, model, size, batch=4, **how):
    record(name, model, {"images": torch.randn(batch, 3, size, size)}, torch.arange(batch) * 3 % 10, **how)


MODELS = {
    "bert": lambda name: bert(name, dynamic=True),
    "vit": lambda name: image_classes(name, vision.Vit(), 16, dynamic=True),
    "vit-folded": lambda name: image_classes(name, vision.Vit(), 16, dynamic=True, as_trained=False),
    "resnet18": lambda name: image_classes(name, vision.ResNet18(), 48),
    "resnet18-folded": lambda name: image_classes(name, vision.ResNet18(), 48, as_trained=False),
    "mobilenetv2": lambda name: image_classes(name, vision.MobileNetV2(), 24),
    "unet": lambda name: record(name, vision.UNet(), {"image": torch.randn(2, 1, 16, 16)}, tokens(3, 2, 16, 16), dynamic=True),
    "pointnet": lambda name: record(name, vision.PointNet(), {"points": torch.randn(6, 3, 20)}, tokens(8, 6),
                                    functional.nll_loss, dynamic=True),
    "llama": lambda name: record(name, language.Llama(), {"tokens": tokens(53, 3, 10)}, tokens(53, 3, 10)),
    "lstm": lambda name: record(name, language.LstmLanguageModel(), {"tokens": tokens(41, 4, 9)}, tokens(41, 4, 9), dynamic=True),
    "lstm-folded": lambda name: record(name, language.LstmLanguageModel(), {"tokens": tokens(41, 4, 9)}, tokens(41, 4, 9),
                                       as_trained=False),
    "clip": lambda name: record(name, pairs.Clip(), {"images": torch.randn(5, 3, 12, 12), "texts": tokens(37, 5, 8)}, torch.arange(5)),
    "vae": lambda name: record(name, pairs.Vae(), {"images": torch.rand(4, 1, 16, 16), "noise": torch.randn(4, 4)},
                               loss=lambda output, _: output),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        torch.manual_seed(0)
        MODELS[chosen](chosen)
