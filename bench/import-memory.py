#!/usr/bin/env python3
"""Imports a model of 3 GB with external data and prints the resident memory it takes.

    SLUICE=build/tools/sluice python3 bench/import-memory.py [GIGABYTES]

Wanted: at most 1.2 times the size of the weights. Needs the disk space of the weights.
"""
import os
import resource
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper

GB = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
WIDTH = 8192
LAYERS = max(1, round(GB * 1e9 / (WIDTH * WIDTH * 4)))
BYTES = WIDTH * WIDTH * 4


def write(folder):
    random = numpy.random.default_rng(0)
    graph = onnx.GraphProto(name="large")
    source = "x"
    with open(os.path.join(folder, "weights.bin"), "wb") as file:
        for layer in range(LAYERS):
            file.write(random.standard_normal(WIDTH * WIDTH, dtype=numpy.float32).tobytes())
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH],
                                 data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "weights.bin"), ("offset", layer * BYTES), ("length", BYTES)):
                tensor.external_data.add(key=key, value=str(value))
            graph.initializer.append(tensor)
            graph.node.append(helper.make_node("MatMul", [source, f"w{layer}"], [f"h{layer}"]))
            source = f"h{layer}"
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH]))
    graph.output.append(helper.make_tensor_value_info(source, TensorProto.FLOAT, [4, WIDTH]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    return path


def main():
    sluice = os.environ.get("SLUICE", "build/tools/sluice")
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder)
        subprocess.run([sluice, "import", path], check=True, stdout=subprocess.DEVNULL)
        resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    size = LAYERS * BYTES
    print(f"weights {size / 1e9:.2f} GB, largest resident size {resident / 1e9:.2f} GB, "
          f"ratio {resident / size:.2f} (wanted: at most 1.2)")
    sys.exit(resident > 1.2 * size)


main()
