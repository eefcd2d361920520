#!/usr/bin/env python3
"""Writes cases of the com.microsoft operators with values computed by ONNX Runtime.

    python3 -m venv venv && venv/bin/pip install onnx==1.19.1 onnxruntime==1.32.0
    venv/bin/python tests/frontend/record_microsoft.py tests/frontend/microsoft-ops.vectors

The format is that of vector_file.py.
"""
import math
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from vector_file import VectorFile, case_bytes

random = numpy.random.RandomState(0)
TYPES = {numpy.dtype("float32"): TensorProto.FLOAT, numpy.dtype("int32"): TensorProto.INT32,
         numpy.dtype("int64"): TensorProto.INT64}


def real(*shape):
    return (random.rand(*shape) * 2 - 1).astype(numpy.float32)


def caches(length, half):
    angles = numpy.arange(length)[:, None] / 10.0 ** numpy.arange(half)[None, :]
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def case(name, op, inputs, outputs=1, constants=(), domain="com.microsoft", expected=None, **attributes):
    """`inputs`: arrays or None; those in `constants` become initializers. `expected`: what the first result must be near."""
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
    if expected is not None:
        numpy.testing.assert_allclose(values[0], expected, rtol=1e-4, atol=1e-5)
    del model.graph.output[:]
    for result, value in zip(wanted, values):
        model.graph.output.append(helper.make_tensor_value_info(result, TYPES[value.dtype], value.shape))
    data = onnx.GraphProto(name=name)
    for key, value in list(feeds.items()) + list(zip(wanted, values)):
        data.initializer.append(numpy_helper.from_array(value, key))
    return case_bytes(model, data)


def graph_case(name, nodes, values):
    """Nodes over x0, x1, ... that end in y0, y1, ..."""
    wanted = sorted(o for node in nodes for o in node.output if o.startswith("y"))
    infos = [helper.make_tensor_value_info(f"x{i}", TYPES[v.dtype], v.shape) for i, v in enumerate(values)]
    graph = helper.make_graph(nodes, name, infos, [helper.make_empty_tensor_value_info(r) for r in wanted])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {f"x{i}": v for i, v in enumerate(values)}
    results = session.run(wanted, feeds)
    del model.graph.output[:]
    for result, value in zip(wanted, results):
        value = numpy.asarray(value)
        model.graph.output.append(helper.make_tensor_value_info(result, TYPES[value.dtype], value.shape))
    data = onnx.GraphProto(name=name)
    for key, value in list(feeds.items()) + list(zip(wanted, results)):
        data.initializer.append(numpy_helper.from_array(numpy.asarray(value), key))
    return case_bytes(model, data)


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
    yield from cached_attention()


def cached_attention():
    """A cache of 5 rows: full after the new ones, longer than what it holds, and of two lengths."""
    def step(rows, past, ends, total):
        batch = len(ends)
        return [real(batch, rows, 64), real(batch, rows, 32), real(batch, rows, 32), real(batch, 2, past, 16), real(batch, 2, past, 16),
                numpy.array(ends, numpy.int32), numpy.array(total, numpy.int32)]

    heads = {"num_heads": 4, "kv_num_heads": 2}
    cosine, sine = caches(16, 8)
    yield case("ms_group_query_past", "GroupQueryAttention", step(1, 5, [5, 5], 6), outputs=0b111, **heads)
    yield case("ms_group_query_past_chunk", "GroupQueryAttention", step(3, 5, [7], 8) + [cosine, sine],
               outputs=0b111, constants=(7, 8), do_rotary=1, rotary_interleaved=1, scale=0.4, **heads)
    yield case("ms_group_query_past_lengths", "GroupQueryAttention", step(1, 5, [5, 2], 6) + [cosine, sine],
               outputs=0b111, constants=(7, 8), do_rotary=1, **heads)
    yield case("ms_group_query_static", "GroupQueryAttention", step(1, 8, [4, 6], 7), outputs=0b111, constants=(6,), **heads)
    yield case("ms_group_query_window", "GroupQueryAttention", step(2, 5, [6], 7), outputs=0b111,
               local_window_size=3, softcap=0.6, **heads)
    bias = real(1, 4, 1, 6)
    yield case("ms_group_query_bias", "GroupQueryAttention", step(1, 5, [5, 5], 6) + [None, None, None, bias],
               outputs=0b111, **heads)


def sinks():
    """A score without a key, of 0 or of each head's own."""
    def step(rows, past, ends, total):
        batch = len(ends)
        return [real(batch, rows, 64), real(batch, rows, 32), real(batch, rows, 32), real(batch, 2, past, 16), real(batch, 2, past, 16),
                numpy.array(ends, numpy.int32), numpy.array(total, numpy.int32)]

    def prompt():
        return [real(2, 4, 64), real(2, 4, 32), real(2, 4, 32), None, None, numpy.array([3, 3], numpy.int32), numpy.array(4, numpy.int32)]

    heads = {"num_heads": 4, "kv_num_heads": 2, "outputs": 0b111}
    nothing = [None] * 4
    yield checked("ms_group_query_smooth", prompt(), numpy.zeros(4), smooth_softmax=1, **heads)
    sink = numpy.array([-2, 0.5, 3, 40], numpy.float32)
    yield checked("ms_group_query_sink", prompt() + nothing + [sink], sink, **heads)
    yield checked("ms_group_query_sink_scale", prompt() + nothing + [sink], sink, scale=2.5, **heads)
    yield case("ms_group_query_smooth_past", "GroupQueryAttention", step(1, 5, [5, 2], 6), smooth_softmax=1, **heads)
    yield case("ms_group_query_sink_window", "GroupQueryAttention", step(2, 5, [6], 7) + nothing + [real(4)],
               local_window_size=3, softcap=0.6, **heads)
    bias = real(1, 4, 1, 6)
    yield case("ms_group_query_sink_bias", "GroupQueryAttention", step(1, 5, [5, 5], 6) + [None, None, None, bias, real(4)], **heads)
    yield checked("ms_group_query_sink_smooth", prompt() + nothing + [sink], sink, smooth_softmax=1, **heads)


