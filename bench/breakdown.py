#!/usr/bin/env python3
"""Where the time of a step goes, and what of it is lost, from a timeline of `sluice train --trace F.json`.

Per kind of kernel: milliseconds and share of a step, rates, and the milliseconds above what the same work takes at the best
rates that any launch of the same timeline reaches (flops and bytes are the compiler's counts; the slower of the two decides).
Launches are taken at their median over the steps. Usage: breakdown.py F.json [launches to name]
"""
import collections
import json
import statistics
import sys

KINDS = [
    ("convolutions", lambda op, nodes: op.startswith("conv")),
    ("products", lambda op, nodes: op.startswith("contract")),
    ("pooling", lambda op, nodes: "pool" in op),
    ("packing", lambda op, nodes: op == "pack"),
    ("data movement", lambda op, nodes: op.split("+")[0] in ("gather", "scatter_add", "transpose", "concat", "slice", "copy", "sum slices")),
    ("optimizer updates", lambda op, nodes: "normalize" in nodes),
    ("reductions, normalisation", lambda op, nodes: "reduce" in op),
    ("elementwise", lambda op, nodes: True),
]
LEAST_US = 20  # shorter launches say nothing about rates


def kind_of(name, node):
    return next(kind for kind, holds in KINDS if holds(name, node.split("+")))


def launches(path):
    """One entry per launch of the plan at its median over the steps (on the worker that began it), and per program the
    microseconds from one run to the next, and those of them in which worker 0 ran nothing."""
    events = [event for event in json.load(open(path))["traceEvents"] if event["ph"] == "X"]
    by_launch, runs = collections.defaultdict(list), []
    for event in sorted(events, key=lambda event: event["ts"]):
        by_launch[event["cat"], event["args"]["launch"]].append(event)
        if event["tid"] != 0:
            continue
        if event["args"]["launch"] == 0:
            runs.append([event["cat"], event["ts"], 0.0])
        if runs:
            runs[-1][2] += event["dur"]
    rows = []
    for (program, _), found in by_launch.items():
        own = [event for event in found if event["tid"] == found[0]["tid"]]
        name, args = found[0]["name"], found[0]["args"]
        rows.append({
            "program": program, "name": name, "node": args["node"], "kind": kind_of(name, args["node"]),
            "us": statistics.median(event["dur"] for event in own), "flops": args["flops"], "bytes": args["bytes"]})
    periods = collections.defaultdict(list)
    for (program, begin, busy), (_, end, _) in zip(runs, runs[1:]):
        periods[program].append((end - begin, end - begin - busy))
    return rows, {program: tuple(map(statistics.median, zip(*pairs))) for program, pairs in periods.items()}


def with_losses(rows):
    long = [row for row in rows if row["us"] >= LEAST_US] or rows
    flops_per_us = max(row["flops"] / row["us"] for row in long)
    bytes_per_us = max(row["bytes"] / row["us"] for row in long)
    for row in rows:
        ideal = max(row["flops"] / flops_per_us if flops_per_us else 0, row["bytes"] / bytes_per_us if bytes_per_us else 0)
        row["lost"] = max(0.0, row["us"] - ideal)
    return flops_per_us, bytes_per_us


def breakdown(path, named=5):
    rows, periods = launches(path)
    flops_per_us, bytes_per_us = with_losses(rows)
    total = sum(row["us"] for row in rows)
    lines = [f"    best rates of this timeline: {flops_per_us / 1e3:.1f} GFLOP/s, {bytes_per_us / 1e3:.1f} GB/s; launches together {total / 1e3:.2f} ms"]
    lines.append(f"    {'kind':26} {'ms':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>6} {'lost ms':>8}")
    kinds = collections.defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    for kind, members in sorted(kinds.items(), key=lambda item: -sum(row["us"] for row in item[1])):
        us = sum(row["us"] for row in members)
        rate = {key: sum(row[key] for row in members) / us / 1e3 for key in ("flops", "bytes")}
        lost = sum(row["lost"] for row in members)
        lines.append(f"    {kind:26} {us / 1e3:9.3f} {100 * us / total:5.1f}% {rate['flops']:8.1f} {rate['bytes']:6.1f} {lost / 1e3:8.3f}")
    for program, (us, idle) in periods.items():
        lines.append(f"    {'outside of launches':26} {idle / 1e3:9.3f} of {us / 1e3:.3f} ms from one '{program}' to what follows (data, controls, progress)")
    for row in sorted(rows, key=lambda row: -row["lost"])[:named]:
        lines.append(f"    lost {row['lost'] / 1e3:.3f} of {row['us'] / 1e3:.3f} ms: {row['name']} at {row['node'][:90]}")
    return lines


if __name__ == "__main__":
    print("\n".join(breakdown(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)))
