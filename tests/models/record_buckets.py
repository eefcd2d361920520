#!/usr/bin/env python3
"""Writes bucket-decoder.onnx: a causal decoder block whose sequence length T is symbolic, up to 128, with dropout in
training mode. Two outputs: logits [batch, T, 17], and the same rows flat, [batch * T, 17]. And bucket-branches.onnx, whose
last product has another weight for T > 100. Needs onnx and NumPy."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, VOCAB, LONGEST = 16, 2, 17, 128
random = np.random.default_rng(7)
nodes, initializers = [], []


def weight(name, *shape, scale=0.2):
    initializers.append(numpy_helper.from_array((scale * random.standard_normal(shape)).astype(np.float32), name))
    return name


def fixed(name, values):
    initializers.append(numpy_helper.from_array(np.asarray(values), name))
    return name


def node(kind, inputs, output, **attributes):
    nodes.append(helper.make_node(kind, inputs, [output], name=output + "/" + kind, **attributes))
    return output


def norm(x, name):
    scale = fixed(name + ".weight", np.ones(WIDTH, np.float32))
    return node("LayerNormalization", [x, scale, fixed(name + ".bias", np.zeros(WIDTH, np.float32))], name, axis=-1)


def heads(x, name):
    parted = node("Reshape", [x, fixed(name + ".shape", np.array([0, 0, HEADS, WIDTH // HEADS]))], name + ".parted")
    return node("Transpose", [parted], name + ".heads", perm=[0, 2, 1, 3])


length = node("Gather", [node("Shape", ["tokens"], "shape"), fixed("one", np.array(1))], "length", axis=0)
positions = node("Range", [fixed("zero", np.array(0)), length, "one"], "positions")
embedded = node("Add", [node("Gather", [weight("wte", VOCAB, WIDTH), "tokens"], "wte.rows"),
                        node("Gather", [weight("wpe", LONGEST, WIDTH), positions], "wpe.rows")], "embedded")
x = node("Dropout", [embedded, fixed("ratio", np.float32(0.1)), fixed("training", np.array(True))], "dropped")
rows = node("Unsqueeze", [positions, fixed("axis1", np.array([1]))], "rows")
columns = node("Unsqueeze", [positions, fixed("axis0", np.array([0]))], "columns")
mask = node("Where", [node("GreaterOrEqual", [rows, columns], "seen"), fixed("open", np.float32(0)),
                      fixed("closed", np.float32(-1e9))], "mask")
h = norm(x, "ln1")
q, k, v = (heads(node("MatMul", [h, weight(f"attn.{n}", WIDTH, WIDTH)], n), n) for n in "qkv")
scores = node("MatMul", [q, node("Transpose", [k], "k.t", perm=[0, 1, 3, 2])], "scores")
scaled = node("Mul", [scores, fixed("scale", np.float32((WIDTH // HEADS) ** -0.5))], "scaled")
weights = node("Softmax", [node("Add", [scaled, mask], "masked")], "weights", axis=-1)
context = node("Transpose", [node("MatMul", [weights, v], "mixed")], "context", perm=[0, 2, 1, 3])
joined = node("Reshape", [context, fixed("joined.shape", np.array([0, 0, WIDTH]))], "joined")
x = node("Add", [x, node("MatMul", [joined, weight("attn.out", WIDTH, WIDTH)], "attended")], "residual")
logits = node("MatMul", [norm(x, "ln2"), weight("head", WIDTH, VOCAB)], "logits")
node("Reshape", [logits, fixed("flat.shape", np.array([-1, VOCAB]))], "flat")



def save(name, nodes, initializers, *outputs):
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "T"])
    graph = helper.make_graph(nodes, name, [tokens], list(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="record_buckets.py")
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, pathlib.Path(__file__).parent / f"{name}.onnx")


LOGITS = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "T", VOCAB])
save("bucket-decoder", nodes, initializers, LOGITS,
     helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["rows", VOCAB]))

nodes, initializers = [], []
rows = node("Gather", [weight("wte", VOCAB, WIDTH), "tokens"], "wte.rows")
length = node("Gather", [node("Shape", ["tokens"], "shape"), fixed("one", np.array(1))], "length", axis=0)
is_long = node("Greater", [length, fixed("limit", np.array(100))], "is_long")
branches = {}
for name in ("long", "short"):
    weight(name, WIDTH, VOCAB)
    product = helper.make_node("MatMul", [rows, name], [name + ".logits"], name=name + "/MatMul")
    output = helper.make_tensor_value_info(name + ".logits", TensorProto.FLOAT, ["batch", "T", VOCAB])
    branches[name] = helper.make_graph([product], name, [], [output])
node("If", [is_long], "logits", then_branch=branches["long"], else_branch=branches["short"])
save("bucket-branches", nodes, initializers, LOGITS)
