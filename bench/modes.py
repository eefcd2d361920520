#!/usr/bin/env python3
"""Modes of update against `sync`: step times of two ranks over links of given latency and rate and of one rank whose moments lie
in the host's memory, and the loss after a number of steps with the best of a few rates for each mode.

  over     time of a step over that of the same mode's compute alone: links that take no time, or nothing offloaded
  loss     mean of the last 20 losses of training on the text of the char decoder; `safe_lr: false`, rates of the grid"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

import ranks
from lines import ROOT, Lines

DECODER = ROOT / "examples/char-decoder/char-decoder.onnx"
GROUPS = "grouping: {count: 4}, "
MODES = {
    "sync": "{}",
    "overlap": "{" + GROUPS + "mode: overlap}",
    "interleave2": "{" + GROUPS + "mode: {interleave: 2}}",
    "interleave4": "{" + GROUPS + "mode: {interleave: 4}}",
    "defer1": "{" + GROUPS + "mode: {defer: 1}, safe_lr: false}",
    "defer2": "{" + GROUPS + "mode: {defer: 2}, safe_lr: false}",
}
COMPENSATED = {f"{mode}+{how}": MODES[mode][:-1] + f", compensation: {how}}}" for mode in ("defer1", "defer2") for how in ("dc_asgd", "momentum")}
SPEC = "loss: {{kind: cross_entropy, logits: logits, labels: labels}}\nseed: 3\nthreads: 1\noptimizer: {{kind: adamw, lr: {lr}}}\nupdate: {update}\n"
RATES = (1e-3, 3e-3, 6e-3)


def compile_plan(folder, name, model, spec, *more):
    paths = [pathlib.Path(folder) / f"{name}{ending}" for ending in (".yaml", ".plan")]
    paths[0].write_text(spec)
    done = subprocess.run([ranks.SLUICE, "compile", model, "--spec", paths[0], *more, "-o", paths[1], "--json"], capture_output=True, text=True)
    return (paths[1], json.loads(done.stdout)) if done.returncode == 0 else (None, done.stderr)


def device_of(folder, link):
    path = pathlib.Path(folder) / f"{link[0]}-{link[1]:g}.dev.yaml"
    profile = (ROOT / "frontend/devices/cpu.yaml").read_text().splitlines()
    ours = f"ranks: {{rate: {link[1]:g}, latency_us: {link[0]}, rounds: 3}}"
    path.write_text("\n".join(ours if line.startswith("ranks:") else line for line in profile) + "\n")
    return path


def over_links(folder, arguments, lines):
    print(f"{'case':14} {'link':>18} {'mode':12} {'no link':>9} {'link':>9} {'over':>6} {'of sync':>8}")
    for case in arguments.cases:
        model, shapes, arrays = ranks.CASES[case]
        arrays = arrays(np.random.default_rng(1))
        for link in ranks.LINKS:
            plans = {mode: compile_plan(folder, f"{case}-{mode}-{link[0]}-{link[1]:g}", model,
                                        SPEC.format(lr=1e-4, update=update) + "parallel: {data: 2}\n" + shapes,
                                        "--device", device_of(folder, link))[0] for mode, update in MODES.items()}
            rounds = [{mode: [ranks.step_times(plan, arrays, at, arguments.steps)[1] for at in ((0, 0), link)] for mode, plan in plans.items() if plan}
                      for _ in range(arguments.rounds)]
            times = {mode: [statistics.median(r[mode][i] for r in rounds) for i in range(2)] for mode in rounds[0]}
            for mode, (free, there) in times.items():
                print(f"{case:14} {link[0]:>7} us {link[1] / 1e9:>4g} GB/s {mode:12} {free:>9.0f} {there:>9.0f} {there / free:>6.2f} {there / times['sync'][1]:>8.2f}", flush=True)
                lines.add(f"{case}-{link[0]}us-{link[1] / 1e9:g}GBs/{mode}", "step_us", there, times["sync"][1], peer_name="sync over the same link", no_link_us=free,
                          sync_no_link_us=times["sync"][0], ranks=2)


def train(plan, steps, *more):
    done = subprocess.run([ranks.SLUICE, "train", plan, *more, "--steps", str(steps), "--losses", "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def offloaded(folder, arguments, data, lines):
    print(f"{'mode':12} {'moments here':>13} {'on the host':>12} {'over':>6}")
    for mode, update in MODES.items():
        spec = SPEC.format(lr=1e-4, update=update) + "shapes: {batch: 16}\n"
        plans = [compile_plan(folder, f"offload-{mode}-{i}", DECODER, spec + memory)[0] for i, memory in enumerate(("", "memory: {offload: host}\n"))]
        if not all(plans):
            continue
        runs = [[train(plan, arguments.steps, *data)["step_us_median"] for plan in plans] for _ in range(arguments.rounds)]
        here, there = (statistics.median(column) for column in zip(*runs))
        print(f"{mode:12} {here:>13.0f} {there:>12.0f} {there / here:>6.2f}", flush=True)
        lines.add(f"char-decoder-moments-on-host/{mode}", "step_us", there, here, peer_name="nothing offloaded")


def losses(folder, arguments, data, lines):
    print(f"{'mode':18} " + " ".join(f"{rate:>8g}" for rate in RATES) + f" {'best':>8}")
    for mode, update in (MODES | COMPENSATED).items():
        ends = []
        for rate in RATES:
            plan, _ = compile_plan(folder, f"loss-{mode}-{rate:g}", DECODER, SPEC.format(lr=rate, update=update) + "shapes: {batch: 16}\n")
            ends.append(float(np.mean(train(plan, arguments.loss_steps, *data)["losses"][-20:])) if plan else float("nan"))
        if np.isnan(ends).all():
            continue
        best = float(np.nanmin(ends))
        print(f"{mode:18} " + " ".join(f"{end:>8.4f}" for end in ends) + f" {best:>8.4f}", flush=True)
        lines.add(f"char-decoder/{mode}", "loss", best, None, steps=arguments.loss_steps, rate=RATES[int(np.nanargmin(ends))], by_rate=dict(zip(map(str, RATES), ends)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["fashion-cnn", "char-decoder"])
    parser.add_argument("--text", help="a text file; without it losses and offload are left out")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loss-steps", type=int, default=300)
    parser.add_argument("--only", choices=["links", "offload", "losses"])
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, "modes", 1)
    data = ["--data", f"tokens=text:{arguments.text}", "--data", f"labels=text:{arguments.text},shift=1"]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only in (None, "links"):
            over_links(folder, arguments, lines)
        if arguments.text and arguments.only in (None, "offload"):
            offloaded(folder, arguments, data, lines)
        if arguments.text and arguments.only in (None, "losses"):
            losses(folder, arguments, data, lines)


if __name__ == "__main__":
    main()
