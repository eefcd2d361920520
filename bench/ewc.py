#!/usr/bin/env python3
"""What EWC costs: step time and bytes of a plan with it beside one without, in turns."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy as np

MODELS = {"mlp": "tests/models/mlp.onnx", "fashion-cnn": "examples/fashion-mnist/fashion-cnn.onnx"}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def compile_plan(sluice, folder, model, name, continual):
    spec = os.path.join(folder, name + ".yaml")
    with open(spec, "w") as out:
        out.write("shapes: {batch_size: 64}\nloss: {kind: cross_entropy, labels: labels}\noptimizer: {kind: adamw}\nthreads: 2\n")
        out.write(continual)
    plan = os.path.join(folder, name + ".plan")
    return plan, run(sluice, "compile", model, "--spec", spec, "-o", plan, "--json")


def step_us(sluice, plan, data, steps):
    return run(sluice, "train", plan, *data, "--steps", steps, "--json")["step_us_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sluice", default="build/tools/sluice")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = []
    rng = np.random.default_rng(0)
    for case, model in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            shape = (1024, 1, 28, 28)
            np.save(folder + "/x.npy", rng.standard_normal(shape).astype(np.float32))
            np.save(folder + "/y.npy", rng.integers(0, 10, 1024))
            names = run(arguments.sluice, "import", model, "--json")["inputs"]
            name = names[0]["name"] if isinstance(names[0], dict) else names[0]
            data = ["--data", f"{name}=npy:{folder}/x.npy", "--data", f"labels=npy:{folder}/y.npy"]
            plain, without = compile_plan(arguments.sluice, folder, model, "plain", "")
            held, with_ewc = compile_plan(arguments.sluice, folder, model, "ewc",
                                          "continual: {ewc: {lambda: 40, online: {gamma: 1}}}\n")
            times = {plain: [], held: []}
            for _ in range(arguments.rounds):
                for plan in (plain, held):
                    times[plan].append(step_us(arguments.sluice, plan, data, arguments.steps))
            before, after = (statistics.median(times[plan]) for plan in (plain, held))
            cost = statistics.median(b / a - 1 for a, b in zip(times[plain], times[held]))
            weights = without["arena"]["parameters"] / 4
            line = {"bench": "continual", "case": case + "/ewc-cost", "metric": "step_us", "ours": after, "peer": before,
                    "peer_name": "the same without EWC", "ratio": before / after, "cost": cost,
                    "bytes_per_parameter": with_ewc["arena"]["continual"] / weights,
                    "step_bytes_added": with_ewc["step_bytes"] - without["step_bytes"], "threads": 2}
            lines.append(line)
            print(f"{case}: {before:.0f} -> {after:.0f} us, {cost:+.1%}, {line['bytes_per_parameter']:.2f} bytes per parameter, "
                  f"step bytes {line['step_bytes_added']:+d}")
    if arguments.out:
        with open(arguments.out, "w") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
