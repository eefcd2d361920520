#include "tools/sluice/ProbeNetworks.h"

#include <cstdint>

namespace sluice::cli {
namespace {

using Shape = std::vector<int64_t>;

std::string list(const Shape &shape, const char *separator) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : separator) + std::to_string(size);
  return text;
}

std::string tensor(const Shape &shape, const char *element = "f32") {
  return "tensor<" + list(shape, "x") + (shape.empty() ? "" : "x") + element + ">";
}

std::string array(const Shape &values) {
  return values.empty() ? "array<i64>" : "array<i64: " + list(values, ", ") + ">";
}

struct Value {
  std::string name;
  Shape shape;
};

/// Writes a module operation by operation.
class NetworkText {
public:
  Value input(const Shape &shape, const char *element) {
    head = "func.func @forward(%x: " + tensor(shape, element) + " {graph.name = \"x\"})";
    return {"%x", shape};
  }

  Value parameter(const Shape &shape) {
    std::string symbol = "@\"param/p" + std::to_string(next) + "\"";
    symbols += "graph.parameter " + symbol + " : " + tensor(shape) +
               " \"parameter\" {trainable}\n";
    return line("graph.read " + symbol + " : " + tensor(shape), shape);
  }

  /// x [..., in] times w [out, in], plus a bias.
  Value dense(const Value &x, int64_t out) {
    int64_t last = int64_t(x.shape.size()) - 1;
    Value w = parameter({out, x.shape.back()});
    Value y = contract(x, w, {}, {}, {last}, {1});
    return add(y, broadcast(parameter({out}), y.shape));
  }

  Value contract(const Value &a, const Value &b, const Shape &aBatch, const Shape &bBatch,
                 const Shape &aSum, const Shape &bSum) {
    Shape shape;
    for (int64_t d : aBatch)
      shape.push_back(a.shape[d]);
    auto free = [&](const Value &v, const Shape &batch, const Shape &sum) {
      for (int64_t d = 0; d < int64_t(v.shape.size()); ++d) {
        bool used = false;
        for (const Shape *dims : {&batch, &sum})
          for (int64_t other : *dims)
            used |= other == d;
        if (!used)
          shape.push_back(v.shape[d]);
      }
    };
    free(a, aBatch, aSum), free(b, bBatch, bSum);
    return line("graph.contract " + a.name + ", " + b.name +
                    " {lhs_batch = " + array(aBatch) + ", lhs_contract = " + array(aSum) +
                    ", rhs_batch = " + array(bBatch) + ", rhs_contract = " + array(bSum) +
                    "} : (" + tensor(a.shape) + ", " + tensor(b.shape) + ") -> " +
                    tensor(shape),
                shape);
  }

  Value broadcast(const Value &x, const Shape &shape) {
    return line("graph.broadcast " + x.name + " {shape = " + array(shape) + "} : (" +
                    tensor(x.shape) + ") -> " + tensor(shape),
                shape);
  }
  Value add(const Value &a, const Value &b) {
    return line("graph.add " + a.name + ", " + b.name + " : (" + tensor(a.shape) + ", " +
                    tensor(b.shape) + ") -> " + tensor(a.shape),
                a.shape);
  }
  Value relu(const Value &x) { return unary("relu", x); }
  Value gelu(const Value &x) { return unary("gelu", x); }
  Value softmax(const Value &x) {
    int64_t last = int64_t(x.shape.size()) - 1;
    return unary("softmax", x, " {axis = " + std::to_string(last) + " : i64}");
  }

  Value layerNorm(const Value &x) {
    int64_t last = int64_t(x.shape.size()) - 1;
    Value scale = parameter({x.shape.back()}), shift = parameter({x.shape.back()});
    Shape rows = x.shape;
    rows.back() = 1;
    std::string name = "%n" + std::to_string(next++);
    std::string vector = tensor({x.shape.back()});
    body += name + ":3 = graph.layer_norm " + x.name + ", " + scale.name + ", " +
            shift.name + " {axis = " + std::to_string(last) +
            " : i64, epsilon = 1.0e-5 : f64} : (" + tensor(x.shape) + ", " + vector +
            ", " + vector + ") -> (" + tensor(x.shape) + ", " + tensor(rows) + ", " +
            tensor(rows) + ")\n";
    return {name + "#0", x.shape};
  }

  Value reshape(const Value &x, const Shape &shape) {
    return line("graph.reshape " + x.name + " {shape = " + array(shape) + "} : (" +
                    tensor(x.shape) + ") -> " + tensor(shape),
                shape);
  }
  Value transpose(const Value &x, const Shape &permutation) {
    Shape shape;
    for (int64_t d : permutation)
      shape.push_back(x.shape[d]);
    return line("graph.transpose " + x.name + " {permutation = " + array(permutation) +
                    "} : (" + tensor(x.shape) + ") -> " + tensor(shape),
                shape);
  }
  Value gather(const Value &table, const Value &indices) {
    Shape shape = indices.shape;
    shape.push_back(table.shape[1]);
    return line("graph.gather " + table.name + ", " + indices.name +
                    " {axis = 0 : i64} : (" + tensor(table.shape) + ", " +
                    tensor(indices.shape, "i64") + ") -> " + tensor(shape),
                shape);
  }

