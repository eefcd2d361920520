#!/usr/bin/env python3
"""What fewer bits and less memory cost: planned peak, accuracy or loss, and speed of whole trainings, over several seeds.

The peer is bf16 AMP with f32 masters and moments that recomputes nothing. Ours have int8 moments, split masters, a budget of memory
met by recompute (the smallest that can be met, where the one wanted cannot), and from there on stored formats by importance (`sluice
probe`), by size, and at random, at the same bytes.
Losses do not depend on what else runs, times do: --losses takes no times; --speed-only takes times alone, of few steps, plans in turns,
for a machine that has nothing else to do (the policies by importance are probed after a few steps then).
Prints a table; with --out F appends one JSON object per line. Short trainings: the figures tell formats apart, they are no records.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lines import ROOT, Lines  # noqa: E402

SLUICE = os.environ.get("SLUICE", ROOT / "build" / "tools" / "sluice")
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
SHARED = pathlib.Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}  # 95%, by number of seeds

SPECS = {
    "fashion-cnn": "shapes: {{batch: 64}}\nseed: {seed}\ninit: {{from: kaiming}}\nloss: {{kind: cross_entropy, logits: logits, labels: labels}}\n"
                   "optimizer: {{kind: adamw, lr: 2.0e-3, weight_decay: 0.01}}\nschedule: {{kind: cosine, warmup_steps: 50, total_steps: {steps}}}\n",
    "vit-tiny": "seed: {seed}\ninit: {{rules: [{{match: '*weight', from: xavier}}]}}\nloss: {{kind: cross_entropy, logits: logits, labels: labels}}\n"
                "optimizer: {{kind: adamw, lr: 1.0e-3, weight_decay: 0.05}}\nschedule: {{kind: cosine, warmup_steps: 50, total_steps: {steps}}}\n",
    "char-decoder": "shapes: {{batch: 16}}\nseed: {seed}\ninit: {{rules: [{{match: '*weight', normal: 0.02}}]}}\nloss: {{kind: cross_entropy, logits: logits, labels: labels}}\n"
                    "optimizer: {{kind: adamw, lr: 2.0e-3, betas: [0.9, 0.99], weight_decay: 0.1}}\nschedule: {{kind: cosine, warmup_steps: 50, total_steps: {steps}}}\n",
}
STEPS = {"fashion-cnn": 1500, "vit-tiny": 600, "char-decoder": 500}

PEER = "bf16, f32 master and moments"
INT8 = "compute: amp_bf16, optimizer_state: int8"
# Name, precision, share of the peer's planned peak that is the memory budget. With `speed: 0.01` the policy's own bytes hold, however much runs again.
POLICIES = [
    (PEER, "compute: amp_bf16, master: fp32", None),
    ("f32", "compute: fp32", None),
    ("split, int8 moments", INT8, None),
    ("split, int8 moments, recompute", INT8, 0.6),
    ("importance 0.5x", INT8 + ", policy: {{kind: importance, from: {probe}, budget: 0.5x, speed: 0.01}}", 0.6),
    ("size 0.5x", INT8 + ", policy: {{kind: size, budget: 0.5x, speed: 0.01}}", 0.6),
    ("random 0.5x", INT8 + ", policy: {{kind: random, budget: 0.5x, speed: 0.01}}", 0.6),
    ("importance 0.3x", INT8 + ", policy: {{kind: importance, from: {probe}, budget: 0.3x, speed: 0.01}}", 0.5),
    ("size 0.3x", INT8 + ", policy: {{kind: size, budget: 0.3x, speed: 0.01}}", 0.5),
    ("random 0.3x", INT8 + ", policy: {{kind: random, budget: 0.3x, speed: 0.01}}", 0.5),
    ("importance 0.2x", INT8 + ", policy: {{kind: importance, from: {probe}, budget: 0.2x, speed: 0.01}}", 0.4),
]


def vit(path):
    """Width 64, four heads, four layers; 7 x 7 patches of 4."""
    import importlib.util

    import torch
    spec = importlib.util.spec_from_file_location("vision", ROOT / "tests/models/zoo/vision.py")
    vision = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vision)
    model = vision.Vit(64, 4, 4, 49)
    model.patch = torch.nn.Conv2d(1, 64, 4, 4)
    torch.onnx.export(model.train(), (torch.rand(64, 1, 28, 28),), str(path), input_names=["images"], output_names=["logits"],
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17)


def fashion(part):
    return [f"images=idx:{FASHION}/{part}-images-idx3-ubyte.gz,scale=1/255", f"labels=idx:{FASHION}/{part}-labels-idx1-ubyte.gz"]


class Case:
    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.model = {"fashion-cnn": ROOT / "examples/fashion-mnist/fashion-cnn.onnx", "char-decoder": ROOT / "examples/char-decoder/char-decoder.onnx",
                      "vit-tiny": folder / "vit.onnx"}[name]
        if name == "vit-tiny":
            vit(self.model)
        if name == "char-decoder":
            text = (SHARED / "data/tinyshakespeare.txt").read_text()
            cut = len(text) * 9 // 10
            letters = "".join(sorted(set(text)))  # the same ids in both parts
            (folder / "train.txt").write_text(letters + text[:cut])
            (folder / "test.txt").write_text(letters + text[cut:cut + 60000])
            self.train_data, self.test_data = ([f"tokens=text:{folder}/{part}.txt", f"labels=text:{folder}/{part}.txt,shift=1"] for part in ("train", "test"))
        else:
            self.train_data, self.test_data = fashion("train"), fashion("t10k")

    def run(self, *arguments):
        done = subprocess.run([str(SLUICE), *map(str, arguments), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, arguments))}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    @staticmethod
    def data(items):
        return [part for item in items for part in ("--data", item)]

    def compile(self, precision, seed, memory, steps, threads, name, entries="step, eval"):
        spec, plan = self.folder / f"{name}.yaml", self.folder / f"{name}.plan"
        spec.write_text(SPECS[self.name].format(seed=seed, steps=steps) + f"threads: {threads}\nentries: [{entries}]\nprecision: {{{precision}}}\n")
        command = ["compile", self.model, "--spec", spec, "-o", plan]
        if not memory:
            return plan, self.run(*command)
        try:
            return plan, self.run(*command, "--memory", int(memory))
        except RuntimeError as error:
            least = re.search(r"smallest that can be met is (\d+) bytes", str(error))
            if not least:
                raise
        return plan, self.run(*command, "--memory", least[1])

    def probe(self, seed, steps, threads):
        """Importance after a fifth of a training in the peer's form."""
        plan, _ = self.compile(POLICIES[0][1], seed, None, steps, threads, "probed", "step, eval, probe")
        self.run("train", plan, *self.data(self.train_data), "--steps", steps // 5, "--checkpoint", self.folder / f"probed{seed}")
        out = self.folder / f"probe{seed}.safetensors"
        self.run("probe", plan, *self.data(self.train_data), "--checkpoint", self.folder / f"probed{seed}", "--samples", 256, "-o", out)
        return out

    def train(self, plan, steps, name):
        run = self.folder / name
        out = self.run("train", plan, *self.data(self.train_data), "--steps", steps, "--checkpoint", run)
        measured = self.run("eval", plan, *self.data(self.test_data), "--checkpoint", run)
        return {"loss": measured["loss"], "accuracy": measured.get("accuracy"), "step_us": out["step_us_median"]}

    def time(self, plans, rounds=5, steps=12):
        """The fastest median of a few steps, plans in turns: other programs make times longer, never shorter."""
        best = {}
        for _ in range(rounds):
            for name, plan in plans.items():
                us = self.run("train", plan, *self.data(self.train_data), "--steps", steps)["step_us_median"]
                best[name] = min(us, best.get(name, us))
        return best


def interval(values):
    """Mean and half the width of its 95% interval."""
    if len(values) < 2:
        return values[0], float("nan")
    return statistics.mean(values), STUDENT.get(len(values), 2.0) * statistics.stdev(values) / math.sqrt(len(values))


def measure(case, seeds, steps, threads, names, trains=True, times=True):
    """By policy: peak bytes, by seed what training gives, and times."""
    results, memory, plans = {}, None, {}
    for seed in seeds:
        probe = case.probe(seed, steps if trains else 40, threads)
        for name, precision, share in POLICIES:
            if name not in names and name != PEER:
                continue
            try:
                # One launch of the CNN needs most of its peak: what formats save there is seen without a budget.
                share = None if case.name == "fashion-cnn" and "x" in name.split()[-1] else share
                plan, report = case.compile(precision.format(probe=probe), seed, share and share * memory, steps, threads, f"{file_name(name)}-{seed}")
                if name == PEER:
                    memory = report["arena_bytes"]
                trained = case.train(plan, steps, f"{file_name(name)}-{seed}-run") if trains else None
                plans.setdefault(name, plan)
            except RuntimeError as error:
                print(f"  {name}: {error}", file=sys.stderr)
                continue
            entry = results.setdefault(name, {"bytes": [], "predicted_us": [], "runs": [], "notes": report["notes"]})
            entry["bytes"].append(report["arena_bytes"])
            entry["predicted_us"].append(report["step_us"])
            if trained:
                entry["runs"].append(trained)
            print(f"  seed {seed} {name}: {report['arena_bytes']} bytes, {trained}", file=sys.stderr, flush=True)
    for name, us in (case.time(plans) if times else {}).items():
        results[name]["step_us"] = us
    return results


def show_speed(case, results, lines):
    peer = results[PEER]
    print(f"{case.name}: the fastest median of a few steps, plans in turns")
    print(f"{'formats':34} {'peak MB':>8} {'of peer':>8} {'step us':>9} {'speed':>7} {'predicted':>9}")
    for name, entry in results.items():
        speed = peer["step_us"] / entry["step_us"]
        predicted = peer["predicted_us"][0] / entry["predicted_us"][0]
        size, ratio = entry["bytes"][0] / 1e6, entry["bytes"][0] / peer["bytes"][0]
        print(f"{name:34} {size:8.2f} {ratio:8.2f} {entry['step_us']:9.0f} {speed:7.2f} {predicted:9.2f}", flush=True)
        lines.add(case.name, "speed_ratio", speed, 1, predicted=predicted, formats=name, peer_name=PEER)


def file_name(policy):
    return policy.replace(" ", "-").replace(",", "")


def show(case, results, lines, seeds):
    peer = results[PEER]
    kind = "accuracy" if peer["runs"][0]["accuracy"] is not None and case.name != "char-decoder" else "loss"
    print(f"{case.name}, {len(seeds)} seeds; lost: {'points of accuracy' if kind == 'accuracy' else 'nats'} against the peer, pairs of seeds, 95% interval")
    print(f"{'formats':34} {'peak MB':>8} {'of peer':>8} {kind:>9} {'lost':>18} {'speed':>7} {'predicted':>9}")
    for name, entry in results.items():
        count = len(entry["runs"])
        sign, scale = (-1, 100) if kind == "accuracy" else (1, 1)
        lost = [sign * scale * (mine[kind] - theirs[kind]) for mine, theirs in zip(entry["runs"], peer["runs"])]
        mean, half = interval(lost)
        ratio = statistics.mean(entry["bytes"]) / statistics.mean(peer["bytes"])
        speed = peer["step_us"] / entry["step_us"] if "step_us" in entry else float("nan")
        predicted = statistics.mean(peer["predicted_us"]) / statistics.mean(entry["predicted_us"])
        value = statistics.mean(r[kind] for r in entry["runs"])
        print(f"{name:34} {statistics.mean(entry['bytes']) / 1e6:8.2f} {ratio:8.2f} {value:9.4f} {mean:9.3f} +- {half:6.3f} {speed:7.2f} {predicted:9.2f}", flush=True)
        points, width = interval([100 * (theirs["accuracy"] - mine["accuracy"]) for mine, theirs in zip(entry["runs"], peer["runs"])])
        more = {"formats": name, "seeds": count, "peer_name": PEER}
        lines.add(case.name, "peak_ratio", ratio, 1, **more)
        lines.add(case.name, "points_lost", points, 0, interval=width, **more)
        if kind == "loss":
            lines.add(case.name, "nats_lost", mean, 0, interval=half, **more)
        if "step_us" in entry:
            lines.add(case.name, "speed_ratio", speed, 1, predicted=predicted, **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(SPECS), metavar="CASE")
    parser.add_argument("--out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, help="instead of each case's own")
    parser.add_argument("--policies", nargs="*", default=[name for name, _, _ in POLICIES])
    parser.add_argument("--losses", action="store_true", help="take no times")
    parser.add_argument("--speed-only", action="store_true", help="take times alone, with one seed")
    arguments = parser.parse_args()
    if arguments.losses and arguments.speed_only:
        parser.error("--losses and --speed-only leave nothing to measure")
    lines = Lines(arguments.out, "precision", arguments.threads)
    for name in arguments.cases:
        if name not in SPECS:
            parser.error(f"unknown case '{name}', expected {', '.join(SPECS)}")
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, pathlib.Path(folder))
            seeds = list(range(1, arguments.seeds + 1))
            steps = arguments.steps or STEPS[name]
            if arguments.speed_only:
                show_speed(case, measure(case, seeds[:1], steps, arguments.threads, arguments.policies, trains=False), lines)
                continue
            results = measure(case, seeds, steps, arguments.threads, arguments.policies, times=not arguments.losses)
            show(case, results, lines, seeds)


if __name__ == "__main__":
    main()
