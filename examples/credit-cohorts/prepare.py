#!/usr/bin/env python3
"""Makes the cohorts of examples/credit-cohorts: FOLDER/model.onnx, transform.json, and for each cohort K K-x.npy, K-y.npy (to train on),
K-test-x.npy, K-test-y.npy.

  prepare.py UCI_Credit_Card.csv -o work      six cohorts, from the highest to the lowest credit limit, as they would come month by month
  prepare.py credit-g.arff -o work            four, from the largest to the smallest amount

--transform FILE prepares by a transform that was saved before, instead of fitting one on the first cohort's rows (and the values of
categories of all rows, which a form knows beforehand). Every fifth row is for tests. Classes: 1 is a default (a bad credit).
"""
import argparse
import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import transform as transforms  # noqa: E402

HIDDEN = 64


def credit_card(path):
    rows = transforms.read_csv(path)
    categories = ["SEX", "EDUCATION", "MARRIAGE"]
    label = "Default" if "Default" in rows[0] else "default.payment.next.month"
    labels = [int(row.pop(label)) for row in rows]
    for row in rows:
        row.pop("ID", None)
    order = sorted(range(len(rows)), key=lambda i: -float(rows[i]["LIMIT_BAL"]))
    return rows, labels, order, [n for n in rows[0] if n not in categories], categories, 6


def german(path):
    rows, numbers = transforms.read_arff(path)
    labels = [int(row.pop("class") == "bad") for row in rows]
    order = sorted(range(len(rows)), key=lambda i: -float(rows[i]["credit_amount"]))
    return rows, labels, order, numbers, [n for n in rows[0] if n not in numbers], 4


def network(width, path):
    """width -> 64 -> 64 -> 2, initial values as PyTorch's of a linear layer."""
    draws = numpy.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    sizes = [width, HIDDEN, HIDDEN, 2]
    for i, (inner, outer) in enumerate(zip(sizes, sizes[1:]), 1):
        bound = inner ** -0.5
        for name, shape in ((f"fc{i}.weight", (outer, inner)), (f"fc{i}.bias", (outer,))):
            weights.append(numpy_helper.from_array(draws.uniform(-bound, bound, shape).astype(numpy.float32), name))
        result = "logits" if i == len(sizes) - 1 else f"h{i}"
        nodes.append(helper.make_node("Gemm", [last, f"fc{i}.weight", f"fc{i}.bias"], [result], name=f"fc{i}", transB=1))
        last = result
        if result != "logits":
            nodes.append(helper.make_node("Relu", [last], [f"a{i}"], name=f"relu{i}"))
            last = f"a{i}"
    graph = helper.make_graph(nodes, "credit", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("--transform", help="a saved one")
    options = parser.parse_args()
    read = german if options.table.endswith(".arff") else credit_card
    rows, labels, order, numbers, categories, count = read(options.table)
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    cohorts = numpy.array_split(numpy.array(order), count)
    if options.transform:
        transform = transforms.load(options.transform)
    else:
        transform = transforms.fit([rows[i] for i in cohorts[0]], numbers, [])
        transform["columns"] += transforms.fit(rows, [], categories)["columns"]
    try:
        values = transforms.apply(transform, rows, list(rows[0]))
    except transforms.Refused as refused:
        sys.exit(f"error: {refused}")
    transforms.save(transform, folder / "transform.json")
    network(transforms.width(transform), folder / "model.onnx")
    labels = numpy.array(labels, numpy.int64)
    for k, cohort in enumerate(cohorts, 1):
        cohort = numpy.random.default_rng(k).permutation(cohort)
        test, train = cohort[::5], numpy.array([row for i, row in enumerate(cohort) if i % 5])
        for name, part in (("", train), ("-test", test)):
            numpy.save(folder / f"{k}{name}-x.npy", values[part])
            numpy.save(folder / f"{k}{name}-y.npy", labels[part])
        print(f"cohort {k}: {len(train)} rows, {labels[train].mean():.1%} defaults; {len(test)} for tests")


if __name__ == "__main__":
    main()
