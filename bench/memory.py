#!/usr/bin/env python3
"""Peak bytes and step time under budgets of 100, 60, 40 and 25% of the unconstrained peak, beside PyTorch with activation
checkpointing: no blocks, half of them, and all of them checkpointed.

Sluice's bytes are the planned and measured arena; PyTorch's the highest resident size (sampled) less that before the model
exists. A budget that cannot be met is shown with the smallest that can, which is then measured. With --rounds 0 only bytes are
measured, which do not depend on what else runs. Run by bench/memory.sh.
"""
import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import torch
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import step  # noqa: E402
from lines import Lines, peak_bytes  # noqa: E402

CASES = ["mlp", "fashion-cnn", "char-decoder", "gpt2-124m-b4t64"]
SHARES = {100: 0.0, 60: 0.5, 40: 1.0, 25: 1.0}  # budget in percent -> part of PyTorch's blocks that is checkpointed


class Checkpointed(torch.nn.Module):
    """A module whose forward pass runs again in the backward pass."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        return checkpoint(self.inner, *inputs, use_reentrant=False)


def with_checkpoints(model, share):
    """The first of its blocks: of a decoder its layers, of other models pairs of layers."""
    if share == 0:
        return model
    if hasattr(model, "blocks"):
        blocks = model.blocks
        for i in range(round(len(blocks) * share)):
            blocks[i] = Checkpointed(blocks[i])
    elif isinstance(model, torch.nn.Sequential):
        layers = list(model)
        pairs = [torch.nn.Sequential(*layers[i:i + 2]) for i in range(0, len(layers), 2)]
        count = round(len(pairs) * share)
        model = torch.nn.Sequential(*[Checkpointed(pair) for pair in pairs[:count]], *pairs[count:])
    else:
        names = [name for name, child in model.named_children() if any(True for _ in child.parameters())]
        for name in names[:round(len(names) * share)]:
            setattr(model, name, Checkpointed(getattr(model, name)))
    return model


def peer(case, share):
    torch.manual_seed(0)
    model, inputs, labels = step.CASES[case]()
    return step.Torch(with_checkpoints(model, share), inputs, labels, False)


def peer_peak(case, share, threads):
    return peak_bytes("import memory", f"memory.peer({case!r}, {share})", threads)


def compile_for(folder, case, budget):
    """The report of a plan for the budget; where none fits, for the smallest that can be met."""
    command = [step.SLUICE, "compile", folder / f"{case}.onnx", "--spec", folder / f"{case}.yaml", "-o", folder / f"{case}.plan", "--json"]
    done = subprocess.run([*command, "--memory", str(budget)], capture_output=True, text=True)
    if done.returncode == 3:
        least = re.search(r"smallest that can be met is (\d+) bytes", done.stderr + done.stdout)[1]
        done = subprocess.run([*command, "--memory", least], capture_output=True, text=True)
    done.check_returncode()
    return json.loads(done.stdout)


def measure(case, threads, rounds, folder):
    torch.manual_seed(0)
    plan, free = step.prepare(case, *step.CASES[case](), folder, threads)
    shares = sorted(set(SHARES.values()))
    peers, count = {}, 1
    if rounds:
        peers = {share: peer(case, share) for share in shares}
        for one in peers.values():
            one.step(), one.step()
        count = max(5, min(100, int(1e6 / peers[0.0].step())))
    rows, peaks = [], {share: peer_peak(case, share, threads) for share in shares}
    for percent, share in SHARES.items():
        budget = free["arena_bytes"] * percent // 100
        report = compile_for(folder, case, budget)
        ours, theirs = [], []
        out = step.run_sluice(plan, folder, 1, "--measure")
        for _ in range(rounds):
            ours.append(step.run_sluice(plan, folder, count)["step_us_median"])
            theirs.append(statistics.median(peers[share].step() for _ in range(count)))
        assert out["arena_bytes_measured"] <= report["arena_bytes"]
        rows.append({"percent": percent, "met": report["arena_bytes"] <= budget, "bytes": report["arena_bytes"], "ours": ours,
                     "predicted": report["step_us"], "gap": report["gap"], "theirs": theirs, "peer_bytes": peaks[share], "share": share})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lines = Lines(arguments.out, "memory", arguments.threads)
    print(f"threads {arguments.threads}, PyTorch {torch.__version__}, {arguments.rounds} rounds, medians; < is a budget below the smallest plan, which is shown")
    print(f"{'case':18} {'budget':>7} {'sluice MiB':>11} {'ms':>9} {'time':>6} {'gap %':>6} | {'checkpointed':>12} {'PyTorch MiB':>11} {'ms':>9} {'time':>6}")
    for case in arguments.cases:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(case, arguments.threads, arguments.rounds, pathlib.Path(folder))
        median = lambda times: statistics.median(times) if times else math.nan
        first_us, first_peer_us = median(rows[0]["ours"]), median(rows[0]["theirs"])
        for row in rows:
            us, peer_us = median(row["ours"]), median(row["theirs"])
            print(f"{case:18} {'' if row['met'] else '<':>2}{row['percent']:4d}% {row['bytes'] / 2**20:11.1f} {us / 1e3:9.2f} {us / first_us:6.2f} "
                  f"{row['gap'] * 100:6.2f} | {row['share'] * 100:11.0f}% {row['peer_bytes'] / 2**20:11.1f} {peer_us / 1e3:9.2f} {peer_us / first_peer_us:6.2f}", flush=True)
            name, about = f"{case}-f32-{row['percent']}", {"peer_name": f"eager f32, {row['share']:.0%} of the blocks checkpointed", "peer_version": torch.__version__}
            if arguments.rounds:
                lines.add(name, "step_us", us, peer_us, ratio=peer_us / us, spread=[min(row["ours"]), max(row["ours"])], **about)
            lines.add(name, "peak_bytes", row["bytes"], row["peer_bytes"], ratio=row["peer_bytes"] / row["bytes"], spread=[], **about)


if __name__ == "__main__":
    main()
