#!/usr/bin/env python3
"""Prints what bench_planner measures as a table; with --out F appends one JSON object per line."""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys

# Wanted at most, from the design: seconds of one core.
LIMITS = {"decoder-3000": 2, "fan-out-10000": 60, "minimalloc": 60}


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    cases = {}
    for line in sys.stdin:
        name, metric, value = line.split()
        cases.setdefault(name, {})[metric] = float(value)
    print(f"{'case':26} {'seconds':>8} {'wanted':>7} {'gap %':>8}  other")
    for name, metrics in cases.items():
        other = ", ".join(f"{key} {value:g}" for key, value in metrics.items() if key not in ("seconds", "gap"))
        gap = f"{metrics['gap'] * 100:8.3f}" if "gap" in metrics else " " * 8
        print(f"{name:26} {metrics['seconds']:8.2f} {LIMITS.get(name, ''):>7} {gap}  {other}")
    if not arguments.out:
        return
    root = pathlib.Path(__file__).resolve().parent.parent
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    with open(arguments.out, "a") as file:
        for name, metrics in cases.items():
            for metric in ("seconds", "gap"):
                if metric in metrics:
                    peer = LIMITS.get(name) if metric == "seconds" else None
                    file.write(json.dumps({
                        "bench": "planner", "case": name, "metric": metric, "ours": metrics[metric], "peer": peer,
                        "peer_name": "wanted at most" if peer else None, "ratio": peer / metrics[metric] if peer else None,
                        "spread": [], "threads": 1, "commit": commit, "date": datetime.date.today().isoformat(), "cpu": cpu_name()}) + "\n")


if __name__ == "__main__":
    main()
