#!/usr/bin/env python3
"""Writes cases of the com.microsoft operators with values computed by ONNX Runtime.

    python3 -m venv venv && venv/bin/pip install onnx==1.19.1 onnxruntime==1.32.0
    venv/bin/python tests/frontend/record_microsoft.py tests/frontend/microsoft-ops.vectors

The format is that of record_vectors.py.
"""
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

random = numpy.random.RandomState(0)
TYPES = {numpy.dtype("float32"): TensorProto.FLOAT, numpy.dtype("int32"): TensorProto.INT32,
         numpy.dtype("int64"): TensorProto.INT64}


def real(*shape):
    return (random.rand(*shape) * 2 - 1).astype(numpy.float32)


def caches(length, half):
    angles = numpy.arange(length)[:, None] / 10.0 ** numpy.arange(half)[None, :]
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def varint(number):
    data = bytearray()
    while True:
        data.append((number & 127) | (128 if number > 127 else 0))
        number >>= 7
        if number == 0:
            return bytes(data)


def delimited(message):
    data = message.SerializeToString()
    return varint(len(data)) + data


def case(name, op, inputs, outputs=1, constants=(), domain="com.microsoft", **attributes):
    """`inputs`: arrays or None; those in `constants` become initializers."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    results = [f"y{i}" if (outputs >> i) & 1 else "" for i in range(outputs.bit_length())]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = [(i, n, v) for i, (n, v) in enumerate(zip(names, inputs)) if v is not None]
    infos = [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape)
             for i, n, v in given if i not in constants]
    weights = [numpy_helper.from_array(v, n) for i, n, v in given if i in constants]
    wanted = [r for r in results if r]
    graph = helper.make_graph([node], name, infos,
                              [helper.make_empty_tensor_value_info(r) for r in wanted], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {n: v for i, n, v in given if i not in constants}
    values = session.run(wanted, feeds)
    del model.graph.output[:]
    for result, value in zip(wanted, values):
        model.graph.output.append(helper.make_tensor_value_info(result, TYPES[value.dtype], value.shape))
    data = onnx.GraphProto(name=name)
    for key, value in list(feeds.items()) + list(zip(wanted, values)):
        data.initializer.append(numpy_helper.from_array(value, key))
    return delimited(model) + delimited(data)


def activations():
    x, bias = real(2, 3, 6), real(6)
    yield case("ms_gelu", "Gelu", [x])
    yield case("ms_bias_gelu", "BiasGelu", [x, bias])
    yield case("ms_fast_gelu", "FastGelu", [x])
    yield case("ms_fast_gelu_bias", "FastGelu", [x, bias])
    yield case("ms_quick_gelu", "QuickGelu", [x], alpha=1.3)


def norms():
    x, skip, scale, shift, bias = real(2, 3, 8), real(2, 3, 8), real(8), real(8), real(8)
    yield case("ms_skip_layer_norm", "SkipLayerNormalization", [x, skip, scale, shift, bias], outputs=0b1001)
    yield case("ms_skip_layer_norm_plain", "SkipLayerNormalization", [x, skip, scale], epsilon=1e-5)
    yield case("ms_skip_rms_norm", "SkipSimplifiedLayerNormalization", [x, skip, scale, bias], outputs=0b1001)
    yield case("ms_simplified_layer_norm", "SimplifiedLayerNormalization", [x, scale], domain="", epsilon=1e-5)
    ids = random.randint(0, 11, (2, 4)).astype(numpy.int32)
    segments = random.randint(0, 2, (2, 4)).astype(numpy.int32)
    mask = numpy.array([[1, 1, 1, 0], [1, 1, 0, 0]], numpy.int32)
    yield case("ms_embed_layer_norm", "EmbedLayerNormalization",
               [ids, segments, real(11, 8), real(6, 8), real(2, 8), scale, shift, mask], outputs=0b11,
               epsilon=1e-5)


def products():
    yield case("ms_fused_matmul", "FusedMatMul", [real(2, 4, 3), real(2, 4, 5)], transA=1, alpha=0.5)
    yield case("ms_fused_matmul_batch", "FusedMatMul", [real(3, 2, 4), real(2, 4, 5)], transBatchA=1)
    yield case("ms_fused_matmul_both", "FusedMatMul", [real(4, 2, 3), real(2, 5, 4)], transA=1, transBatchA=1,
               transB=1)
    yield case("ms_fused_gemm", "FusedGemm", [real(3, 4), real(5, 4), real(5)], transB=1, alpha=0.5, beta=2.0,
               activation="LeakyRelu", activation_alpha=0.2)
    yield case("ms_fused_conv", "FusedConv", [real(1, 3, 5, 5), real(4, 3, 3, 3), real(4)], activation="Relu",
               pads=[1, 1, 1, 1], constants=(1, 2))
    yield case("ms_fused_conv_clip", "FusedConv", [real(1, 3, 5, 5), real(4, 3, 3, 3)], activation="Clip",
               activation_params=[-0.4, 0.6], constants=(1,))


def attention():
    x, w, b = real(2, 4, 8), real(8, 24), real(24)
    yield case("ms_attention", "Attention", [x, w, b], num_heads=2)
    yield case("ms_attention_causal", "Attention", [x, w, b], num_heads=2, unidirectional=1)
    lengths = numpy.array([4, 2], numpy.int32)
    yield case("ms_attention_lengths", "Attention", [x, w, b, lengths], num_heads=2)
    mask = numpy.array([[1, 1, 1, 1], [1, 1, 0, 0]], numpy.int32)
    yield case("ms_attention_mask", "Attention", [x, w, b, mask], num_heads=2, scale=0.3)
    yield case("ms_attention_sizes", "Attention", [x, real(8, 28), real(28)], num_heads=2,
               qkv_hidden_sizes=[8, 8, 12])
    q, k, v = real(2, 4, 8), real(2, 5, 8), real(2, 5, 12)
    yield case("ms_multi_head", "MultiHeadAttention", [q, k, v], num_heads=2)
    yield case("ms_multi_head_bias", "MultiHeadAttention", [q, k, v, real(28)], num_heads=2)
    mask = numpy.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], numpy.int32)
    yield case("ms_multi_head_mask", "MultiHeadAttention", [q, k, v, None, mask, real(2, 2, 4, 5)], num_heads=2)
    cosine, sine = caches(8, 4)
    positions = numpy.array([[0, 1, 2], [3, 4, 5]], numpy.int64)
    yield case("ms_rotary", "RotaryEmbedding", [real(2, 3, 16), positions, cosine, sine], constants=(2, 3))
    yield case("ms_rotary_heads", "RotaryEmbedding",
               [real(2, 2, 3, 8), numpy.array([2], numpy.int64), cosine, sine], interleaved=1, constants=(2, 3))
    total, ends = numpy.array(4, numpy.int32), numpy.array([3, 3], numpy.int32)
    gqa = [real(2, 4, 64), real(2, 4, 32), real(2, 4, 32), None, None, ends, total]
    yield case("ms_group_query", "GroupQueryAttention", gqa, num_heads=4, kv_num_heads=2, outputs=0b111)
    cosine, sine = caches(4, 8)
    yield case("ms_group_query_rotary", "GroupQueryAttention", gqa + [cosine, sine], num_heads=4,
               kv_num_heads=2, do_rotary=1, outputs=0b111, constants=(7, 8))


def main():
    count, size = 0, 0
    with open(sys.argv[1], "wb") as file:
        for group in (activations, norms, products, attention):
            for text in group():
                file.write(text)
                count += 1
                size += len(text)
    print(f"{count} cases, {size} bytes, onnxruntime {onnxruntime.__version__}")


main()
