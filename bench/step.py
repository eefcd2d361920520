#!/usr/bin/env python3
"""Step time and peak memory of whole training steps against PyTorch eager and torch.compile, in one run.

Prints a table; with --out F appends one JSON object per line. The peers and Sluice take turns, so that a machine whose
speed drifts is fair to all; medians are compared. Run by bench/step.sh, which makes the virtual environment.
"""
import argparse
import importlib.util
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from breakdown import breakdown  # noqa: E402
from lines import ROOT, Lines, peak_bytes  # noqa: E402

SLUICE = ROOT / "build" / "tools" / "sluice"


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mlp():
    layers = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    return layers, torch.rand(64, 784), torch.randint(0, 10, (64,))


def fashion_cnn():
    model = load(ROOT / "examples/fashion-mnist/export.py", "cnn").FashionCnn()
    return model, torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))


def decoder(batch, length, **shape):
    model = load(ROOT / "examples/char-decoder/export.py", "decoder").CharDecoder(length=length, **shape)
    vocabulary = shape.get("vocabulary", 65)
    return model, torch.randint(0, vocabulary, (batch, length)), torch.randint(0, vocabulary, (batch, length))


def image_classes(model, batch, size, classes):
    return model, torch.rand(batch, 3, size, size), torch.randint(0, classes, (batch,))


def resnet18():
    """64 to 512 channels, images of CIFAR's size."""
    return image_classes(load(ROOT / "tests/models/zoo/vision.py", "vision").ResNet18((64, 128, 256, 512)), 16, 32, 10)


def vit_tiny():
    """Width 192, three heads, twelve layers; 8 x 8 patches of 4."""
    return image_classes(load(ROOT / "tests/models/zoo/vision.py", "vision").Vit(192, 3, 12, 64), 16, 32, 10)


class BertTokens(torch.nn.Module):
    """BERT on whole sentences: one input, nothing masked."""

    def __init__(self, bert, length):
        super().__init__()
        self.bert = bert
        self.register_buffer("mask", torch.ones(1, length, dtype=torch.int64))
        self.register_buffer("kinds", torch.zeros(1, length, dtype=torch.int64))

    def forward(self, ids):
        return self.bert(ids, self.mask, self.kinds)


def bert_tiny():
    """Width 128, two heads, two layers, 30,522 words, as the smallest published one."""
    bert = load(ROOT / "tests/models/zoo/language.py", "language").Bert(30522, 128, 2, 2, 128)
    return BertTokens(bert, 128), torch.randint(0, 30522, (8, 128)), torch.randint(0, 30522, (8, 128))


GPT2 = {"vocabulary": 50257, "width": 768, "layers": 12, "heads": 12}
LEAST_STEPS = 5  # of a round; 2 of those that take a second

CASES = {
    "mlp": mlp,
    "fashion-cnn": fashion_cnn,
    "char-decoder": lambda: decoder(16, 64),
    "resnet18": resnet18,
    "vit-tiny": vit_tiny,
    "bert-tiny": bert_tiny,
    "gpt2-124m-b4t64": lambda: decoder(4, 64, **GPT2),
    "gpt2-124m-b1t1024": lambda: decoder(1, 1024, **GPT2),
}


class Torch:
    """One peer: steps of AdamW on a fixed batch, in f32 or under autocast to bf16."""

    def __init__(self, model, inputs, labels, compiled, mode="f32"):
        self.inputs, self.labels, self.narrow = inputs, labels, mode == "bf16"
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        self.model = torch.compile(model) if compiled else model

    def step(self):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.narrow):
            logits = self.model(self.inputs).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), self.labels.flatten())
        loss.backward()
        self.optimizer.step()
        loss.item()
        return (time.perf_counter() - start) * 1e6


