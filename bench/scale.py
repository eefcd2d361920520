#!/usr/bin/env python3
"""Planned memory of large models under formats of parameters, moments and activations, as one page of tables; no weight exists.

    python3 bench/scale.py [MODELS] [--out docs/precision-at-scale.md]

Each row is a `sluice fit`: every buffer of a training step placed. Beside it stand the closed forms. All figures are of one device.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from lines import ROOT

SLUICE = os.environ.get("SLUICE", ROOT / "build" / "tools" / "sluice")
MAKE = ROOT / "examples" / "large-models" / "make.py"
SPEED = 0.92  # the share of the speed that the design notes keep

SPEC = """loss: {kind: cross_entropy, logits: logits, labels: labels}
optimizer: {kind: adamw, lr: 3.0e-4, betas: [0.9, 0.95], weight_decay: 0.1}
entries: [step]
"""
MODELS = {
    "llama-65b": {"text": "a decoder of 65.3 billion parameters, one sequence of 2,048 tokens a device, 8 x a100-80", "shapes": {"batch": 1, "sequence": 2048}, "curve": False},
    "bert-large": {"text": "BERT-large, 32 sequences of 512 tokens, one a100-80", "shapes": {"batch": 32, "sequence": 512}},
    "resnet-152": {"text": "ResNet-152, 256 images of 224 x 224, one a100-80", "shapes": {"batch": 256}},
    "clip-l14": {"text": "a pair of encoders of the sizes of CLIP ViT-L/14, 128 images and texts, one a100-80", "shapes": {"batch": 128}},
}
# `curve`: with the price of recompute too, which takes longest. Bytes per parameter of (weights, gradients, masters, moments) in closed form, as matrices have them. Gradients: f32, where all are there at once.
INT8 = 2 * (1 + 4 / 256)
POLICIES = [
    {"name": "f32", "set": [], "closed": (4, 4, 0, 8)},
    {"name": "bf16, f32 master and moments", "set": ["precision.compute=amp_bf16", "precision.master=fp32"], "closed": (2, 4, 4, 8), "curve": True},
    {"name": "bf16 split, f32 moments", "set": ["precision.compute=amp_bf16"], "closed": (2, 4, 2, 8)},
    {"name": "bf16 split, bf16 moments", "set": ["precision.compute=amp_bf16", "precision.optimizer_state=bf16"], "closed": (2, 4, 2, 4)},
    {"name": "bf16 split, int8 moments", "set": ["precision.compute=amp_bf16", "precision.optimizer_state=int8"], "closed": (2, 4, 2, INT8), "curve": True},
    {"name": "mxfp8 weights, int8 moments", "set": ["precision.compute=amp_bf16", "precision.optimizer_state=int8", "precision.rules=[{match: \"*\", storage: mxfp8}]"],
     "closed": (1 + 1 / 32, 4, 0, INT8)},
    {"name": "half the bytes by size, int8 moments", "set": ["precision.compute=amp_bf16", "precision.optimizer_state=int8",
     "precision.policy={kind: size, budget: 0.5x, formats: [mxfp8, mxfp4]}"], "closed": (2, 4, 0, INT8)},
    {"name": "mxfp4 weights, int8 moments", "set": ["precision.compute=amp_bf16", "precision.optimizer_state=int8", "precision.rules=[{match: \"*\", storage: mxfp4}]"],
     "closed": (0.5 + 1 / 32, 4, 0, INT8), "curve": True},
]
SHARED = [{"name": f"{policy['name']}, zero: {zero}", "only": "llama-65b", "ranks": 8, "set": [*policy["set"], f"parallel.zero={zero}"],
           "closed": policy["closed"], "shares": True} for zero in (1, 2) for policy in (POLICIES[1], POLICIES[4])]
NOTES = {"name": "text fp16, image [fp8, fp16] (as the notes spell it)", "only": "clip-l14", "set": ["precision.compute=amp_fp16", "optim.group_size=6",
         "optim.precision_policy={text: fp16, image: [fp8, fp16]}"], "closed": None, "curve": True}


def run_fit(model, spec, settings, shapes, device, ranks, points):
    command = [str(SLUICE), "fit", str(model), "--spec", str(spec), "--device", device, "--no-search", "--points", str(points), "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    command += [part for name, size in shapes.items() for part in ("--shape", f"{name}={size}")]
    if ranks > 1:
        command += ["--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: does not fit
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def parts_of(fit):
    """Bytes of a plan that runs nothing again at its peak, by what they are for."""
    state, arena = fit["state"], fit["arena"]
    parts = {"weights": state.get("parameter", 0), "masters": state.get("master", 0), "moments": state.get("moment", 0)}
    parts["gradients"] = arena["gradients"]
    parts["activations"] = arena["activations"]
    parts["messages"] = arena["comm"]
    parts["workspace"] = fit["unconstrained_arena_bytes"] - sum(parts.values())
    return parts


def fastest_small(fit, speed):
    """The fewest bytes at that share of the speed of the plan that runs nothing again."""
    fastest = min(point["step_us"] for point in fit["curve"])
    return min((point for point in fit["curve"] if point["step_us"] <= fastest / speed), key=lambda point: point["budget_bytes"])


def gb(count):
    return f"{count / 1e9:.1f}" if count >= 1e9 else f"{count / 1e9:.2f}" if count >= 5e6 else "0"


COLUMNS = ["weights", "masters", "moments", "gradients", "activations", "messages", "workspace"]


def row_of(policy, fit, parameters):
    parts, small = parts_of(fit), fastest_small(fit, SPEED)
    closed = policy["closed"]
    weights, gradients, masters, moments = closed if closed else (None,) * 4
    each = 8 if policy.get("shares") else 1
    states = None if closed is None else (weights + (masters + moments) / each) * parameters
    return {"name": policy["name"], "parts": parts, "total": fit["unconstrained_arena_bytes"], "closed_states": states,
            "curve": len(fit["curve"]) > 1, "closed_gradients": None if closed is None else gradients * parameters, "states": sum(parts[k] for k in ("weights", "masters", "moments")),
            "small": small["budget_bytes"], "small_speed": min(p["step_us"] for p in fit["curve"]) / small["step_us"], "least": fit["smallest_budget_bytes"]}


def table(rows, peer):
    """Markdown; `peer`: the row that shares are of."""
    text = "| formats | " + " | ".join(COLUMNS) + " | total | of bf16 AMP | closed form of states | recomputing at >= 0.92 of the speed | of bf16 AMP | least |\n"
    text += "|---" * (len(COLUMNS) + 7) + "|\n"
    for row in rows:
        cells = [row["name"], *(gb(row["parts"][c]) for c in COLUMNS), f"**{gb(row['total'])}**", f"{row['total'] / peer['total']:.0%}",
                 "" if row["closed_states"] is None else gb(row["closed_states"]), *([gb(row["small"]), f"{row['small'] / peer['total']:.0%}", gb(row["least"])] if row["curve"] else ["", "", ""])]
        text += "| " + " | ".join(cells) + " |\n"
    return text


def elements_of(path):
    """Of the weights that train."""
    import onnx
    count = 0
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if not tensor.name.endswith(("running_mean", "running_var")):
            size = 1
            for dimension in tensor.dims:
                size *= dimension
            count += size
    return count


def plan_model(name, folder, policies, layers=None, device="a100-80", points=12, shapes=None, verbose=False):
    """Rows of the policies, and the number of parameters."""
    command = [sys.executable, str(MAKE), name, "-o", str(folder)] + (["--layers", str(layers)] if layers else [])
    subprocess.run(command, check=True, capture_output=True)
    model, spec = pathlib.Path(folder) / f"{name}.onnx", pathlib.Path(folder) / "spec.yaml"
    spec.write_text(SPEC)
    parameters, rows, known = elements_of(model), [], MODELS[name]
    for policy in policies:
        if policy.get("only", name) != name:
            continue
        if verbose:
            print(f"{name}: {policy['name']}", file=sys.stderr, flush=True)
        try:
            settings = policy["set"]
            if not (policy.get("curve") and known.get("curve", True)):
                settings = [*settings, "memory.recompute=none"]
            fit = run_fit(model, spec, settings, shapes or known["shapes"], device, policy.get("ranks", 1), points)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            rows.append({"name": policy["name"], "refused": str(error).splitlines()[-1]})
            continue
        rows.append(row_of(policy, fit, parameters))
    return rows, parameters


def section(name, rows, parameters):
    planned = [row for row in rows if "refused" not in row]
    peer = next(row for row in planned if row["name"] == POLICIES[1]["name"])
    text = f"## {name}\n\n{MODELS[name]['text'][0].upper() + MODELS[name]['text'][1:]}; {parameters / 1e9:.2f} billion parameters. GB (1e9 bytes) of one device.\n\n"
    text += table(planned, peer)
    for row in rows:
        if "refused" in row:
            text += f"\nNot planned: {row['name']}: {row['refused']}\n"
    best = min((row for row in planned if row["curve"]), key=lambda row: row["small"], default=None)
    if best and best["small"] < 0.99 * best["total"]:
        text += (f"\nThe smallest at {SPEED} of the speed or more: {best['name']}, {gb(best['small'])} GB, {1 - best['small'] / peer['total']:.0%} less than bf16 with f32 masters and "
                 f"moments that recomputes nothing ({gb(peer['total'])} GB).\n")
    if name == "llama-65b":
        text += claim_65b(planned, peer, parameters)
    if name == "clip-l14":
        text += claim_clip(planned, peer)
    return text


def claim_65b(rows, peer, parameters):
    per = [count * 1e9 / parameters for count in (320, 192)]
    states = sum(POLICIES[1]["closed"]) * parameters
    shared = "".join(f"| {row['name']} | {gb(row['states'])} | {gb((row['closed_states'] + row['closed_gradients']) / 8)} |\n" for row in rows if row["closed_states"] and "zero" not in row["name"])
    return f"""
