#!/usr/bin/env python3
"""Learning tasks one after the other: what is left of the first ones, beside a PyTorch program of the same method.

Both sides begin with the same weights and see the same samples of each task; the order within an epoch is each side's own.
  permuted-fashion   seven permutations of the pixels of Fashion-MNIST, ten classes, one head
  split-fashion, split-digits   five tasks of two classes, one head of ten; `acc` over all classes, `acc_task` among those of the task
  credit             six cohorts of UCI_Credit_Card.csv, from high to low limits: AUC, and recall at 10% false alarms, of the first one

Prints a table (mean over seeds; with --out F appends one JSON object per line). Run with the environment that has PyTorch:
  .venv-bench/bin/python bench/continual.py --seeds 3 --out bench/results/continual.jsonl
"""
import argparse
import gzip
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lines import ROOT, Lines  # noqa: E402

SLUICE = os.environ.get("SLUICE", str(ROOT / "build" / "tools" / "sluice"))
SHARED = pathlib.Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared"))
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
DIGITS = pathlib.Path("/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz")
BATCH = 64
# Hidden sizes, updates per task, rate, classes' weights; lambda of EWC and samples of the buffer by case.
CASES = {
    "permuted-fashion": dict(hidden=(100, 100), steps=300, lr=3e-3, weights=None, ewc=5000.0, buffer=500),
    "split-fashion": dict(hidden=(100, 100), steps=150, lr=1e-3, weights=None, ewc=20000.0, buffer=500),
    "split-digits": dict(hidden=(64,), steps=200, lr=1e-3, weights=None, ewc=20000.0, buffer=200),
    "credit": dict(hidden=(64, 64), steps=300, lr=1e-3, weights=(1.0, 3.0), ewc=100000.0, buffer=500),
}
METHODS = {"permuted-fashion": ["fine-tuning", "ewc"], "split-fashion": ["fine-tuning", "ewc", "er", "derpp"],
           "split-digits": ["fine-tuning", "ewc", "er", "derpp"], "credit": ["fine-tuning", "ewc", "er", "ewc+er"]}
RATIO, ALPHA, BETA = 0.5, 0.5, 1.0


def idx(name):
    data = gzip.open(FASHION / name).read()
    rank = data[3]
    shape = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def fashion():
    return [(idx(f"{part}-images-idx3-ubyte.gz").reshape(-1, 784).astype(np.float32) / 255,
             idx(f"{part}-labels-idx1-ubyte.gz").astype(np.int64)) for part in ("train", "t10k")]


def split(train, test, rows):
    tasks = []
    for k in range(5):
        part = [[(x[np.isin(y, (2 * k, 2 * k + 1))][:n], y[np.isin(y, (2 * k, 2 * k + 1))][:n]) for x, y in (pair,)][0]
                for pair, n in ((train, rows), (test, 2000))]
        tasks.append((*part, (2 * k, 2 * k + 1)))
    return tasks


def tasks_of(case, seed):
    """[(train (x, y), test (x, y), classes of the task)]"""
    draws = np.random.default_rng(seed)
    if case == "permuted-fashion":
        (x, y), (tx, ty) = fashion()
        x, y, tx, ty = x[:10000], y[:10000], tx[:2000], ty[:2000]
        orders = [np.arange(784)] + [draws.permutation(784) for _ in range(6)]
        return [((x[:, o], y), (tx[:, o], ty), tuple(range(10))) for o in orders]
    if case == "split-fashion":
        return split(*fashion(), 6000)
    if case == "split-digits":
        table = np.loadtxt(gzip.open(DIGITS), delimiter=",", dtype=np.float32)
        x, y = table[:, :64] / 16, table[:, 64].astype(np.int64)
        order = np.random.default_rng(0).permutation(len(x))
        return split((x[order[:1400]], y[order[:1400]]), (x[order[1400:]], y[order[1400:]]), 600)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "examples/credit-cohorts/prepare.py", SHARED / "data" / "UCI_Credit_Card.csv", "-o", folder], check=True,
                       stdout=subprocess.DEVNULL)
        load = lambda name: np.load(f"{folder}/{name}.npy")
        return [((load(f"{k}-x"), load(f"{k}-y")), (load(f"{k}-test-x"), load(f"{k}-test-y")), (0, 1)) for k in range(1, 7)]


