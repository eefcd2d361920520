#!/usr/bin/env python3
"""BERT-large at sequence 512 and 1024, planning only: what recomputing saves of the activations, and which length fits in the
bytes that length 512 takes without it. No weights, no step is run.

    python3 bench/lengths.py [--batch 8] [--layers 24] [--points 6]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLUICE = ROOT / "build" / "tools" / "sluice"
SPEC = "loss: {{kind: cross_entropy, logits: logits, labels: labels}}\noptimizer: {{kind: adamw}}\nentries: [step]\nmemory: {{recompute: {recompute}}}\n"


def fit(model, folder, recompute, *options):
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.format(recompute=recompute))
    done = subprocess.run([SLUICE, "fit", model, "--spec", spec, *map(str, options), "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--points", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, ROOT / "examples" / "large-models" / "make.py", "bert-large", "-o", folder, "--layers", str(arguments.layers)],
                       check=True, stdout=subprocess.DEVNULL)
        model = folder / "bert-large.onnx"
        print(f"BERT-large, {arguments.layers} layers, batch {arguments.batch}; bytes of the step beside parameters and moments")
        print(f"{'length':>7} {'policy':>12} {'step bytes':>16} {'saved':>7} {'slower':>7}")
        most = {}
        for length in (512, 1024):
            sizes = ["--shape", f"batch={arguments.batch}", "--shape", f"sequence={length}", "--no-search"]
            auto = fit(model, folder, "auto", *sizes, "--points", arguments.points, "--memory", "1TiB")
            fastest = auto["curve"][-1]
            most[length] = fastest["budget_bytes"]
            free = fastest["budget_bytes"] - auto["state_bytes"]
            rows = [("keep all", fastest)]
            for policy in ("{every: 2}", "sqrt"):
                out = fit(model, folder, policy, *sizes, "--memory", "1TiB")
                rows.append((policy, out["curve"][-1]))
            rows += [("auto", point) for point in reversed(auto["curve"][:-1])]
            for policy, point in rows:
                used = point["budget_bytes"] - auto["state_bytes"]
                print(f"{length:7} {policy:>12} {used:16} {1 - used / free:7.1%} {point['step_us'] / fastest['step_us'] - 1:7.1%}")
        for policy in ("none", "auto"):
            out = fit(model, folder, policy, "--shape", f"batch={arguments.batch}", "--shape", "sequence=512", "--points", 0, "--memory", most[512])
            proved = "" if out["longest_sequence_proved"] else " (tried; more may fit)"
            print(f"longest sequence in the {most[512]} bytes of length 512 that keeps all, recompute {policy}: {out['longest_sequence']}{proved}")


if __name__ == "__main__":
    main()
