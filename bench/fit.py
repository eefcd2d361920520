#!/usr/bin/env python3
"""How long `sluice fit` takes for models of billions of parameters, and what it answers; weights are never there.

Seconds are of the processors, whatever else runs. With --out F appends one JSON object per line.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

from lines import ROOT, Lines

SLUICE = os.environ.get("SLUICE", ROOT / "build" / "tools" / "sluice")
LARGE = ROOT / "examples" / "large-models"
WANTED = {"llama-7b": 60}  # seconds at most


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["llama-7b", "llama-65b"])
    parser.add_argument("--device", default="b200")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, "planner", 1)
    print(f"{'model':12} {'seconds':>8} {'resident MB':>11} {'all GiB':>8} {'least GiB':>9} {'fits':>5} {'batch':>6} {'sequence':>8}")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, LARGE / "make.py", name, "-o", folder], check=True, capture_output=True)
            command = [SLUICE, "fit", pathlib.Path(folder) / f"{name}.onnx", "--spec", LARGE / "train.yaml", "--device", arguments.device, "--json"]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 3):  # 3: does not fit
            sys.exit(done.stderr)
        fit = json.loads(done.stdout)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{name:12} {seconds:8.1f} {after.ru_maxrss / 1e3:11.0f} {fit['unconstrained_arena_bytes'] / 2**30:8.1f} "
              f"{fit['smallest_budget_bytes'] / 2**30:9.1f} {str(fit['fits']):>5} {fit['largest_batch'] or '-':>6} {fit['longest_sequence'] or '-':>8}", flush=True)
        peer = WANTED.get(name)
        lines.add(f"fit-{name}-{arguments.device}", "seconds", seconds, peer, peer_name="wanted at most" if peer else None,
                  ratio=peer / seconds if peer else None, spread=[])


if __name__ == "__main__":
    main()