The notes claim 320 GB cut to 192 GB (-40%) for this size. 320 GB are {per[0]:.1f} bytes a parameter and 192 GB {per[1]:.2f}. Weights, f32 gradients, masters and moments under bf16
AMP with Adam are {states / 1e9:.0f} GB in closed form, {states / parameters:.0f} bytes a parameter, so neither number can be that of a full training state, on one device or summed over eight: 320 GB hold bf16 weights
and bf16 gradients (4 bytes a parameter, {4 * parameters / 1e9:.0f} GB) and {320 - 4 * parameters / 1e9:.0f} GB of activations with the optimizer elsewhere; 192 GB hold weights of one byte and gradients of two ({3 * parameters / 1e9:.0f} GB). What the claim can
mean is a ratio of total planned peaks, and those are in the table. Eight ranks that each hold all weights (data parallel) do not fit in 80 GB each under any row: bf16 weights alone are 131 GB, and `zero: 1` and `2` share out only the rest. Shared out
evenly over eight devices, weights, gradients, masters and moments would take, in closed form (sharing out weights is not built yet):

| formats | states of one device, GB, as planned | everything shared out over 8 devices, GB, closed form |
|---|---|---|
{shared}"""


def claim_clip(rows, peer):
    states = peer["states"] / peer["total"]
    text = (f"\nThe notes claim 48 GB cut to 29 GB (-40%) for a CLIP with `group_size: 6` and `precision_policy: {{text: fp16, image: [fp8, fp16]}}`. Weights, masters and moments are only {states:.0%} of the plan of bf16 "
            f"AMP at this batch, so no format of weights can cut it by 40%, and grouping updates changes no byte of state: the cut can only come from activations, by recompute or fewer bits there.")
    for row in rows:
        if row["name"] == NOTES["name"]:
            text += f" With the notes' spelling the plan takes {gb(row['total'])} GB, {1 - row['total'] / peer['total']:.0%} less, of which {row['parts']['activations'] / row['total']:.0%} are activations"
            text += f"; with recompute at {SPEED} of the speed or more {gb(row['small'])} GB, {1 - row['small'] / peer['total']:.0%} less." if row["curve"] else "."
    if peer["curve"]:
        if peer["small"] < 0.99 * peer["total"]:
            text += f" Recompute alone, at {SPEED} of the speed or more and with the same bits, takes {gb(peer['small'])} GB ({1 - peer['small'] / peer['total']:.0%} less)."
        text += f" Recompute alone, with the same bits, can go down to {gb(peer['least'])} GB, {1 - peer['least'] / peer['total']:.0%} less."
    return text + "\n"


HEAD = """# Precision at scale