  /// 3x3 with pads, plus a bias, relu.
  Value conv(const Value &x, int64_t channels, int64_t stride) {
    Value w = parameter({channels, x.shape[1], 3, 3});
    Shape shape = {x.shape[0], channels, x.shape[2] / stride, x.shape[3] / stride};
    Value y = line("graph.conv " + x.name + ", " + w.name +
                       " {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = "
                       "array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = " +
                       array({stride, stride}) + "} : (" + tensor(x.shape) + ", " +
                       tensor(w.shape) + ") -> " + tensor(shape),
                   shape);
    Value bias = reshape(parameter({channels}), {1, channels, 1, 1});
    return relu(add(y, broadcast(bias, shape)));
  }
  Value pool(const Value &x) {
    Shape shape = {x.shape[0], x.shape[1], x.shape[2] / 2, x.shape[3] / 2};
    return line(
        "graph.max_pool " + x.name +
            " {dilations = array<i64: 1, 1>, kernel = array<i64: 2, 2>, output = " +
            array({shape[2], shape[3]}) +
            ", pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, "
            "strides = array<i64: 2, 2>} : (" +
            tensor(x.shape) + ") -> " + tensor(shape),
        shape);
  }

  /// A pre-norm block: attention of `heads` heads and a perceptron of four times the
  /// width.
  Value block(const Value &x, int64_t heads) {
    int64_t batch = x.shape[0], length = x.shape[1], width = x.shape[2];
    auto head = [&](const Value &y) {
      return transpose(reshape(y, {batch, length, heads, width / heads}), {0, 2, 1, 3});
    };
    Value norm = layerNorm(x);
    Value q = head(dense(norm, width)), k = head(dense(norm, width)),
          v = head(dense(norm, width));
    Value weights = softmax(contract(q, k, {0, 1}, {0, 1}, {3}, {3}));
    Value mixed = transpose(contract(weights, v, {0, 1}, {0, 1}, {3}, {2}), {0, 2, 1, 3});
    Value y = add(x, dense(reshape(mixed, x.shape), width));
    return add(y, dense(gelu(dense(layerNorm(y), 4 * width)), width));
  }

  ProbeNetwork finish(const std::string &name, const Value &logits) {
    return {name, "module attributes {graph.model_name = \"" + name +
                      "\", graph.model_hash = \"0\"} {\n" + symbols + head + " -> (" +
                      tensor(logits.shape) + " {graph.name = \"logits\"}) {\n" + body +
                      "return " + logits.name + " : " + tensor(logits.shape) +
                      "\n}\n}\n"};
  }

private:
  Value unary(const char *op, const Value &x, const std::string &attributes = "") {
    return line("graph." + std::string(op) + " " + x.name + attributes + " : (" +
                    tensor(x.shape) + ") -> " + tensor(x.shape),
                x.shape);
  }
  Value line(const std::string &operation, const Shape &shape) {
    std::string name = "%v" + std::to_string(next++);
    body += name + " = " + operation + "\n";
    return {name, shape};
  }

  std::string symbols, head, body;
  int next = 0;
};

ProbeNetwork perceptron(const std::string &name, int64_t batch, const Shape &widths) {
  NetworkText text;
  Value x = text.input({batch, widths[0]}, "f32");
  for (size_t i = 1; i < widths.size(); ++i) {
    x = text.dense(x, widths[i]);
    if (i + 1 < widths.size())
      x = text.relu(x);
  }
  return text.finish(name, x);
}

ProbeNetwork images(const std::string &name, int64_t batch, int64_t channels,
                    int64_t size, const Shape &layers, int64_t stride) {
  NetworkText text;
  Value x = text.input({batch, channels, size, size}, "f32");
  for (int64_t layer : layers) {
    x = text.conv(x, layer, stride);
    if (x.shape[2] % 2 == 0 && stride == 1)
      x = text.pool(x);
  }
  x = text.reshape(x, {batch, x.shape[1] * x.shape[2] * x.shape[3]});
  return text.finish(name, text.dense(x, 10));
}

ProbeNetwork decoder(const std::string &name, int64_t batch, int64_t length,
                     int64_t width, int64_t heads, int64_t vocabulary) {
  NetworkText text;
  Value tokens = text.input({batch, length}, "i64");
  Value x = text.gather(text.parameter({vocabulary, width}), tokens);
  x = text.layerNorm(text.block(x, heads));
  return text.finish(name, text.dense(x, vocabulary));
}

} // namespace

std::vector<ProbeNetwork> probeNetworks() {
  return {perceptron("narrow", 64, {784, 512, 512, 10}),
          perceptron("wide", 128, {1024, 2048, 512, 100}),
          images("images", 64, 1, 28, {16, 32}, 1),
          images("channels", 16, 32, 28, {64, 64, 128}, 1),
          images("strides", 16, 16, 32, {32, 64}, 2),
          decoder("short", 16, 64, 128, 4, 80),
          decoder("long", 2, 256, 256, 8, 1000),
          decoder("words", 4, 64, 768, 12, 16000)};
}

} // namespace sluice::cli
