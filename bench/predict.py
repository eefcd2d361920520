#!/usr/bin/env python3
"""What `compile` predicts with the profile of `calibrate` against what `train` measures, per model.

Prints a table; with --out F appends one JSON object per line. Calibration and measurements take turns, since the speed of
a shared machine drifts: each round calibrates, and a case's figures are medians over the rounds.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import step  # noqa: E402
from lines import Lines  # noqa: E402


def sluice(*arguments):
    return json.loads(subprocess.run([step.SLUICE, *map(str, arguments), "--json"], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["mlp", "fashion-cnn", "char-decoder", "gpt2-124m-b4t64"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of calibrating each network")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for case in arguments.cases:
            torch.manual_seed(0)
            (root / case).mkdir()
            step.prepare(case, *step.CASES[case](), root / case, arguments.threads)
        predicted, measured = {case: [] for case in arguments.cases}, {case: [] for case in arguments.cases}
        for _ in range(arguments.rounds):
            profile = root / "here.yaml"
            sluice("calibrate", "--threads", arguments.threads, "--seconds", arguments.seconds, "-o", profile)
            for case in arguments.cases:
                folder = root / case
                plan = folder / f"{case}.plan"
                report = sluice("compile", folder / f"{case}.onnx", "--spec", folder / f"{case}.yaml", "--device", profile, "-o", plan)
                predicted[case].append(report["step_us"])
                steps = max(5, min(200, int(1.5e6 / report["step_us"])))
                measured[case].append(step.run_sluice(plan, folder, steps)["step_us_median"])
    lines = Lines(arguments.out, "predict", arguments.threads)
    print(f"threads {arguments.threads}, {arguments.rounds} rounds, medians")
    print(f"{'case':22} {'predicted ms':>12} {'measured ms':>12} {'predicted / measured':>21}")
    for case in arguments.cases:
        ours, peer = statistics.median(predicted[case]), statistics.median(measured[case])
        print(f"{case:22} {ours / 1e3:12.2f} {peer / 1e3:12.2f} {ours / peer:21.2f}")
        ratios = [p / m for p, m in zip(predicted[case], measured[case])]
        lines.add(f"{case}-f32", "step_us", ours, peer, peer_name="measured", peer_version=lines.commit, ratio=ours / peer, spread=[min(ratios), max(ratios)])


if __name__ == "__main__":
    main()
