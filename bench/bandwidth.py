#!/usr/bin/env python3
"""Bandwidth of every kernel without a product in training steps against copies in the same run.

A kernel's rate is the bytes of its operands and results, each counted once, over its median time in `sluice train --trace`. Its
peer copies as many bytes (half read, half written) somewhere in a pool as large as the plan's memory, so that it finds as
much of them in the cache as the kernel may. Steps and copies take turns. Wanted: 90% of a copy; `flops/B` says what computes, and what
only writes (scatter_add fills zeros) moves twice its bytes, since lines are read before they are written.
Run by bench/bandwidth.sh, which has PyTorch to export the models.
"""
import argparse
import collections
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np
import torch

import step
from breakdown import LEAST_US, launches
from lines import Lines

PRODUCTS = ("contract", "conv", "depthwise", "attention")


def is_other(name):
    """A product, or a gather, whose operand is a table of which it reads some rows."""
    return name == "gather" or any(part.startswith(PRODUCTS) for part in name.split("+"))


class Pool:
    """Copies of any size from one half of so much memory to the other, each from where the one before ended."""

    def __init__(self, size):
        self.half = max(size // 2, 1 << 20)
        self.memory = np.ones(2 * self.half, dtype=np.uint8)
        self.at = 0

    def seconds(self, size):
        size = min(max(size // 2, 64), self.half)
        if self.at + size > self.half:
            self.at = 0
        source, target = self.memory[self.at:self.at + size], self.memory[self.half + self.at:self.half + self.at + size]
        self.at += size
        start = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - start, 2 * size


def copy_rates(pool, sizes, repeats):
    """Bytes per microsecond by size: the call itself, which small copies are made of, is subtracted."""
    call = min(pool.seconds(64)[0] for _ in range(200))
    rates = collections.defaultdict(list)
    for _ in range(repeats):
        for size in sizes:
            seconds, moved = pool.seconds(size)
            rates[size].append(moved / max(seconds - call, 1e-7) / 1e6)
    return rates


def measure(case, threads, rounds, folder, mode):
    torch.manual_seed(0)
    model, inputs, labels = step.CASES[case]()
    plan, report = step.prepare(case, model, inputs, labels, folder, threads, mode)
    pool, times, rates, facts = Pool(report["arena_bytes"]), collections.defaultdict(list), collections.defaultdict(list), {}
    trace = folder / "trace.json"
    for _ in range(rounds):
        step.run_sluice(plan, folder, max(3, min(50, int(1e6 / max(report["step_us"], 1)))), "--trace", str(trace))
        rows = [row for row in launches(trace)[0] if not is_other(row["name"]) and row["bytes"] > 0]
        for row in rows:
            key = row["name"], int(row["bytes"])
            times[key].append(row["us"])
            facts[key] = row
        for size, found in copy_rates(pool, {size for _, size in times}, 5).items():
            rates[size] += found
    result = []
    for (name, size), found in times.items():
        us = statistics.median(found)
        if us >= LEAST_US:
            result.append({"kernel": name, "bytes": size, "us": us, "node": facts[name, size]["node"], "launches": len(found) // rounds,
                           "flops": facts[name, size]["flops"] / size, "ours": size / us / 1e3, "copy": statistics.median(rates[size]) / 1e3})
    return sorted(result, key=lambda row: row["ours"] / row["copy"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["mlp", "fashion-cnn", "char-decoder", "gpt2-124m-b4t64"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    lines = Lines(options.out, "bandwidth", options.threads)
    for case in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(case, options.threads, options.rounds, pathlib.Path(folder), options.mode)
        print(f"{case}, {options.mode}, {options.threads} thread(s): kernels without products from {LEAST_US} us on, worst first")
        print(f"  {'of copy':>7} {'GB/s':>6} {'copy':>6} {'us':>8} {'x':>3} {'MB':>8} {'flops/B':>7}  kernel at the first node")
        total = sum(row["us"] * row["launches"] for row in rows)
        for row in rows:
            print(f"  {100 * row['ours'] / row['copy']:6.0f}% {row['ours']:6.1f} {row['copy']:6.1f} {row['us']:8.0f} {row['launches']:3} {row['bytes'] / 1e6:8.2f} "
                  f"{row['flops']:7.2f}  {row['kernel'][:60]} at {row['node'].split('+')[0][:40]}")
            lines.add(f"{case} {options.mode}", f"GB/s of {row['kernel']}", round(row["ours"], 2), round(row["copy"], 2), peer_name="copy",
                      bytes=row["bytes"], us=round(row["us"], 1), launches=row["launches"])
        if rows:
            reached = sum(row["us"] * row["launches"] for row in rows if row["ours"] >= 0.9 * row["copy"])
            ideal = sum(row["us"] * row["launches"] * min(1, row["ours"] / row["copy"]) for row in rows)
            print(f"  {100 * reached / total:.0f}% of their {total / 1e3:.2f} ms reach 90%; all at a copy's rate would take {ideal / 1e3:.2f} ms")


if __name__ == "__main__":
    main()
