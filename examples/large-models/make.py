#!/usr/bin/env python3
"""Models of up to 65 billion parameters for `sluice fit`: a few hundred KB each, since their weights are never written.

    python3 make.py llama-7b llama-65b bert-large resnet-152 clip-l14 [-o FOLDER]

Decoders in the manner of LLaMA (Touvron et al., 2023, table 2), BERT-large (Devlin et al., 2018), ResNet-152 (He et
al., 2016) and a pair of encoders of the sizes of CLIP ViT-L/14 (Radford et al., 2021). Weights are references to a file
beside the model that does not exist; batch and sequence are symbolic.
"""
import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DECODERS = {
    "llama-7b": {"layers": 32, "width": 4096, "heads": 32, "inner": 11008, "vocabulary": 32000},
    "llama-65b": {"layers": 80, "width": 8192, "heads": 64, "inner": 22016, "vocabulary": 32000},
}
ENCODERS = {"bert-large": {"layers": 24, "width": 1024, "heads": 16, "inner": 4096, "vocabulary": 30522, "positions": 8192}}

RESNETS = {"resnet-152": {"blocks": (3, 8, 36, 3), "classes": 1000}}
PAIRS = {"clip-l14": {"layers": 24, "width": 1024, "heads": 16, "patch": 14, "size": 224, "text_layers": 12, "text_width": 768, "text_heads": 12,
                      "length": 77, "vocabulary": 49408, "embedding": 768}}