def prepare(name, model, inputs, labels, folder, threads, mode="f32"):
    path = folder / f"{name}.onnx"
    torch.onnx.export(model.train(), (inputs,), str(path), input_names=["x"], output_names=["logits"], dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17)
    spec = folder / f"{name}.yaml"
    spec.write_text(f"threads: {threads}\nloss: {{kind: cross_entropy, logits: logits, labels: labels}}\noptimizer: {{kind: adamw, lr: 1.0e-3}}\n"
                    + ("precision: {compute: amp_bf16}\n" if mode == "bf16" else ""))
    plan = folder / f"{name}.plan"
    report = json.loads(subprocess.run([SLUICE, "compile", path, "--spec", spec, "-o", plan, "--json"], check=True, capture_output=True, text=True).stdout)
    np.save(folder / "x.npy", inputs.numpy())
    np.save(folder / "y.npy", labels.numpy())
    return plan, report


def run_sluice(plan, folder, steps, *more):
    command = [SLUICE, "train", plan, "--data", f"x=npy:{folder / 'x.npy'}", "--data", f"labels=npy:{folder / 'y.npy'}",
               "--steps", str(steps), "--no-shuffle", "--json", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def torch_peak(case, threads, mode):
    """Of a process that trains in eager PyTorch."""
    return peak_bytes("import step", f"step.Torch(*step.CASES[{case!r}](), False, {mode!r})", threads)


def measure(case, rounds, threads, folder, mode):
    torch.manual_seed(0)
    model, inputs, labels = CASES[case]()
    plan, report = prepare(case, model, inputs, labels, folder, threads, mode)
    import copy
    peers = {"eager": Torch(copy.deepcopy(model), inputs, labels, False, mode),
             "torch.compile": Torch(model, inputs, labels, True, mode)}
    for peer in peers.values():
        peer.step(), peer.step()
    ours, theirs = [], {name: [] for name in peers}
    steps = 0
    for _ in range(rounds):
        once = peers["eager"].step()
        steps = max(LEAST_STEPS if once < 1e6 else 2, min(200, int(2e6 / once)))
        out = run_sluice(plan, folder, steps)
        ours.append(out["step_us_median"])
        for name, peer in peers.items():
            theirs[name].append(statistics.median(peer.step() for _ in range(steps)))
    trace = folder / "trace.json"
    run_sluice(plan, folder, max(min(steps, LEAST_STEPS), steps // 4), "--trace", trace)
    return report, breakdown(trace), ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default="f32,bf16", help="f32, bf16 (ours: amp_bf16, PyTorch's: autocast)")
    parser.add_argument("--out")
    parser.add_argument("--no-profile", action="store_true", help="leave out where the time goes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lines = Lines(arguments.out, "step", arguments.threads)
    import tempfile
    print(f"threads {arguments.threads}, PyTorch {torch.__version__}, {arguments.rounds} rounds, medians")
    print(f"{'case':22} {'sluice ms':>10} {'eager ms':>10} {'ratio':>6} {'compile ms':>10} {'ratio':>6} {'arena MiB':>10} {'eager MiB':>10}")
    for case, mode in itertools.product(arguments.cases, arguments.modes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            report, profile, ours, theirs = measure(case, arguments.rounds, arguments.threads, pathlib.Path(folder), mode)
        us = statistics.median(ours)
        peer_us = {name: statistics.median(values) for name, values in theirs.items()}
        peak = torch_peak(case, arguments.threads, mode)
        print(f"{case + ' ' + mode:22} {us / 1e3:10.2f} {peer_us['eager'] / 1e3:10.2f} {peer_us['eager'] / us:6.2f} "
              f"{peer_us['torch.compile'] / 1e3:10.2f} {peer_us['torch.compile'] / us:6.2f} {report['arena_bytes'] / 2**20:10.1f} {peak / 2**20:10.1f}", flush=True)
        if not arguments.no_profile:
            print("\n".join(profile), flush=True)
        for name, value in peer_us.items():
            lines.add(f"{case}-{mode}", "step_us", us, value, peer_name=f"{name} {mode}", peer_version=torch.__version__, ratio=value / us,
                      spread=[min(ours), max(ours)])
        lines.add(f"{case}-{mode}", "peak_bytes", report["arena_bytes"], peak, peer_name=f"eager {mode} (resident, less the base)",
                  peer_version=torch.__version__, ratio=peak / report["arena_bytes"], spread=[])


if __name__ == "__main__":
    main()
