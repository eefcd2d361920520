#!/usr/bin/env python3
"""Writes the models that test_memory.py and test_recompute.py train under budgets.

Recorded with PyTorch 1.13.1 and onnx 1.12 (Debian 12: python3-torch, python3-onnx). Run: python3 record.py
"""
import importlib.util
import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent.parent / "examples"


def decoder_with_dropout():
    """The example's decoder, small, with dropout behind both halves of a block."""
    spec = importlib.util.spec_from_file_location("decoder", EXAMPLES / "char-decoder" / "export.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = module.CharDecoder(17, 8, 16, 2, 2)
    for block in model.blocks:
        block.proj = torch.nn.Sequential(block.proj, torch.nn.Dropout(0.25))
        block.down = torch.nn.Sequential(block.down, torch.nn.Dropout(0.25))
    module.export(model, 8, HERE / "dropout-decoder.onnx")


def mlp():
    torch.manual_seed(1)
    layers = [torch.nn.Linear(12, 24), torch.nn.GELU()]
    for _ in range(4):
        layers += [torch.nn.Linear(24, 24), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(24, 4))
    torch.onnx.export(model.train(), torch.zeros(2, 12), str(HERE / "mlp.onnx"), input_names=["x"], output_names=["logits"],
                      dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}}, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, opset_version=17)


def write(name, nodes, inputs, outputs, weights):
    types = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info(n, types[np.dtype(t)], s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        [numpy_helper.from_array(array, n) for n, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, HERE / f"{name}.onnx")


ROWS, COLUMNS, HIDDEN = 256, 64, 128


def tail(value):
    """Nodes of sum of sigmoid(value w u): large products while `value` waits for the gradient of w."""
    return [helper.make_node("MatMul", [value, "w"], ["z"], name="narrow"),
            helper.make_node("MatMul", ["z", "u"], ["h"], name="wide"),
            helper.make_node("Sigmoid", ["h"], ["s"], name="sigmoid"),
            helper.make_node("ReduceSum", ["s"], ["tail"], name="tail", keepdims=0)]


def dropout():
    """R1: y = Dropout(x, 0.5), L = sum of sigmoid(y w u)."""
    random = np.random.default_rng(1)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32) / 4
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["scaled"], name="scaled"),
        helper.make_node("Dropout", ["scaled", "ratio", "training"], ["y"], name="dropout", seed=7),
        *tail("y"), helper.make_node("Identity", ["tail"], ["loss"], name="loss")]
    weights = {"x": np.full((ROWS, COLUMNS), 3, np.float32), "w": draw(COLUMNS, 4), "u": draw(4, HIDDEN),
               "ratio": np.array(0.5, np.float32), "training": np.array(True)}
    write("dropout", nodes, [("one", "float32", [1, 1])], [("loss", [])], weights)


def noise():
    """R2: y = x + RandomNormalLike(x), L = sum of y + sigmoid(y w u) with w = 0, so that dL/dx = 1."""
    nodes = [
        helper.make_node("Mul", ["x", "one"], ["scaled"], name="scaled"),
        helper.make_node("RandomNormalLike", ["scaled"], ["noise"], name="noise"),
        helper.make_node("Add", ["scaled", "noise"], ["y"], name="y"),
        *tail("y"),
        helper.make_node("ReduceSum", ["y"], ["sum"], name="sum", keepdims=0),
        helper.make_node("Add", ["tail", "sum"], ["loss"], name="loss")]
    weights = {"x": np.full((ROWS, COLUMNS), 0.5, np.float32), "w": np.zeros((COLUMNS, 4), np.float32),
               "u": np.full((4, HIDDEN), 4 / HIDDEN, np.float32)}
    write("noise", nodes, [("one", "float32", [1, 1])], [("loss", [])], weights)


def batch_norm(name, momentum, shape):
    """R3, R5: one batch normalisation in training mode, then squares, so that its result is wanted again."""
    channels = shape[1]
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], ["y", "m", "v"], name="norm",
                         training_mode=1, momentum=momentum, epsilon=1e-5),
        helper.make_node("Exp", ["y"], ["z"], name="exp"),
        helper.make_node("Mul", ["z", "y"], ["zy"], name="zy"),
        helper.make_node("ReduceSum", ["zy"], ["loss"], name="loss", keepdims=0),
    ]
    weights = {"scale": np.ones(channels, np.float32), "shift": np.zeros(channels, np.float32),
               "mean": np.zeros(channels, np.float32), "variance": np.ones(channels, np.float32)}
    write(name, nodes, [("x", "float32", list(shape))], [("loss", [])], weights)


def frozen_embedding():
    """R7: a frozen embedding, then blocks with trainable weights."""
    random = np.random.default_rng(3)
    draw = lambda *shape: (random.standard_normal(shape) / 4).astype(np.float32)
    nodes, weights, x = [helper.make_node("Gather", ["embedding", "tokens"], ["x"], name="embed")], {"embedding": draw(11, 16)}, "x"
    for i in range(4):
        weights |= {f"up{i}": draw(16, 48), f"down{i}": draw(48, 16)}
        nodes += [helper.make_node("MatMul", [x, f"up{i}"], [f"u{i}"], name=f"up_product{i}"),
                  helper.make_node("Tanh", [f"u{i}"], [f"a{i}"], name=f"tanh{i}"),
                  helper.make_node("MatMul", [f"a{i}", f"down{i}"], [f"d{i}"], name=f"down_product{i}"),
                  helper.make_node("Sigmoid", [f"d{i}"], [f"s{i}"], name=f"sigmoid{i}")]
        x = f"s{i}"
    weights["head"] = draw(16, 5)
    nodes.append(helper.make_node("MatMul", [x, "head"], ["logits"], name="head_product"))
    write("frozen-embedding", nodes, [("tokens", "int64", [64])], [("logits", [64, 5])], weights)


if __name__ == "__main__":
    decoder_with_dropout()
    mlp()
    dropout()
    noise()
    batch_norm("batch-norm", 0.9, (2, 1))
    batch_norm("batch-norm-wide", 0.9, (32, 6, 5))
    frozen_embedding()
