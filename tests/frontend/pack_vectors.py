#!/usr/bin/env python3
"""Packs test vectors of an old release of the PyPI package `onnx` into one file.

    pip download --no-deps --only-binary=:all: --python-version 3.6 --implementation cp \\
        --abi cp36m --platform manylinux1_x86_64 onnx==1.3.0
    python3 -m zipfile -e onnx-1.3.0-*.whl onnx-1.3.0
    python3 tests/frontend/pack_vectors.py OUT.vectors onnx-1.3.0 onnx-1.5.0 ...

Of each release those operators are taken whose form has changed since; the format is that
of vector_file.py.
"""
import pathlib
import sys

import onnx

from vector_file import VectorFile, case_bytes

# By release (and its operator set): operators that are spelt differently later.
CHANGED = {
    "1.2.3": {"AveragePool", "BatchNormalization", "Cast", "Clip", "Dropout", "Equal", "Gemm", "Pad", "Reshape",
              "Slice", "Squeeze", "TopK", "Unsqueeze", "Upsample"},  # 7
    "1.3.0": {"Scan", "MaxPool", "Sum", "Expand", "LRN"},  # 8
    "1.4.1": {"Scan", "Where", "OneHot", "Scatter", "EyeLike", "ConstantOfShape", "Upsample", "Flatten"},  # 9
    "1.5.0": {"Resize", "Slice", "TopK", "Dropout", "ThresholdedRelu", "Mod", "IsInf"},  # 10
    "1.6.0": {"Resize", "Clip", "Pad", "Gather", "ScatterElements", "Softmax", "LogSoftmax", "Hardmax", "Split",
              "ReduceSum", "ReduceMean", "Loop"},  # 11
    "1.8.1": {"Softmax", "ReduceSum", "BatchNormalization", "Hardmax", "Squeeze", "Split", "GRU", "LSTM"},  # 13
}
LARGEST = 6000


def packed(folder, release):
    model = onnx.load(str(folder / "model.onnx"))
    data = onnx.GraphProto(name=f"{release}/{folder.name}")
    first = folder / "test_data_set_0"
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for i, value in enumerate(values):
            file = first / f"{kind}_{i}.pb"
            if not file.exists():
                return None, set()
            tensor = onnx.TensorProto()
            tensor.ParseFromString(file.read_bytes())
            tensor.name = value.name
            data.initializer.append(tensor)
    return case_bytes(model, data), {node.op_type for node in model.graph.node}


def main():
    out, folders = sys.argv[1], sys.argv[2:]
    with VectorFile(out) as file:
        for folder in folders:
            release = pathlib.Path(folder).name.removeprefix("onnx-")
            for case in sorted(pathlib.Path(folder).glob("onnx/backend/test/data/node/*")):
                text, ops = packed(case, release)
                if text and len(ops) == 1 and ops & CHANGED[release] and len(text) <= LARGEST:
                    file.write(text)
    print(file.summary(""))


main()