def missing(case):
    """Why a case cannot run here; empty where it can."""
    needed = {"credit": SHARED / "data" / "UCI_Credit_Card.csv", "split-digits": DIGITS}.get(case, FASHION)
    return "" if needed.exists() else f"'{needed}' is missing"


# --- figures

def auc(scores, labels):
    order = np.argsort(scores, kind="stable")
    values, ranks = scores[order], np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    for value in np.unique(values[1:][values[1:] == values[:-1]]):
        same = scores == value
        ranks[same] = ranks[same].mean()
    positives = labels == 1
    n = positives.sum()
    return (ranks[positives].sum() - n * (n + 1) / 2) / (n * (len(labels) - n))


def recall_at(scores, labels, rate=0.1):
    negatives = np.sort(scores[labels == 0])[::-1]
    threshold = negatives[int(rate * len(negatives))]
    return float((scores[labels == 1] > threshold).mean())


def figures(case, matrix, tasks):
    """From `matrix[t][k]`: the logits for task k's tests after task t."""
    last = matrix[-1]
    if case == "credit":
        score = lambda logits: logits[:, 1] - logits[:, 0]
        labels = tasks[0][1][1]
        first, now = score(matrix[0][0]), score(last[0])
        return {"auc": float(auc(now, labels)), "recall": recall_at(now, labels), "auc_kept": float(auc(now, labels) / auc(first, labels)),
                "recall_kept": recall_at(now, labels) / recall_at(first, labels),
                "auc_all": float(np.mean([auc(score(z), t[1][1]) for z, t in zip(last, tasks)]))}
    right = [[float((z.argmax(1) == t[1][1]).mean()) for z, t in zip(row, tasks)] for row in matrix]
    result = {"acc": 100 * float(np.mean(right[-1])),
              "forgetting": 100 * float(np.mean([max(right[t][k] for t in range(k, len(tasks) - 1)) - right[-1][k] for k in range(len(tasks) - 1)]))}
    if case.startswith("split"):
        inside = lambda z, t: (np.array(t[2])[z[:, t[2]].argmax(1)] == t[1][1]).mean()
        result["acc_task"] = 100 * float(np.mean([inside(z, t) for z, t in zip(last, tasks)]))
    return result


# --- ours

