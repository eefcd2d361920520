#!/usr/bin/env python3
"""What averaging K mini-batch gradients does to their variance on a deep Transformer, by interleaved updates and by plain accumulation.

At fixed weights, after a few updates: rho = tr Cov[what an update consumes] / tr Cov[one mini-batch gradient], of at least 64
independent updates, with a 95% interval (bootstrap over updates, of a sketch that keeps inner products). The design notes claim 1/8
on 256 layers. Beside it what that costs: rho * samples per update (1: no free lunch), the loss at equal tokens and at equal
wall-clock with the rate tuned per mode, the noise scale tr Cov / |G|^2 in mini-batches, and the largest / smallest RMS gradient of a
layer. Prints a table; with --out F appends one JSON object per line.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "cli"), str(ROOT / "examples" / "char-decoder")]
from lines import Lines  # noqa: E402

SLUICE = os.environ.get("SLUICE", str(ROOT / "build" / "tools" / "sluice"))
os.environ.setdefault("SLUICE_LIB", str(ROOT / "build" / "runtime" / "libsluice.so"))
SHARED = pathlib.Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
LENGTH, BATCH, SKETCH = 32, 4, 1 << 16
LOSS = "loss: {kind: cross_entropy, logits: logits, labels: labels}\nthreads: 1\nseed: 1\n"


def export(layers, width, path):
    """One block by PyTorch, repeated: tracing hundreds of them takes minutes."""
    import onnx
    import torch
    from onnx import numpy_helper
    from export import CharDecoder, export as to_onnx
    torch.manual_seed(0)
    to_onnx(CharDecoder(length=LENGTH, width=width, layers=1, heads=2), LENGTH, path)
    model = onnx.load(path)
    graph, random = model.graph, np.random.default_rng(0)
    nodes = list(graph.node)
    inside = [i for i, node in enumerate(nodes) if "blocks.0" in node.name]
    first, last = inside[0], inside[-1]
    block, made = nodes[first:last + 1], {name for node in nodes[first:last + 1] for name in node.output}
    entry = next(name for node in block for name in node.input if name in {out for node in nodes[:first] for out in node.output} and "ln1" in node.name)
    weights = [w for w in graph.initializer if "blocks.0." in w.name]
    x, repeated = block[-1].output[0], []
    for layer in range(1, layers):
        rename = {name: f"{name}/{layer}" for name in made} | {w.name: w.name.replace("blocks.0.", f"blocks.{layer}.") for w in weights} | {entry: x}
        for node in block:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = node.name.replace("blocks.0", f"blocks.{layer}")
            copy.input[:] = [rename.get(name, name) for name in node.input]
            copy.output[:] = [rename[name] for name in node.output]
            repeated.append(copy)
        x = rename[block[-1].output[0]]
    for node in nodes[last + 1:]:
        node.input[:] = [x if name == block[-1].output[0] else name for name in node.input]
    ordered = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes[:last + 1] + repeated + nodes[last + 1:]]
    del graph.node[:]
    graph.node.extend(ordered)
    for w in weights:  # as CharDecoder draws them
        value = numpy_helper.to_array(w)
        std = 0.02 / (math.sqrt(2 * layers) if "down" in w.name else 1)
        for layer in range(layers):
            drawn = random.normal(0, std, value.shape).astype(np.float32) if value.ndim == 2 else value
            name = w.name.replace("blocks.0.", f"blocks.{layer}.")
            if layer == 0:
                w.CopyFrom(numpy_helper.from_array(drawn, name))
            else:
                graph.initializer.append(numpy_helper.from_array(drawn, name))
    onnx.checker.check_model(model)
    onnx.save(model, path)


def tool(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def compiled(model, folder, name, text):
    spec, plan = folder / f"{name}.yaml", folder / f"{name}.plan"
    spec.write_text(f"shapes: {{batch: {BATCH}}}\n" + LOSS + text)
    tool("compile", model, "--spec", spec, "-o", plan)
    return plan


class Batches:
    """Windows of the text, drawn with replacement: independent mini-batches."""

    def __init__(self, seed):
        text = (SHARED / "data" / "tinyshakespeare.txt").read_text()
        letters = {c: i for i, c in enumerate(sorted(set(text)))}
        self.tokens = np.array([letters[c] for c in text], np.int64)
        self.random = np.random.default_rng(seed)

    def next(self):
        starts = self.random.integers(0, len(self.tokens) - LENGTH - 1, BATCH)
        rows = np.stack([self.tokens[s:s + LENGTH + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]


def parameters(state):
    """Names and shapes of a plan's parameters, from the header of its initial state."""
    with open(state, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    names = {name.removeprefix("param/"): entry["shape"] for name, entry in header.items() if name.startswith("param/")}
    return dict(sorted(names.items()))


class Gradients:
    """Mini-batch gradients at the weights of a session, as one vector each."""

    def __init__(self, session, names):
        self.session, self.names = session, names
        self.size = sum(math.prod(shape) for shape in names.values())

    def of(self, x, y):
        result = self.session.probe(x, y)
        parts = [self.session.output("grad/" + name).ravel() for name in self.names]
        return np.concatenate(parts).astype(np.float64) / result.loss_count


class Moments:
    """tr Cov of vectors that come one by one; and of a sketch of each, for intervals."""

    def __init__(self, size, seed=3):
        random = np.random.default_rng(seed)
        self.bucket = random.integers(0, SKETCH, size)
        self.sign = random.integers(0, 2, size) * 2.0 - 1
        self.sum, self.squares, self.sketches = np.zeros(size), 0.0, []

    def add(self, vector):
        self.sum += vector
        self.squares += vector @ vector
        self.sketches.append(np.bincount(self.bucket, weights=self.sign * vector, minlength=SKETCH))

    def trace(self):
        n = len(self.sketches)
        return (self.squares - self.sum @ self.sum / n) / (n - 1)

    def gram(self):
        all = np.stack(self.sketches)
        return all @ all.T

    def mean_square(self):
        """|E v|^2 without the bias of the noise."""
        n = len(self.sketches)
        return self.sum @ self.sum / n**2 - self.trace() / n


def trace_of(gram, chosen):
    n = len(chosen)
    part = gram[np.ix_(chosen, chosen)]
    return (np.trace(part) - part.sum() / n) / (n - 1)


def interval(single, averaged, draws=400):
    """95% of rho over resampled updates. An update drawn twice does not differ from itself: n / (n - 1) undoes that."""
    random = np.random.default_rng(7)
    a, b = single.gram(), averaged.gram()
    found = []
    for _ in range(draws):
        one, other = (random.integers(0, n, n) for n in (len(a), len(b)))
        found.append(trace_of(b, other) * len(b) / (len(b) - 1) / (trace_of(a, one) * len(a) / (len(a) - 1)))
    return [float(x) for x in np.percentile(found, [2.5, 97.5])]


def measure(session, names, batches, counts, updates):
    """Moments of single gradients and of means of K, at fixed weights; RMS per layer."""
    source = Gradients(session, names)
    single = Moments(source.size)
    averaged = {k: Moments(source.size) for k in counts}
    pending = {k: np.zeros(source.size) for k in counts}
    layers, sizes = {}, {}
    for step in range(max(counts) * updates):
        gradient = source.of(*batches.next())
        if step < 4 * updates:
            single.add(gradient)
        for k in counts:
            pending[k] += gradient
            if (step + 1) % k == 0:
                if len(averaged[k].sketches) < 2 * updates:
                    averaged[k].add(pending[k] / k)
                pending[k][:] = 0
        if step < updates:
            at = 0
            for name, shape in names.items():
                size, layer = math.prod(shape), name.rsplit(".", 1)[0]
                layers[layer] = layers.get(layer, 0) + float(gradient[at:at + size] @ gradient[at:at + size])
                sizes[layer] = sizes.get(layer, 0) + size * (step == 0)
                at += size
    rms = [math.sqrt(layers[layer] / updates / sizes[layer]) for layer in layers if layers[layer] > 0]
    return single, averaged, max(rms) / min(rms), (min(rms), max(rms))


def interleaved(model, folder, weights, k, updates, seed):
    """tr Cov of what a group's update consumes in a plan that interleaves: by plain descent at a rate of 1 the weights move by it
    exactly, and are put back after each step, so that they stay fixed."""
    from capi import Session
    plan = compiled(model, folder, f"interleave{k}", f"optimizer: {{kind: sgd, lr: 1.0}}\nupdate: {{grouping: {{count: {2 * k}}}, mode: {{interleave: {k}}}}}\n")
    session = Session(plan)
    for name, value in weights.items():
        session.write_parameter(name, value)
    size = sum(value.size for value in weights.values())
    moments, moved, batches = Moments(size), np.zeros(size), Batches(seed)
    for step in range(k * (updates + 1)):
        session.step(*batches.next())
        at = 0
        for name, value in weights.items():
            change = value - session.read_parameter(name, value.shape)
            if change.any():
                moved[at:at + value.size] = change.ravel()
                session.write_parameter(name, value)
            at += value.size
        if step >= k and (step + 1) % k == 0:
            moments.add(moved)
    session.close()
    return moments


def train(plan, steps):
    """Mean loss of the last fifth of the updates, and seconds of a micro-batch."""
    data = SHARED / "data" / "tinyshakespeare.txt"
    done = tool("train", plan, "--data", f"tokens=text:{data}", "--data", f"labels=text:{data},shift=1", "--steps", steps, "--losses", "--json")
    tail = done["losses"][-max(1, len(done["losses"]) // 5):]
    return sum(tail) / len(tail), done["step_us_median"] / 1e6


def losses(model, folder, modes, tokens, rates):
    """By mode: loss at equal micro-batches and at the time that plain training takes, each the best of the rates."""
    table, budget = {}, None
    for name, per_update, text in modes:
        best = None
        for rate in rates:
            plan = compiled(model, folder, name, f"optimizer: {{kind: adamw, lr: {rate}}}\nschedule: {{kind: constant, warmup_steps: 10}}\n" + text)
            loss, seconds = train(plan, max(1, tokens // per_update))
            if best is None or loss < best[0]:
                best = (loss, rate, seconds, plan)
        budget = budget or best[2] * tokens
        same, _ = train(best[3], max(1, round(budget / best[2])))
        table[name] = {"tokens": best[0], "time": same, "rate": best[1], "seconds": best[2] / per_update}
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=256)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--updates", type=int, default=64, help="independent ones, of each K")
    parser.add_argument("--tokens", type=int, default=240, help="micro-batches of a training for its loss; 0: none")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3])
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--no-interleave", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if not (SHARED / "data" / "tinyshakespeare.txt").exists():
        raise SystemExit(f"skipped: there is no {SHARED / 'data' / 'tinyshakespeare.txt'}")
    with tempfile.TemporaryDirectory() as place:
        run(arguments, pathlib.Path(place))


def run(arguments, folder):
    from capi import Session
    model = folder / "deep.onnx"
    export(arguments.layers, arguments.width, model)
    plan = compiled(model, folder, "probe", "optimizer: {kind: adamw, lr: 1.0e-3}\nentries: [step, eval, infer, probe]\n")
    names = parameters(plan.with_suffix(".safetensors"))
    session = Session(plan)
    batches = Batches(11)
    for _ in range(20):
        session.step(*batches.next())
    single, averaged, dispersion, ends = measure(session, names, batches, arguments.counts, arguments.updates)
    noise = single.trace() / max(single.mean_square(), 1e-300)
    print(f"{arguments.layers} layers of width {arguments.width}, batch {BATCH} x {LENGTH} tokens, {single.sum.size} parameters, after 20 updates")
    print(f"tr Cov of one mini-batch gradient {single.trace():.4g} ({len(single.sketches)} of them); noise scale {noise:.3g} mini-batches")
    print(f"RMS gradient of a layer: {ends[0]:.3g} to {ends[1]:.3g}, {dispersion:.3g} times\n")
    weights = {name: session.read_parameter(name, shape) for name, shape in names.items()}
    session.close()
    found = {}
    for k in arguments.counts:
        found[k] = {"plain": (averaged[k].trace() / single.trace(), interval(single, averaged[k]), len(averaged[k].sketches))}
        if not arguments.no_interleave:
            try:
                moments = interleaved(model, folder, weights, k, arguments.updates, 100 + k)
            except RuntimeError as error:
                print(f"interleave {k} is left out: {error}")
                arguments.no_interleave = True
                continue
            found[k]["interleave"] = (moments.trace() / single.trace(), interval(single, moments), len(moments.sketches))
    print(f"{'K':>2} {'':12} {'rho':>7} {'95%':>18} {'updates':>8} {'rho * K':>8}   the notes: 1/8 = 0.125 (by groups of 8)")
    for k, rows in found.items():
        for name, (rho, ends, count) in rows.items():
            print(f"{k:2} {name:12} {rho:7.4f} {f'[{ends[0]:.4f}, {ends[1]:.4f}]':>18} {count:8} {rho * k:8.3f}")
    table = {}
    if arguments.tokens:
        modes = [("plain", 1, "")]
        for k in arguments.counts:
            modes.append((f"accumulate-{k}", k, f"accumulate: {k}\n"))
            if not arguments.no_interleave:
                modes.append((f"interleave-{k}", 1, f"update: {{grouping: {{count: {2 * k}}}, mode: {{interleave: {k}}}}}\n"))
        table = losses(model, folder, modes, arguments.tokens, arguments.rates)
        print(f"\nlosses of {arguments.tokens} micro-batches, the last fifth; rates tried: {arguments.rates}")
        print(f"{'mode':14} {'equal tokens':>13} {'equal time':>11} {'rate':>8} {'ms / micro-batch':>17}")
        for name, row in table.items():
            print(f"{name:14} {row['tokens']:13.4f} {row['time']:11.4f} {row['rate']:8g} {row['seconds'] * 1e3:17.1f}")
    lines = Lines(arguments.out, "variance", 1)
    for k, rows in found.items():
        plain, (rho, ends, count) = rows["plain"], rows.get("interleave", rows["plain"])
        peer = plain[0] if "interleave" in rows else None  # accumulation is no peer of itself
        lines.add(f"k{k}", "ratio", rho, peer, peer_name=f"plain accumulation of {k}" if peer else None, ratio=peer / rho if peer else None, spread=ends,
                  mode="interleave" if peer else "accumulate", layers=arguments.layers, updates=count)
    lines.add("k1", "noise_scale", noise, None, layers=arguments.layers)
    lines.add("k1", "dispersion", dispersion, None, layers=arguments.layers)
    for name, row in table.items():
        lines.add(name, "loss_equal_tokens", row["tokens"], table["plain"]["tokens"], peer_name="an update per micro-batch", rate=row["rate"], layers=arguments.layers)
        lines.add(name, "loss_equal_time", row["time"], table["plain"]["time"], peer_name="an update per micro-batch", rate=row["rate"], layers=arguments.layers)


if __name__ == "__main__":
    main()
