#!/usr/bin/env python3
"""Writes cases of the operator set 23 that libonnx-testdata (opset 17) does not have.

    python3 -m venv venv && venv/bin/pip install onnx==1.19.1
    venv/bin/python tests/frontend/record_vectors.py tests/frontend/newer-ops.vectors

Models and operands are the node cases of the PyPI package `onnx`; the expected values
are computed by its reference evaluator (release 1.18 is wrong for Attention on rank 3 and
for grouped heads). With --narrow: those of types of eight and fewer bits, for
narrow-types.vectors. With --all: every case, for a run by hand. The format is that of
vector_file.py.
"""
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from vector_file import VectorFile, case_bytes

OPSET = 23
# Operators, or forms of them, that are newer than opset 17 or differ since.
NEWER = {
    "AffineGrid", "Attention", "AveragePool", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "CenterCropPad", "Col2Im", "DFT", "DeformConv", "DequantizeLinear", "Gelu",
    "GridSample", "GroupNormalization", "LpPool", "Mish", "Pad", "QLinearMatMul",
    "QuantizeLinear", "RMSNormalization", "ReduceMax", "ReduceMin", "Resize", "RoiAlign",
    "RotaryEmbedding", "ScatterElements", "ScatterND", "Split", "Swish",
}
# Floating point and integers of eight and fewer bits, recorded with --narrow.
NARROW = {17, 18, 19, 20, 21, 22, 23}
# Large, and about no other form.
SKIPPED = {"test_center_crop_pad_crop_and_pad_expanded"}


def lowered(model):
    """The model at opset 23 where its operators are the same there, else nothing."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.ir_version = min(result.ir_version, 11)
    for entry in result.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, OPSET)
    try:
        onnx.checker.check_model(result)
    except onnx.checker.ValidationError:
        return None
    return result


def is_dense(case):
    values = [v for v in list(case.model.graph.input) + list(case.model.graph.output)]
    return all(v.type.HasField("tensor_type") and
               v.type.tensor_type.elem_type != onnx.TensorProto.STRING for v in values)


def is_narrow(case):
    values = list(case.model.graph.input) + list(case.model.graph.output)
    return any(v.type.tensor_type.elem_type in NARROW for v in values)


def is_chosen(case, narrow):
    ops = {node.op_type for node in case.model.graph.node}
    if narrow:
        return is_narrow(case) and not case.name.endswith("_expanded")
    return len(ops) == 1 and bool(ops & NEWER)


def tensor(name, value):
    if isinstance(value, onnx.TensorProto):
        result = onnx.TensorProto()
        result.CopyFrom(value)
        result.name = name
        return result
    return numpy_helper.from_array(numpy.asarray(value), name)


def main():
    path = [a for a in sys.argv[1:] if not a.startswith("--")][0]
    every, narrow = "--all" in sys.argv, "--narrow" in sys.argv
    cases = sorted({c.name: c for c in collect_testcases(None)}.values(), key=lambda c: c.name)
    with VectorFile(path) as file:
        for case in cases:
            ops = {node.op_type for node in case.model.graph.node}
            if not is_dense(case) or case.name in SKIPPED and not every:
                continue
            if not every and not is_chosen(case, narrow):
                continue
            model = lowered(case.model)
            if model is None:
                print("not at opset 23:", case.name)
                continue
            inputs, outputs = case.data_sets[0]
            names = [value.name for value in model.graph.input]
            try:
                is_stored = lambda v: narrow and isinstance(v, onnx.TensorProto)
                arrays = [numpy_helper.to_array(v) if is_stored(v) else v for v in inputs]
                computed = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))
            except Exception as problem:  # the evaluator does not have every operator
                print("values of the case itself:", case.name, type(problem).__name__)
                computed = outputs
            data = onnx.GraphProto(name=case.name)
            for value, name in zip(inputs, names):
                data.initializer.append(tensor(name, value))
            for value, info in zip(computed, model.graph.output):
                data.initializer.append(tensor(info.name, value))
            text = case_bytes(model, data)
            limit = 20000 if ops == {"Attention"} else 8000
            if not every and len(text) > limit:
                print("too large:", case.name, len(text))
                continue
            file.write(text)
    print(file.summary(f"onnx {onnx.__version__}"))


main()