def network(width, hidden, classes, seed, path):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draws = np.random.default_rng(seed)
    nodes, weights, last = [], [], "x"
    sizes = [width, *hidden, classes]
    for i, (inner, outer) in enumerate(zip(sizes, sizes[1:]), 1):
        for name, shape in ((f"fc{i}.weight", (outer, inner)), (f"fc{i}.bias", (outer,))):
            weights.append(numpy_helper.from_array(draws.uniform(-inner ** -0.5, inner ** -0.5, shape).astype(np.float32), name))
        end = i == len(sizes) - 1
        nodes.append(helper.make_node("Gemm", [last, f"fc{i}.weight", f"fc{i}.bias"], ["logits" if end else f"h{i}"], transB=1, name=f"fc{i}"))
        if not end:
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"a{i}"], name=f"relu{i}"))
        last = f"a{i}"
    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
    graph = helper.make_graph(nodes, "net", [value("x", width)], [value("logits", classes)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return [numpy_helper.to_array(w) for w in weights]


def spec_of(case, method, seed):
    setup = CASES[case]
    weights = f", class_weights: {list(setup['weights'])}" if setup["weights"] else ""
    text = (f"shapes: {{batch: {BATCH}}}\nseed: {seed}\nthreads: 2\nloss: {{kind: cross_entropy, logits: logits, labels: labels{weights}}}\n"
            f"optimizer: {{kind: adamw, lr: {setup['lr']}, weight_decay: 0}}\n")
    parts = []
    if "ewc" in method:
        parts.append(f"  ewc: {{lambda: {setup['ewc']}, online: {{gamma: 1}}, fisher: {{samples: 1024}}}}\n")
    if "er" in method.split("+"):
        parts.append(f"  replay: {{ratio: {RATIO}, capacity: {{capacity}}, policy: reservoir}}\n")
    if method == "derpp":
        parts.append(f"  replay: {{ratio: {RATIO}, capacity: {{capacity}}, policy: reservoir, derpp: {{alpha: {ALPHA}, beta: {BETA}}}}}\n")
    return text + ("continual:\n" + "".join(parts) if parts else "")


def call(*arguments):
    done = subprocess.run([SLUICE, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def ours(case, method, seed, tasks, folder):
    setup = CASES[case]
    width, classes = tasks[0][0][0].shape[1], max(max(t[2]) for t in tasks) + 1
    weights = network(width, setup["hidden"], classes, seed, folder / "net.onnx")
    sample = 4 * width + 8 + 32 + (4 * classes if method == "derpp" else 0)
    (folder / "spec.yaml").write_text(spec_of(case, method, seed).replace("{capacity}", str(setup["buffer"] * sample)))
    call("compile", folder / "net.onnx", "--spec", folder / "spec.yaml", "-o", folder / "net.plan")
    for k, (train, test, _) in enumerate(tasks):
        for name, (x, y) in (("train", train), ("test", test)):
            np.save(folder / f"{name}{k}-x.npy", np.ascontiguousarray(x))
            np.save(folder / f"{name}{k}-y.npy", y)
        (folder / f"{k}.yaml").write_text(f"name: task{k}\ndata: ['x=npy:{folder}/train{k}-x.npy', 'labels=npy:{folder}/train{k}-y.npy']\n"
                                          f"eval_data: ['x=npy:{folder}/test{k}-x.npy', 'labels=npy:{folder}/test{k}-y.npy']\nsteps: {setup['steps']}\n")
    matrix, run = [], folder / "run"
    for k in range(len(tasks)):
        call("train", folder / "net.plan", "--tasks", ",".join(f"{folder}/{j}.yaml" for j in range(k + 1)), "--checkpoint", run,
             *(["--resume"] if k else []))
        row = []
        for j in range(len(tasks)):
            call("infer", folder / "net.plan", "--data", f"x=npy:{folder}/test{j}-x.npy", "--checkpoint", run, "-o", folder / "z.npy")
            row.append(np.load(folder / "z.npy"))
        matrix.append(row)
    return matrix, weights


# --- the peer

def peer(case, method, seed, tasks, weights):
    setup = CASES[case]
    torch.manual_seed(seed)
    torch.set_num_threads(int(os.environ.get("PEER_THREADS", "2")))
    draws = np.random.default_rng(seed + 100)
    params = [torch.tensor(w, requires_grad=True) for w in weights]

    def forward(x, ps):
        for i in range(0, len(ps), 2):
            x = torch.nn.functional.linear(x, ps[i], ps[i + 1])
            x = torch.relu(x) if i + 2 < len(ps) else x
        return x

    weight = torch.tensor(setup["weights"]) if setup["weights"] else None
    loss_of = lambda z, y: torch.nn.functional.cross_entropy(z, y, weight=weight)
    optimizer = torch.optim.AdamW(params, lr=setup["lr"], weight_decay=0)
    fisher = anchor = None
    buffer, seen, matrix = [], 0, []
    replayed = int(RATIO * BATCH) if method != "fine-tuning" and method != "ewc" else 0
    for train, test, _ in tasks:
        x, y = (torch.tensor(v) for v in train)
        order, at = draws.permutation(len(x)), 0
        for _ in range(setup["steps"]):
            fresh = BATCH - (replayed if buffer else 0)
            if at + fresh > len(x):
                order, at = draws.permutation(len(x)), 0
            rows = order[at:at + fresh]
            at += fresh
            bx, by = x[rows], y[rows]
            z = forward(bx, params)
            if buffer:
                pick = lambda: [buffer[i] for i in draws.choice(len(buffer), min(replayed, len(buffer)), replace=False)]
                stack = lambda old, i: torch.stack([o[i] for o in old])
                if method == "derpp":
                    half = pick()
                    first, second = half[:len(half) // 2], half[len(half) // 2:]
                    loss = loss_of(z, by) + ALPHA * ((forward(stack(first, 0), params) - stack(first, 2)) ** 2).mean() + \
                        BETA * loss_of(forward(stack(second, 0), params), stack(second, 1))
                else:
                    old = pick()
                    loss = loss_of(torch.cat([z, forward(stack(old, 0), params)]), torch.cat([by, stack(old, 1)]))
            else:
                loss = loss_of(z, by)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if fisher is not None and "ewc" in method:
                with torch.no_grad():
                    for p, f, a in zip(params, fisher, anchor):
                        h = setup["lr"] * setup["ewc"] * f
                        p += h * (a - p) / (1 + h)
        if replayed:  # of a task that is done, with its logits then
            with torch.no_grad():
                kept = forward(x, params)
            for item in zip(x, y, kept):
                if len(buffer) < setup["buffer"]:
                    buffer.append(item)
                elif (k := draws.integers(seen + 1)) < setup["buffer"]:
                    buffer[k] = item
                seen += 1
        if "ewc" in method:
            grad = torch.func.vmap(torch.func.grad(lambda ps, a, b: torch.nn.functional.cross_entropy(forward(a[None], ps), b[None], weight=weight,
                                                                                                      reduction="sum")), in_dims=(None, 0, 0))
            frozen, new = [p.detach() for p in params], [torch.zeros_like(p) for p in params]
            count = min(1024, len(x))
            for i in range(0, count, 128):
                for f, g in zip(new, grad(frozen, x[i:i + 128][:count - i], y[i:i + 128][:count - i])):
                    f += (g ** 2).sum(0) / count
            fisher = new if fisher is None else [f + g for f, g in zip(fisher, new)]
            anchor = [p.detach().clone() for p in params]
        with torch.no_grad():
            matrix.append([forward(torch.tensor(t[1][0]), params).numpy() for t in tasks])
    return matrix


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--methods", help="comma-separated; default all of a case")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    lines = Lines(options.out, "continual", 2)
    for case in options.cases:
        if missing(case):
            print(f"{case}: skipped, {missing(case)}")
            continue
        for method in options.methods.split(",") if options.methods else METHODS[case]:
            both = []
            for seed in range(1, options.seeds + 1):
                tasks = tasks_of(case, seed)
                with tempfile.TemporaryDirectory() as folder:
                    matrix, weights = ours(case, method, seed, tasks, pathlib.Path(folder))
                both.append((figures(case, matrix, tasks), figures(case, peer(case, method, seed, tasks, weights), tasks)))
            for metric in both[0][0]:
                mine, other = ([round(pair[side][metric], 4) for pair in both] for side in (0, 1))
                print(f"{case}/{method:<12} {metric:<12} ours {statistics.mean(mine):8.3f}  PyTorch {statistics.mean(other):8.3f}   {mine}", flush=True)
                lines.add(f"{case}/{method}", metric, round(statistics.mean(mine), 4), round(statistics.mean(other), 4), peer_name="PyTorch, same weights",
                          peer_version=torch.__version__, spread=[min(mine), max(mine)], seeds=options.seeds)


if __name__ == "__main__":
    main()
