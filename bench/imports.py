#!/usr/bin/env python3
"""Certified gaps and placement of plans for every imported model that trains.

`fit` finds the smallest plan of a model; then it is compiled without a budget and at 20, 40, 60 and 80% of the room between that plan and keeping
everything. Prints a table: gap of the predicted time to its bound, and the step reservation over the most that is live at once; with --out F appends
one JSON object per line. Nothing runs.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from lines import ROOT, Lines

SLUICE = os.environ.get("SLUICE", ROOT / "build" / "tools" / "sluice")
SHARED = pathlib.Path(os.environ.setdefault("SLUICE_SHARED", str(ROOT.parent / "shared")))
os.environ.setdefault("SLUICE", str(SLUICE))
sys.path.insert(0, str(ROOT / "tests" / "models" / "zoo"))
import test_shared  # noqa: E402

SHARES = (20, 40, 60, 80)


def sluice(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments), "--json"], capture_output=True, text=True)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr.strip()


class Study:
    def __init__(self, folder, threads, lines):
        self.plan, self.spec, self.threads, self.lines = folder / "model.plan", folder / "model.yaml", threads, lines

    def options(self, model):
        return [model, "--spec", self.spec, "--threads", self.threads]

    def compiled(self, model, budget):
        memory = ["--memory", budget] if budget else []
        report, errors = sluice("compile", *self.options(model), *memory, "-o", self.plan)
        if report is None:
            return None, errors
        entries, errors = sluice("explain", self.plan)
        return (report, {entry["name"]: entry for entry in entries["entries"]}), errors

    def run(self, name, first_lines, output):
        model = SHARED / "models" / name
        self.spec.write_text(test_shared.spec_of(first_lines, output))
        fit, errors = sluice("fit", *self.options(model), "--no-search", "--points", 0)
        if fit is None:
            return print(f"{name}: {errors}")
        least, most = fit["smallest_budget_bytes"], fit["unconstrained_arena_bytes"]
        cells = []
        for share in (*SHARES, None):
            if share and least == most:
                continue
            made, errors = self.compiled(model, least + (most - least) * share // 100 if share else None)
            if made is None:
                return print(f"{name} at {share}%: {errors}")
            report, entries = made
            case = f"{name}/{share}%" if share else name
            placed = max((entry["step_bytes"] / max(1, entry["step_bytes_bound"]) for entry in entries.values()), default=1)
            self.lines.add(case, "peak_ratio", placed, None, spread=[], bytes=report["arena_bytes"])
            self.lines.add(case, "gap", report["gap"], None, spread=[], step_us=report["step_us"], budget_bytes=report["budget_bytes"])
            cells.append(f"{100 * report['gap']:6.2f} {placed:7.4f}" if share else f"{placed:7.4f}")
        print(f"{name:42} {most / 1e6:9.2f} {least / most:6.2f}   " + "   ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(pathlib.Path(folder), arguments.threads, Lines(arguments.out, "planner", arguments.threads))
        print(f"{'model':42} {'all MB':>9} {'least':>6}   " + "   ".join(f"{share:>3}%: gap peak" for share in SHARES) + "   kept: peak")
        for name, (first_lines, output) in {**test_shared.TRAINED, **test_shared.COMPILED}.items():
            if not arguments.models or any(part in name for part in arguments.models):
                study.run(name, first_lines, output)


if __name__ == "__main__":
    main()
