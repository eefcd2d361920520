#!/usr/bin/env python3
"""What `compile` predicts for steps with tensors in the host's memory against what `train` measures.

Each example is planned as it is, with the moments in the host's memory, and at falling budgets with offload alone and
with offload and recompute together. Runs of the plans take turns; medians are compared with the run of the plain plan,
since the predicted price of moving tensors is what is judged. Prints a table; with --out F appends one JSON object per line.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np

from lines import ROOT, Lines

SLUICE = ROOT / "build" / "tools" / "sluice"
ADAM = "optimizer: {kind: adamw, lr: 1.0e-3}\nseed: 1\n"
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\n"


def sluice(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode == 3:
        return None  # does not fit
    done.check_returncode()
    return json.loads(done.stdout)


def cases(folder):
    random = np.random.default_rng(1)
    np.save(folder / "images.npy", random.random((256, 1, 28, 28), np.float32))
    np.save(folder / "classes.npy", random.integers(0, 10, 256))
    np.save(folder / "tokens.npy", random.integers(0, 65, (64, 64)))
    return {
        "fashion-cnn": (ROOT / "examples/fashion-mnist/fashion-cnn.onnx", "shapes: {batch: 64}\n",
                        ["--data", f"images=npy:{folder}/images.npy", "--data", f"labels=npy:{folder}/classes.npy"]),
        "char-decoder": (ROOT / "examples/char-decoder/char-decoder.onnx", "shapes: {batch: 16}\n",
                         ["--data", f"tokens=npy:{folder}/tokens.npy", "--data", f"labels=npy:{folder}/tokens.npy"]),
    }


def plans(folder, name, model, spec, threads):
    """(label, plan, report) of every way to plan the case."""
    def compile(label, memory, *options):
        path = folder / f"{name}-{label}"
        path.with_suffix(".yaml").write_text(spec + memory)
        report = sluice("compile", model, "--spec", path.with_suffix(".yaml"), "--threads", threads, *options, "-o", path.with_suffix(".plan"))
        return (label, path.with_suffix(".plan"), report) if report else None

    plain = compile("plain", "")
    most = plain[2]["arena_bytes"]
    yield plain
    yield compile("moments", "memory: {offload: host}\n")
    for percent in (80, 60, 40):
        budget = most * percent // 100
        for label, memory in (("offload", "{offload: auto, recompute: none}"), ("both", "{offload: auto}"), ("recompute", "{}")):
            made = compile(f"{label}-{percent}", f"memory: {memory}\n", "--memory", budget)
            if made:
                yield made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, "offload", arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        print(f"threads {arguments.threads}, {arguments.rounds} rounds, medians; price = step against the plain plan")
        print(f"{'plan':26} {'device MB':>9} {'host MB':>8} {'predicted us':>12} {'measured us':>12} {'price predicted':>15} {'measured':>9}")
        for case, (model, spec, data) in cases(folder).items():
            if arguments.cases and case not in arguments.cases:
                continue
            made = list(plans(folder, case, model, LOSS + ADAM + spec, arguments.threads))
            times = {label: [] for label, _, _ in made}
            for _ in range(arguments.rounds):
                for label, plan, report in made:
                    steps = max(10, min(200, int(1e6 / report["step_us"])))
                    times[label].append(sluice("train", plan, *data, "--steps", steps)["step_us_median"])
            base, base_us = made[0][2]["step_us"], statistics.median(times["plain"])
            for label, _, report in made:
                measured = statistics.median(times[label])
                print(f"{case + ' ' + label:26} {report['arena_bytes'] / 1e6:9.2f} {report['arena']['host'] / 1e6:8.2f} {report['step_us']:12.0f} "
                      f"{measured:12.0f} {report['step_us'] / base:15.2f} {measured / base_us:9.2f}")
                lines.add(f"{case}-f32/{label}", "step_us", report["step_us"], measured, peer_name="measured", peer_version=lines.commit,
                          ratio=report["step_us"] / measured, spread=[min(times[label]), max(times[label])],
                          device_bytes=report["arena_bytes"], host_bytes=report["arena"]["host"])


if __name__ == "__main__":
    main()
