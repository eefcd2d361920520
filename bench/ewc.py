#!/usr/bin/env python3
"""What EWC costs: step time and bytes of a plan with it beside one without, in turns."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy as np



def mlp(path):
    """images [batch, 1, 28, 28] -> layers of 512 and 512 -> logits of 10."""
    from onnx import TensorProto, helper, numpy_helper

    rng, sizes = np.random.default_rng(1), [784, 512, 512, 10]
    nodes, values, last = [helper.make_node("Flatten", ["images"], ["h0"])], [], "h0"
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        values += [numpy_helper.from_array((rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32), f"w{i}"),
                   numpy_helper.from_array(np.zeros(columns, np.float32), f"b{i}")]
        out = "logits" if i == 2 else f"g{i}"
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [out]))
        last = f"h{i + 1}"
        if i < 2:
            nodes.append(helper.make_node("Relu", [out], [last]))
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 28, 28])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])], values)
    with open(path, "wb") as out:
        out.write(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def compile_plan(sluice, folder, model, name, continual):
    spec = os.path.join(folder, name + ".yaml")
    with open(spec, "w") as out:
        out.write("shapes: {batch: 64}\nloss: {kind: cross_entropy, logits: logits, labels: labels}\noptimizer: {kind: adamw}\nthreads: 2\n")
        out.write(continual)
    plan = os.path.join(folder, name + ".plan")
    return plan, run(sluice, "compile", model, "--spec", spec, "-o", plan, "--json")


def step_us(sluice, plan, data, steps):
    return run(sluice, "train", plan, *data, "--steps", steps, "--json")["step_us_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sluice", default="build/tools/sluice")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = []
    rng = np.random.default_rng(0)
    for case in ("mlp", "fashion-cnn"):
        with tempfile.TemporaryDirectory() as folder:
            shape = (1024, 1, 28, 28)
            np.save(folder + "/x.npy", rng.standard_normal(shape).astype(np.float32))
            np.save(folder + "/y.npy", rng.integers(0, 10, 1024))
            model = mlp(folder + "/mlp.onnx") if case == "mlp" else "examples/fashion-mnist/fashion-cnn.onnx"
            data = ["--data", f"images=npy:{folder}/x.npy", "--data", f"labels=npy:{folder}/y.npy"]
            plain, without = compile_plan(arguments.sluice, folder, model, "plain", "")
            held, with_ewc = compile_plan(arguments.sluice, folder, model, "ewc",
                                          "continual: {ewc: {lambda: 40, online: {gamma: 1}}}\n")
            times = {plain: [], held: []}
            for _ in range(arguments.rounds):
                for plan in (plain, held):
                    times[plan].append(step_us(arguments.sluice, plan, data, arguments.steps))
            before, after = (statistics.median(times[plan]) for plan in (plain, held))
            cost = statistics.median(b / a - 1 for a, b in zip(times[plain], times[held]))
            weights = without["arena"]["parameters"] / 4
            line = {"bench": "continual", "case": case + "/ewc-cost", "metric": "step_us", "ours": after, "peer": before,
                    "peer_name": "the same without EWC", "ratio": before / after, "cost": cost,
                    "bytes_per_parameter": with_ewc["arena"]["continual"] / weights,
                    "step_bytes_added": with_ewc["step_bytes"] - without["step_bytes"], "threads": 2}
            lines.append(line)
            print(f"{case}: {before:.0f} -> {after:.0f} us, {cost:+.1%}, {line['bytes_per_parameter']:.2f} bytes per parameter, "
                  f"step bytes {line['step_bytes_added']:+d}")
    if arguments.out:
        with open(arguments.out, "w") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
