"""Attention as operators and exporters write it: computed in one kernel, with the losses of the model's own operations and less memory."""
import pathlib
import sys
import unittest

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import SluiceTest  # noqa: E402

BATCH, LENGTH, WIDTH, HEADS, CLASSES = 8, 72, 64, 4, 11
SPEC = "loss: {kind: cross_entropy, logits: logits}\noptimizer: {kind: adamw, lr: 1.0e-2}\n"
ALL = "attention: 1 of 1 computed without storing its scores"


class Model:
    """x [BATCH, LENGTH, WIDTH] -> queries, keys and values -> attention -> logits. `probabilities` of a second output keep it in parts."""

    def __init__(self, opset=17, groups=HEADS, microsoft=False):
        self.nodes, self.inputs, self.weights = [], [("x", TensorProto.FLOAT, [BATCH, LENGTH, WIDTH])], {}
        self.domains = [helper.make_opsetid("", opset)] + [helper.make_opsetid("com.microsoft", 1)] * microsoft
        self.random = np.random.RandomState(5)
        size = WIDTH // HEADS
        self.q, self.k, self.v = (self.linear("x", name, size * heads) for name, heads in [("q", HEADS), ("k", groups), ("v", groups)])

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output] if isinstance(output, str) else output, **attributes))
        return output

    def constant(self, name, value):
        self.weights[name] = np.asarray(value)
        return name

    def linear(self, x, name, columns):
        weight = self.constant(f"{name}.weight", (self.random.randn(WIDTH, columns) * 0.3).astype(np.float32))
        return self.node("MatMul", [x, weight], name)

    def heads(self, x, order):
        shape = self.constant("heads", np.array([BATCH, LENGTH, HEADS, WIDTH // HEADS]))
        return self.node("Transpose", [self.node("Reshape", [x, shape], x + "_split"), ], x + "_heads", perm=order)

    def reshaped(self, x, *shape):
        return self.node("Reshape", [x, self.constant(x + "_shape", np.array(shape))], x + "_reshaped")

    def joined(self, y):
        turned = self.node("Transpose", [y], "turned", perm=[0, 2, 1, 3])
        return self.node("Reshape", [turned, self.constant("joined_shape", np.array([BATCH, LENGTH, WIDTH]))], "joined")

    def save(self, path, y, outputs=()):
        self.node("MatMul", [y, self.constant("head.weight", (self.random.randn(WIDTH, CLASSES) * 0.3).astype(np.float32))], "logits")
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("logits", *outputs)]
        graph = helper.make_graph(self.nodes, "attention", [helper.make_tensor_value_info(*i) for i in self.inputs], values,
                                  [onnx.numpy_helper.from_array(value, name) for name, value in self.weights.items()])
        onnx.save(helper.make_model(graph, opset_imports=self.domains, ir_version=10), str(path))
        return path


def in_parts(path, mask, plain):
    """Scores, mask and softmax as PyTorch's exporter writes them."""
    m = Model()
    q, k, v = m.heads(m.q, [0, 2, 1, 3]), m.heads(m.k, [0, 2, 3, 1]), m.heads(m.v, [0, 2, 1, 3])
    size, joins = WIDTH // HEADS, mask.endswith("bmm")  # batch and heads as one dimension, as older exports of OPT and BART have them
    if joins:
        q, k, v = m.reshaped(q, -1, LENGTH, size), m.reshaped(k, -1, size, LENGTH), m.reshaped(v, -1, LENGTH, size)
    root = m.constant("root", np.float32(size ** -0.25))
    s = m.node("MatMul", [m.node("Mul", [q, root], "q_scaled"), m.node("Mul", [k, root], "k_scaled")], "scores")
    triangle = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
    if mask == "add":
        s = m.node("Add", [s, m.constant("triangle", np.where(triangle, -np.inf, 0).astype(np.float32))], "masked")
    if mask == "where":
        s = m.node("Where", [m.constant("triangle", triangle), m.constant("low", np.float32(np.finfo(np.float32).min)), s], "masked")
    if mask in ("keys", "keys-bmm"):
        m.inputs.append(("mask", TensorProto.FLOAT, [BATCH, LENGTH]))
        low = m.node("Mul", [m.node("Sub", [m.constant("one", np.float32(1)), "mask"], "hidden"),
                             m.constant("low", np.float32(np.finfo(np.float32).min))], "lowered")
        s = m.reshaped(s, BATCH, HEADS, LENGTH, LENGTH) if joins else s
        s = m.node("Add", [s, m.node("Unsqueeze", [low, m.constant("axes", np.array([1, 2]))], "addend")], "masked")
    p = m.node("Softmax", [m.reshaped(s, -1, LENGTH, LENGTH) if joins else s], "probabilities", axis=-1)
    y = m.node("MatMul", [p, v], "y")
    return m.save(path, m.joined(m.reshaped(y, BATCH, HEADS, LENGTH, size) if joins else y), [p] if plain else [])


def opset23(path, groups, plain):
    m = Model(23, groups)
    results = ["y", "", "", "probabilities"] if plain else "y"
    m.node("Attention", [m.q, m.k, m.v], results, q_num_heads=HEADS, kv_num_heads=groups, is_causal=1, qk_matmul_output_mode=3)
    return m.save(path, "y", ["probabilities"] if plain else [])


class Attention(SluiceTest):
    def arrays(self):
        random = np.random.RandomState(1)
        arrays = {"x": random.randn(BATCH, LENGTH, WIDTH).astype(np.float32), "labels": random.randint(0, CLASSES, (BATCH, LENGTH))}
        arrays["mask"] = (np.arange(LENGTH) < random.randint(1, LENGTH, (BATCH, 1))).astype(np.float32)
        arrays["mask"][0] = 0  # a sample of padding alone: all its keys weigh the same
        return arrays

    def losses(self, model, name, *more):
        plan, report = self.compile(model, SPEC, name, *more)
        data = []
        for key, array in self.arrays().items():
            if key != "mask" or "keys" in str(model):
                data += ["--data", f"{key}=npy:{self.npy(key, array)}"]
        out, _ = self.run_sluice("train", plan, *data, "--steps", 10, "--no-shuffle", "--losses")
        return out["losses"], report

    def expect_same(self, name, build):
        fused, report = self.losses(build(self.dir / f"{name}.onnx", False), name)
        parts, plain = self.losses(build(self.dir / f"{name}-parts.onnx", True), name + "-parts")
        self.assertIn(ALL, report["notes"])
        self.assertFalse([note for note in plain["notes"] if note.startswith("attention")])
        np.testing.assert_allclose(fused, parts, rtol=2e-5)
        self.assertLess(fused[-1], fused[0])
        self.assertLess(report["step_bytes"], plain["step_bytes"])

    def test_in_parts(self):
        for mask in ("none", "add", "where", "keys", "keys-bmm"):
            with self.subTest(mask):
                self.expect_same(f"parts-{mask}", lambda path, plain: in_parts(path, mask, plain))

    def test_opset_23(self):
        for groups in (HEADS, HEADS // 2):
            with self.subTest(groups):
                self.expect_same(f"opset23-{groups}", lambda path, plain: opset23(path, groups, plain))

    def test_microsoft(self):
        for kind, groups, more in (("MultiHeadAttention", HEADS, []), ("GroupQueryAttention", HEADS // 2, ["", "", "seen", "total"])):
            with self.subTest(kind):
                m = Model(groups=groups, microsoft=True)
                m.constant("seen", np.full(BATCH, LENGTH - 1, np.int32)), m.constant("total", np.int32(LENGTH))
                heads = {"kv_num_heads": groups} if groups < HEADS else {}
                results = ["y", "keys", "values"] if heads else "y"
                m.node(kind, [m.q, m.k, m.v, *more], results, domain="com.microsoft", num_heads=HEADS, **heads)
                _, report = self.compile(m.save(self.dir / f"{kind}.onnx", "y"), SPEC, kind)
                self.assertIn(ALL, report["notes"])


if __name__ == "__main__":
    unittest.main()