Plans of large models without weights: every buffer of a training step placed by `sluice fit`, with the rates of the profile `a100-80` and the workspaces of the CPU kernels (kernels for GPUs are not built yet).
Nothing here has run. Made by `{command}` with sluice {version}; not part of the tests, since it takes about {minutes:.0f} minutes.

- `weights`, `masters`, `moments`: state. bf16 split is a bf16 weight with the 16 bits that complete it to an f32; weights in mxfp8 and mxfp4 have no master and are rounded stochastically.
- `gradients`, `activations`, `messages`, `workspace`: at the peak of the step that recomputes nothing. Gradients are f32 and are consumed by updates inside the backward pass where nothing (clipping, accumulation,
  ranks) needs all of them at once.
- The columns of recompute are empty where its price was not searched, which takes longest.
- `closed form of states`: bytes a parameter of weights, masters and moments times parameters. The table of bytes a parameter in closed form:

{closed}
Vectors, small tensors and embeddings keep f32 moments, so plans are slightly above the closed forms.

"""


def closed_table():
    text = "| formats | weights | masters | moments | sum | with f32 gradients all at once |\n|---|---|---|---|---|---|\n"
    for policy in POLICIES:
        weights, gradients, masters, moments = policy["closed"]
        text += f"| {policy['name']} | {weights:.4g} | {masters:.4g} | {moments:.4g} | {weights + masters + moments:.4g} | {weights + masters + moments + gradients:.4g} |\n"
    return text + "\n"


def main():
    import time
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--out", help="a Markdown file")
    parser.add_argument("--layers", type=int, help="fewer than the models have, for a quick look")
    parser.add_argument("--points", type=int, default=12, help="plans between the smallest and the fastest")
    arguments = parser.parse_args()
    start, sections = time.time(), []
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"unknown model '{name}', expected {', '.join(MODELS)}")
        with tempfile.TemporaryDirectory() as folder:
            rows, parameters = plan_model(name, folder, [*POLICIES, *SHARED, NOTES], arguments.layers, points=arguments.points, verbose=True)
        sections.append(section(name, rows, parameters))
        print(sections[-1], flush=True)
    if arguments.out:
        version = subprocess.run([str(SLUICE), "--version"], capture_output=True, text=True).stdout.split()[-1]
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        head = HEAD.format(command="python3 bench/scale.py --out docs/precision-at-scale.md", version=f"{version} ({commit})", minutes=max(1, (time.time() - start) / 60), closed=closed_table())
        pathlib.Path(arguments.out).write_text(head + "\n".join(sections))


if __name__ == "__main__":
    main()