class Graph:
    def __init__(self):
        self.nodes, self.initializers = [], []
        self.offset, self.count, self.elements = 0, 0, 0

    def weight(self, name, *shape):
        """A weight whose bytes are nowhere."""
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        size = 4 * int(np.prod(shape, dtype=np.int64))  # of no dimensions: one number
        for key, value in (("location", "weights.bin"), ("offset", self.offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        self.offset += size
        self.elements += size // 4
        self.initializers.append(tensor)
        return name

    def constant(self, values, dtype):
        """A number of the model's code: no initializer, which would be a weight."""
        return self.node("Constant", value=numpy_helper.from_array(np.asarray(values, dtype)))

    def node(self, op, *inputs, outputs=1, name=None, **attributes):
        self.count += 1
        names = [f"{name or op.lower()}_{self.count}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"{name or op}_{self.count}", **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x, name, inputs, outputs, bias):
        y = self.node("MatMul", x, self.weight(f"{name}.weight", inputs, outputs), name=name)
        return self.node("Add", y, self.weight(f"{name}.bias", outputs), name=name) if bias else y

    def split_heads(self, x, heads, size):
        x = self.node("Reshape", x, self.constant([0, 0, heads, size], np.int64))
        return self.node("Transpose", x, perm=[0, 2, 1, 3])

    def join_heads(self, x, width):
        x = self.node("Transpose", x, perm=[0, 2, 1, 3])
        return self.node("Reshape", x, self.constant([0, 0, width], np.int64))

    def conv(self, x, name, inputs, outputs, size, stride=1):
        return self.node("Conv", x, self.weight(f"{name}.weight", outputs, inputs, size, size), kernel_shape=[size, size], strides=[stride, stride],
                         pads=[size // 2] * 4, name=name)

    def batch_norm(self, x, name, channels):
        """In training mode; running statistics are no weights that train."""
        weights = [self.weight(f"{name}.{part}", channels) for part in ("weight", "bias", "running_mean", "running_var")]
        return self.node("BatchNormalization", x, *weights, outputs=3, training_mode=1, name=name)[0]

    def save(self, path, inputs, logits, shape):
        graph = helper.make_graph(self.nodes, path.stem, inputs, [helper.make_tensor_value_info(logits, TensorProto.FLOAT, shape)], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        print(f"{path}: {self.elements / 1e9:.2f} billion parameters, {path.stat().st_size} bytes")


def length_of(g, tokens):
    shape = g.node("Shape", tokens)
    return g.node("Gather", shape, g.constant(1, np.int64), axis=0)


def rotary(g, tokens, size):
    """Cosines and sines [length, size] of the positions times the frequencies."""
    positions = g.node("Range", g.constant(0, np.int64), length_of(g, tokens), g.constant(1, np.int64))
    positions = g.node("Unsqueeze", g.node("Cast", positions, to=TensorProto.FLOAT), g.constant([1], np.int64))
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = g.node("Mul", positions, g.constant(np.concatenate([frequencies, frequencies])[None], np.float32))
    return g.node("Cos", angles), g.node("Sin", angles)


def rotate(g, x, cos, sin, size):
    axes, one = g.constant([3], np.int64), g.constant([size // 2], np.int64)
    low = g.node("Slice", x, g.constant([0], np.int64), one, axes)
    high = g.node("Slice", x, one, g.constant([size], np.int64), axes)
    turned = g.node("Concat", g.node("Neg", high), low, axis=3)
    return g.node("Add", g.node("Mul", x, cos), g.node("Mul", turned, sin))


def rms_norm(g, x, name, width):
    mean = g.node("ReduceMean", g.node("Mul", x, x), axes=[-1], keepdims=1)
    root = g.node("Sqrt", g.node("Add", mean, g.constant(1e-5, np.float32)))
    return g.node("Mul", g.node("Div", x, root), g.weight(f"{name}.weight", width), name=name)


def layer_norm(g, x, name, width):
    return g.node("LayerNormalization", x, g.weight(f"{name}.weight", width), g.weight(f"{name}.bias", width), axis=-1, epsilon=1e-12, name=name)


def attention(g, q, k, v, size, future):
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.node("Div", scores, g.constant(np.sqrt(size), np.float32))
    if future:
        scores = g.node("Where", future, g.constant(-np.inf, np.float32), scores)
    return g.node("MatMul", g.node("Softmax", scores, axis=-1), v)


def decoder(path, layers, width, heads, inner, vocabulary):
    g, size = Graph(), width // heads
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "sequence"])
    x = g.node("Gather", g.weight("embed_tokens.weight", vocabulary, width), "tokens", axis=0, name="embed")
    cos, sin = rotary(g, "tokens", size)
    length = g.node("Unsqueeze", length_of(g, "tokens"), g.constant([0], np.int64))
    square = g.node("ConstantOfShape", g.node("Concat", length, length, axis=0), value=numpy_helper.from_array(np.array([1], np.float32)))
    future = g.node("Cast", g.node("Trilu", square, g.constant(1, np.int64), upper=1), to=TensorProto.BOOL)
    for i in range(layers):
        prefix = f"layers.{i}"
        y = rms_norm(g, x, f"{prefix}.input_layernorm", width)
        q, k, v = (g.split_heads(g.linear(y, f"{prefix}.self_attn.{n}_proj", width, width, False), heads, size) for n in "qkv")
        mixed = attention(g, rotate(g, q, cos, sin, size), rotate(g, k, cos, sin, size), v, size, future)
        x = g.node("Add", x, g.linear(g.join_heads(mixed, width), f"{prefix}.self_attn.o_proj", width, width, False))
        y = rms_norm(g, x, f"{prefix}.post_attention_layernorm", width)
        gate = g.linear(y, f"{prefix}.mlp.gate_proj", width, inner, False)
        gate = g.node("Mul", gate, g.node("Sigmoid", gate))
        y = g.node("Mul", gate, g.linear(y, f"{prefix}.mlp.up_proj", width, inner, False))
        x = g.node("Add", x, g.linear(y, f"{prefix}.mlp.down_proj", inner, width, False))
    logits = g.linear(rms_norm(g, x, "norm", width), "lm_head", width, vocabulary, False)
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    g.save(path, [tokens], "logits", ["batch", "sequence", vocabulary])


def encoder(path, layers, width, heads, inner, vocabulary, positions):
    """BERT with its masked-language head; no dropout, one segment."""
    g, size = Graph(), width // heads
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "sequence"])
    x = g.node("Gather", g.weight("embeddings.word.weight", vocabulary, width), "tokens", axis=0)
    place = g.node("Range", g.constant(0, np.int64), length_of(g, "tokens"), g.constant(1, np.int64))
    x = g.node("Add", x, g.node("Gather", g.weight("embeddings.position.weight", positions, width), place, axis=0))
    x = layer_norm(g, x, "embeddings.norm", width)
    for i in range(layers):
        prefix = f"layer.{i}"
        q, k, v = (g.split_heads(g.linear(x, f"{prefix}.attention.{n}", width, width, True), heads, size) for n in ("query", "key", "value"))
        y = g.linear(g.join_heads(attention(g, q, k, v, size, None), width), f"{prefix}.attention.output", width, width, True)
        x = layer_norm(g, g.node("Add", x, y), f"{prefix}.attention.norm", width)
        y = g.linear(x, f"{prefix}.intermediate", width, inner, True)
        half = g.node("Mul", y, g.constant(0.5, np.float32))
        y = g.node("Mul", half, g.node("Add", g.node("Erf", g.node("Div", y, g.constant(np.sqrt(2), np.float32))), g.constant(1, np.float32)))
        x = layer_norm(g, g.node("Add", x, g.linear(y, f"{prefix}.output", inner, width, True)), f"{prefix}.norm", width)
    logits = g.linear(x, "head", width, vocabulary, True)
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    g.save(path, [tokens], "logits", ["batch", "sequence", vocabulary])


def resnet(path, blocks, classes):
    """Bottlenecks with the stride in the 3x3 convolution."""
    g = Graph()
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])
    x = g.node("Relu", g.batch_norm(g.conv("image", "conv1", 3, 64, 7, 2), "bn1", 64))
    x, width = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for stage, count in enumerate(blocks):
        inner = 64 << stage
        for i in range(count):
            prefix, stride = f"layer{stage + 1}.{i}", 2 if stage and not i else 1
            y = g.node("Relu", g.batch_norm(g.conv(x, f"{prefix}.conv1", width, inner, 1), f"{prefix}.bn1", inner))
            y = g.node("Relu", g.batch_norm(g.conv(y, f"{prefix}.conv2", inner, inner, 3, stride), f"{prefix}.bn2", inner))
            y = g.batch_norm(g.conv(y, f"{prefix}.conv3", inner, 4 * inner, 1), f"{prefix}.bn3", 4 * inner)
            if not i:
                x = g.batch_norm(g.conv(x, f"{prefix}.downsample.0", width, 4 * inner, 1, stride), f"{prefix}.downsample.1", 4 * inner)
            x, width = g.node("Relu", g.node("Add", x, y)), 4 * inner
    x = g.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    g.nodes.append(helper.make_node("Identity", [g.linear(x, "fc", width, classes, True)], ["logits"]))
    g.save(path, [image], "logits", ["batch", classes])


def transformer(g, x, prefix, layers, width, heads, future):
    """Pre-norm blocks with GELU by its sigmoid form."""
    size = width // heads
    for i in range(layers):
        name = f"{prefix}.layers.{i}"
        y = layer_norm(g, x, f"{name}.ln_1", width)
        q, k, v = (g.split_heads(g.linear(y, f"{name}.{n}_proj", width, width, True), heads, size) for n in "qkv")
        y = g.join_heads(attention(g, q, k, v, size, future), width)
        x = g.node("Add", x, g.linear(y, f"{name}.out_proj", width, width, True))
        y = g.linear(layer_norm(g, x, f"{name}.ln_2", width), f"{name}.fc1", width, 4 * width, True)
        y = g.node("Mul", y, g.node("Sigmoid", g.node("Mul", y, g.constant(1.702, np.float32))))
        x = g.node("Add", x, g.linear(y, f"{name}.fc2", 4 * width, width, True))
    return layer_norm(g, x, f"{prefix}.ln_post", width)


def pair(path, layers, width, heads, patch, size, text_layers, text_width, text_heads, length, vocabulary, embedding):
    """Logits of every image of the batch against every text: the contrastive loss is their cross entropy against the diagonal."""
    g, side = Graph(), size // patch
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, size, size])
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", length])
    x = g.node("Conv", "image", g.weight("image.patch.weight", width, 3, patch, patch), kernel_shape=[patch, patch], strides=[patch, patch])
    x = g.node("Transpose", g.node("Reshape", x, g.constant([0, width, side * side], np.int64)), perm=[0, 2, 1])
    x = g.node("Add", x, g.weight("image.positions.weight", side * side, width))
    x = g.node("ReduceMean", transformer(g, x, "image", layers, width, heads, None), axes=[1], keepdims=0)
    images = g.linear(x, "image.projection", width, embedding, False)
    x = g.node("Gather", g.weight("text.tokens.weight", vocabulary, text_width), "tokens", axis=0)
    x = g.node("Add", x, g.weight("text.positions.weight", length, text_width))
    future = g.constant(np.triu(np.ones((length, length), bool), 1), bool)
    x = transformer(g, x, "text", text_layers, text_width, text_heads, future)
    x = g.node("Gather", x, g.constant(length - 1, np.int64), axis=1)
    texts = g.linear(x, "text.projection", text_width, embedding, False)
    unit = [g.node("Div", e, g.node("ReduceL2", e, axes=[-1], keepdims=1)) for e in (images, texts)]
    logits = g.node("MatMul", unit[0], g.node("Transpose", unit[1], perm=[1, 0]))
    logits = g.node("Mul", logits, g.node("Exp", g.weight("logit_scale")))
    g.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    g.save(path, [image, tokens], "logits", ["batch", "batch"])


MODELS = {name: (make, sizes) for make, known in ((decoder, DECODERS), (encoder, ENCODERS), (resnet, RESNETS), (pair, PAIRS))
          for name, sizes in known.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("-o", "--out", default=".", type=pathlib.Path)
    parser.add_argument("--layers", type=int, help="other than the model's")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"unknown model '{name}', expected {', '.join(MODELS)}")
        make, sizes = MODELS[name]
        sizes = dict(sizes)
        if arguments.layers and "blocks" in sizes:
            sizes["blocks"] = tuple(min(arguments.layers, count) for count in sizes["blocks"])
        for key in {"layers", "text_layers"} & sizes.keys():
            sizes[key] = arguments.layers or sizes[key]
        make(arguments.out / f"{name}.onnx", **sizes)


if __name__ == "__main__":
    main()
