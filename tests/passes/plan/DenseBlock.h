#pragma once
// A dense block, as DenseNet has them: each layer reads all that came before it, joined.

#include <string>
#include <vector>

namespace sluice::models {

struct DenseBlock {
  int64_t batch = 2, size = 6;
  int64_t channels = 3;        // of the input
  std::vector<int64_t> growth; // channels that each layer adds
};

/// x [batch, channels, size, size] -> per layer: join, batch statistics, relu,
/// convolution
/// -> join, batch statistics, relu -> mean of the pixels -> logits [batch, 4].
class DenseBlockText {
public:
  explicit DenseBlockText(const DenseBlock &block) : block(block) {}

  std::string text() {
    join("%x", block.channels);
    for (int64_t growth : block.growth) {
      std::string active = activated(), name = "c" + std::to_string(next++);
      std::string weight = tensor({growth, channels, 3, 3});
      parameter(name, weight, "parameter");
      body += "  %" + name + " = graph.conv " + active + ", %" + name +
              "_w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin "
              "= array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (" +
              image(channels) + ", " + weight + ") -> " + image(growth) + "\n";
      join("%" + name, growth);
    }
    std::string mean = tensor({block.batch, channels}), head = tensor({4, channels});
    std::string active = activated(), logits = tensor({block.batch, 4});
    parameter("head", head, "parameter");
    body += "  %mean = graph.reduce " + active +
            " {kind = \"sum\", axes = array<i64: 2, 3>} : (" + image(channels) + ") -> " +
            mean +
            "\n  %logits = graph.contract %mean, %head_w {lhs_batch = array<i64>, "
            "rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = "
            "array<i64: 1>} : (" +
            mean + ", " + head + ") -> " + logits + "\n";
    return parameters + "func.func @forward(%x: " + image(block.channels) +
           " {graph.name = \"x\"}) -> (" + logits + " {graph.name = \"logits\"}) {\n" +
           reads + body + "  return %logits : " + logits + "\n}";
  }

private:
  static std::string tensor(const std::vector<int64_t> &shape) {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + "f32>";
  }
  std::string image(int64_t count) const {
    return tensor({block.batch, count, block.size, block.size});
  }

  void parameter(const std::string &name, const std::string &type,
                 const std::string &role, const std::string &fill = "") {
    parameters += "graph.parameter @\"param/" + name + "\" : " + type + " \"" + role +
                  "\"" + fill + "\n";
    if (role == "parameter")
      reads += "  %" + name + "_w = graph.read @\"param/" + name + "\" : " + type + "\n";
  }

  void join(const std::string &value, int64_t count) {
    if (channels == 0) {
      joined = value, channels = count;
      return;
    }
    std::string name = "%j" + std::to_string(next++);
    body += "  " + name + " = graph.concat " + joined + ", " + value +
            " {axis = 1 : i64} : (" + image(channels) + ", " + image(count) + ") -> " +
            image(channels + count) + "\n";
    joined = name, channels += count;
  }

  /// relu of what is joined so far, normalised.
  std::string activated() {
    std::string n = std::to_string(next++), vector = tensor({channels});
    parameter("g" + n, vector, "parameter");
    parameter("b" + n, vector, "parameter");
    parameter("m" + n, vector, "buffer");
    parameter("v" + n, vector, "buffer", " {fill = 1.0 : f64}");
    body += "  %n" + n + ":3 = graph.batch_norm_train " + joined + ", %g" + n + "_w, %b" +
            n +
            "_w {epsilon = 1.0e-5 : f64, momentum = 0.9 : f64, running_mean = "
            "@\"param/m" +
            n + "\", running_variance = @\"param/v" + n + "\"} : (" + image(channels) +
            ", " + vector + ", " + vector + ") -> (" + image(channels) + ", " + vector +
            ", " + vector + ")\n  %r" + n + " = graph.relu %n" + n + "#0 : (" +
            image(channels) + ") -> " + image(channels) + "\n";
    return "%r" + n;
  }

  const DenseBlock &block;
  std::string parameters, reads, body, joined;
  int64_t channels = 0, next = 0;
};

inline std::string denseBlock(const DenseBlock &block) {
  return DenseBlockText(block).text();
}

} // namespace sluice::models
