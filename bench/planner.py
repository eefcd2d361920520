#!/usr/bin/env python3
"""Prints what bench_planner measures as a table; with --out F appends one JSON object per line."""
import argparse
import sys

from lines import Lines

# Wanted at most, from the design: seconds of one core.
LIMITS = {"decoder-3000": 2, "fan-out-10000": 60, "minimalloc": 60, "grouping-3000": 0.05}


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
        print(f"{name:26} {metrics['seconds']:8.3f} {LIMITS.get(name, ''):>7} {gap}  {other}")
    lines = Lines(arguments.out, "planner", 1)
    for name, metrics in cases.items():
        for metric in ("seconds", "gap"):
            if metric in metrics:
                peer = LIMITS.get(name) if metric == "seconds" else None
                lines.add(name, metric, metrics[metric], peer, peer_name="wanted at most" if peer else None,
                          ratio=peer / metrics[metric] if peer else None, spread=[])


if __name__ == "__main__":
    main()