def checked(name, inputs, sink, scale=None, **attributes):
    """ONNX Runtime's values, after comparing them with the formula in double precision."""
    q, k, v = (x.astype(numpy.float64).reshape(2, 4, -1, 16).transpose(0, 2, 1, 3) for x in inputs[:3])
    k, v = numpy.repeat(k, 2, 1), numpy.repeat(v, 2, 1)
    scores = q @ k.transpose(0, 1, 3, 2) * (scale or 0.25)
    powers = numpy.tril(numpy.exp(scores))
    shares = powers / (powers.sum(-1, keepdims=True) + numpy.exp(sink.astype(numpy.float64))[None, :, None, None])
    expected = (shares @ v).transpose(0, 2, 1, 3).reshape(2, 4, 64)
    if scale:
        attributes["scale"] = scale
    return case(name, "GroupQueryAttention", inputs, expected=expected, **attributes)


def regions():
    """Forms outside com.microsoft that libonnx-testdata lacks."""
    boxes = numpy.array([[0, 0, 0, 7, 5], [1, 2, 1, 9, 8], [0, 3, 3, 3, 3], [1, -1, 0, 4, 12]], numpy.float32)
    yield case("max_roi_pool", "MaxRoiPool", [real(2, 3, 10, 10), boxes], domain="", pooled_shape=[2, 3], constants=(1,))
    yield case("max_roi_pool_scaled", "MaxRoiPool", [real(2, 2, 6, 6), boxes], domain="", pooled_shape=[3, 2],
               spatial_scale=0.5, constants=(1,))


def recorded(name, op, inputs, value, **attributes):
    """ONNX Runtime has the operator for other devices only: `value` is by its documentation, in double precision."""
    node = helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y0"], domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(f"x{i}", TYPES[v.dtype], v.shape) for i, v in enumerate(inputs)]
    graph = helper.make_graph([node], name, infos, [helper.make_tensor_value_info("y0", TensorProto.FLOAT, value.shape)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    data = onnx.GraphProto(name=name)
    for i, v in enumerate(inputs):
        data.initializer.append(numpy_helper.from_array(v, f"x{i}"))
    data.initializer.append(numpy_helper.from_array(value.astype(numpy.float32), "y0"))
    return case_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8), data)


def biased():
    def softmax(x, axis):
        flat = x.astype(numpy.float64).reshape(*x.shape[:axis], -1)
        powers = numpy.exp(flat - flat.max(-1, keepdims=True))
        return (powers / powers.sum(-1, keepdims=True)).reshape(x.shape)

    x, bias = real(2, 3, 4, 5), real(2, 1, 4, 5)
    yield recorded("ms_bias_softmax", "BiasSoftmax", [x, bias], softmax(x + bias, 2), axis=2, is_inner_broadcast=1)
    x, bias = real(2, 3, 4, 5), real(1, 1, 4, 5)
    yield recorded("ms_bias_softmax_outer", "BiasSoftmax", [x, bias], softmax(x + bias, 3), axis=3, is_inner_broadcast=0)
    x, bias, skip = real(2, 6, 8), real(8), real(2, 6, 8)
    yield recorded("ms_bias_add", "BiasAdd", [x, bias, skip], x.astype(numpy.float64) + bias + skip)
    whole = (x + bias).astype(numpy.float64)
    gelu = 0.5 * whole[..., 4:] * (1 + numpy.vectorize(math.erf)(whole[..., 4:] / math.sqrt(2)))
    yield recorded("ms_bias_split_gelu", "BiasSplitGelu", [x, bias], whole[..., :4] * gelu)


def sequences():
    """Several nodes: what a sequence holds is a tensor again at the end."""
    parts = [real(2, 3), real(2, 2), real(2, 4)]

    def build(name, nodes, values):
        return graph_case(name, nodes, values)

    yield build("sequence_concat", [helper.make_node("SequenceConstruct", ["x0", "x1", "x2"], ["s"]),
                                    helper.make_node("ConcatFromSequence", ["s"], ["y0"], axis=1)], parts)
    yield build("sequence_insert_erase", [
        helper.make_node("SequenceConstruct", ["x0", "x1"], ["s"]),
        helper.make_node("Constant", [], ["one"], value_int=1), helper.make_node("Constant", [], ["first"], value_int=0),
        helper.make_node("SequenceInsert", ["s", "x2", "one"], ["t"]), helper.make_node("SequenceErase", ["t", "first"], ["u"]),
        helper.make_node("ConcatFromSequence", ["u"], ["y0"], axis=1), helper.make_node("SequenceLength", ["u"], ["y1"])], parts)
    yield build("sequence_split_at", [
        helper.make_node("SplitToSequence", ["x0"], ["s"], axis=1, keepdims=0),
        helper.make_node("Constant", [], ["last"], value_int=-1), helper.make_node("SequenceAt", ["s", "last"], ["y0"])],
        parts[:1])
    yield build("sequence_stack", [helper.make_node("SequenceConstruct", ["x0", "x1"], ["s"]),
                                   helper.make_node("ConcatFromSequence", ["s"], ["y0"], axis=0, new_axis=1)],
                [real(2, 3), real(2, 3)])


def main():
    with VectorFile(sys.argv[1]) as file:
        for group in (activations, norms, products, attention, regions, biased, sequences, sinks):
            for text in group():
                file.write(text)
    print(file.summary(f"onnxruntime {onnxruntime.__version__}"))


main()
