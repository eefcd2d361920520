#include "RecomputeSteps.h"

#include <algorithm>
#include <random>

namespace sluice::testing {
namespace {

using Values = std::vector<int32_t>;

/// Forward operations one by one, then their backward operations in reverse.
class StepBuilder {
public:
  int32_t input(int64_t bytes) { return value(bytes, true); }

  struct Forward {
    Values inputs, saved; ///< saved: what the backward operation reads
    double flops = 0;
    int64_t weightBytes = 0;
    bool sum = false; ///< its inputs' gradient is the result's
  };

  int32_t op(const Forward &forward, int64_t outBytes) {
    return op(forward, Values{outBytes > 0 ? value(outBytes) : value(0)})[0];
  }

  Values op(const Forward &forward, const Values &outputs) {
    problem.ops.push_back(
        {cost(forward.flops, forward.weightBytes, forward.inputs, outputs),
         forward.inputs, outputs, 0, false, true, block});
    records.push_back({forward, outputs});
    return outputs;
  }

  int32_t value(int64_t bytes, bool preexisting = false) {
    problem.values.push_back({bytes, preexisting, false, false});
    gradients.push_back(-1);
    return int32_t(problem.values.size()) - 1;
  }

  /// Statistics and the like, which get no gradient of their own.
  void withoutGradient(int32_t v) {
    problem.values[v].sizeBytes = std::max<int64_t>(problem.values[v].sizeBytes, 64);
    plain.push_back(v);
  }

  RecomputeProblem finish(int32_t loss) {
    problem.values[loss].liveAtEnd = true;
    for (size_t i = records.size(); i-- > 0;)
      backward(records[i]);
    return std::move(problem);
  }

  int32_t block = -1;

private:
  struct Record {
    Forward forward;
    Values outputs;
  };

  double cost(double flops, int64_t weights, const Values &in, const Values &out) const {
    double bytes = double(weights);
    for (int32_t v : in)
      bytes += double(problem.values[v].sizeBytes);
    for (int32_t v : out)
      bytes += double(problem.values[v].sizeBytes);
    return std::max(flops / 200e6, bytes / 1.5e6) + 3; // us
  }

  bool hasGradient(int32_t v) const {
    return !problem.values[v].preexisting &&
           std::find(plain.begin(), plain.end(), v) == plain.end();
  }

  void backward(const Record &record) {
    Values in = record.forward.saved, out;
    bool last = true;
    for (int32_t v : record.outputs)
      if (gradients[v] >= 0)
        in.push_back(gradients[v]), last = false;
    if (last && record.outputs[0] != records.back().outputs[0])
      return;
    for (int32_t v : record.forward.inputs) {
      if (!hasGradient(v))
        continue;
      if (record.forward.sum && gradients[v] < 0) {
        gradients[v] = gradients[record.outputs[0]];
        continue;
      }
      if (gradients[v] >= 0)
        in.push_back(gradients[v]);
      out.push_back(gradients[v] = value(problem.values[v].sizeBytes));
    }
    if (out.empty() && record.forward.sum)
      return;
    problem.ops.push_back(
        {cost(2 * record.forward.flops, 2 * record.forward.weightBytes, in, out), in, out,
         0, true, false, -1});
    if (record.forward.weightBytes) { // the gradient of the weights and its update
      int32_t weights = value(record.forward.weightBytes);
      problem.ops.back().outputs.push_back(weights);
      problem.ops.push_back({cost(0, 6 * record.forward.weightBytes, {weights}, {}),
                             {weights},
                             {},
                             0,
                             true,
                             false,
                             -1});
    }
  }

  RecomputeProblem problem;
  std::vector<Record> records;
  Values gradients, plain;
};

int32_t normalise(StepBuilder &step, int32_t x, int64_t bytes, int64_t statBytes) {
  int32_t stats = step.op({{x}, {}, 0, 0}, statBytes);
  step.withoutGradient(stats);
  return step.op({{x, stats}, {x, stats}, 0, 0}, bytes);
}

} // namespace

RecomputeProblem decoderStep(const DecoderShape &shape) {
  StepBuilder step;
  int64_t tokens = shape.batch * shape.sequence, h = shape.width;
  int64_t row = tokens * h * 2, stats = tokens * 8;
  auto product = [&](int32_t x, int64_t in, int64_t out) {
    return step.op(
        {{x}, {x}, 2.0 * double(tokens) * double(in) * double(out), in * out * 2},
        tokens * out * 2);
  };
  auto bias = [&](int32_t x, int64_t out) {
    return step.op({{x}, {}, 0, 0, true}, tokens * out * 2);
  };
  int32_t x = step.op({{step.input(tokens * 4)}, {}, 0, shape.vocabulary * h * 2}, row);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    step.block = int32_t(layer);
    int32_t normed = normalise(step, x, row, stats);
    int32_t qkv = bias(product(normed, h, 3 * h), 3 * h);
    int32_t out = step.value(row), sums = step.value(tokens * shape.heads * 4);
    step.withoutGradient(sums);
    double flops = 2.0 * double(tokens) * double(shape.sequence) * double(h);
    step.op({{qkv}, {qkv, out, sums}, flops, 0}, Values{out, sums});
    int32_t projected = product(out, h, h);
    x = step.op({{projected, x}, {}, 0, 0, true}, row);
    int32_t up = bias(product(normalise(step, x, row, stats), h, 4 * h), 4 * h);
    int32_t activated = step.op({{up}, {up}, 0, 0}, 4 * row);
    x = step.op({{bias(product(activated, 4 * h, h), h), x}, {}, 0, 0, true}, row);
  }
  step.block = -1;
  int32_t logits = product(normalise(step, x, row, stats), h, shape.vocabulary);
  int32_t loss = step.op({{logits}, {logits}, 0, 0}, 4);
  return step.finish(loss);
}

namespace {

/// Images of width * width pixels with channels of 4 bytes.
struct Images {
  int32_t value;
  int64_t width, channels;
};

class ConvStep {
public:
  explicit ConvStep(int64_t batch) : batch(batch) {}

  int64_t bytes(int64_t width, int64_t channels) const {
    return batch * width * width * channels * 4;
  }
  Images input(int64_t width, int64_t channels) {
    return {step.input(bytes(width, channels)), width, channels};
  }
  Images conv(Images x, int64_t channels, int64_t kernel, int64_t stride,
              bool depthwise = false) {
    int64_t width = x.width / stride, depth = depthwise ? 1 : x.channels;
    double flops =
        2.0 * double(batch * width * width * channels) * double(kernel * kernel * depth);
    int32_t y =
        step.op({{x.value}, {x.value}, flops, kernel * kernel * depth * channels * 4},
                bytes(width, channels));
    int32_t normed = normalise(step, y, bytes(width, channels), channels * 8);
    return {normed, width, channels};
  }
  Images relu(Images x) {
    int32_t y = step.value(bytes(x.width, x.channels));
    step.op({{x.value}, {y}, 0, 0}, Values{y});
    return {y, x.width, x.channels};
  }
  Images add(Images a, Images b) {
    return {step.op({{a.value, b.value}, {}, 0, 0, true}, bytes(a.width, a.channels)),
            a.width, a.channels};
  }
  RecomputeProblem classify(Images x) {
    int32_t pooled = step.op({{x.value}, {}, 0, 0}, batch * x.channels * 4);
    int32_t logits = step.op(
        {{pooled}, {pooled}, 2.0 * double(batch * x.channels) * 1000, x.channels * 4000},
        batch * 4000);
    return step.finish(step.op({{logits}, {logits}, 0, 0}, 4));
  }

private:
  StepBuilder step;
  int64_t batch;
};

} // namespace

RecomputeProblem resnet50Step(int64_t batch) {
  ConvStep net(batch);
  Images x = net.relu(net.conv(net.input(224, 3), 64, 7, 4));
  const int64_t depths[] = {3, 4, 6, 3};
  for (int64_t stage = 0; stage < 4; ++stage)
    for (int64_t i = 0; i < depths[stage]; ++i) {
      int64_t narrow = 64 << stage, stride = stage > 0 && i == 0 ? 2 : 1;
      Images y = net.relu(net.conv(x, narrow, 1, 1));
      y = net.relu(net.conv(y, narrow, 3, stride));
      y = net.conv(y, 4 * narrow, 1, 1);
      if (i == 0)
        x = net.conv(x, 4 * narrow, 1, stride);
      x = net.relu(net.add(y, x));
    }
  return net.classify(x);
}

RecomputeProblem mobilenetStep(int64_t batch) {
  ConvStep net(batch);
  Images x = net.relu(net.conv(net.input(224, 3), 32, 3, 2));
  const std::pair<int64_t, int64_t> layers[] = {
      {64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
      {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  for (auto [channels, stride] : layers) {
    x = net.relu(net.conv(x, x.channels, 3, stride, true));
    x = net.relu(net.conv(x, channels, 1, 1));
  }
  return net.classify(x);
}

/// What odd seeds have: results over inputs, cheaper further runs with fewer inputs.
static void addDetails(RecomputeProblem &problem, uint32_t seed) {
  if (seed % 2 == 0)
    return;
  std::mt19937 random(seed + 1000000);
  auto below = [&](size_t n) { return size_t(random() % uint32_t(n)); };
  for (auto &op : problem.ops) {
    for (size_t i = below(4); i > 1; --i) {
      int32_t in = op.inputs[below(op.inputs.size())];
      if (!problem.values[in].preexisting)
        op.inPlace.push_back({in, op.outputs[below(op.outputs.size())]});
    }
    if (below(2))
      op.againUs = double(below(10));
    if (below(4) == 0)
      op.optionalInputs.push_back(op.inputs[below(op.inputs.size())]);
  }
}

RecomputeProblem randomStep(uint32_t seed, int32_t ops) {
  std::mt19937 random(seed);
  auto below = [&](int32_t n) { return int32_t(random() % uint32_t(n)); };
  RecomputeProblem problem;
  problem.alignBytes = 1 << below(3);
  Values values;
  for (int32_t i = 0; i <= below(2); ++i) {
    problem.values.push_back({below(3) ? 0 : below(9), true, false, false});
    values.push_back(int32_t(problem.values.size()) - 1);
  }
  int32_t forward = ops / 2 + below(2);
  for (int32_t o = 0; o < ops; ++o) {
    RecomputeProblem::Op op;
    op.costUs = 1 + below(9);
    op.backward = o >= forward;
    op.recomputable = below(8) != 0;
    op.workspaceBytes = below(4) ? 0 : below(8);
    int32_t reads = 1 + below(3), recent = std::min<int32_t>(4, int32_t(values.size()));
    for (int32_t i = 0; i < reads; ++i) {
      // Forward operations read what is recent, backward ones anything.
      int32_t from = op.backward && below(2) ? int32_t(values.size()) : recent;
      op.inputs.push_back(values[values.size() - 1 - size_t(below(from))]);
    }
    for (int32_t i = 0; i <= (below(5) == 0); ++i) {
      problem.values.push_back({1 + below(12), false, below(12) == 0, below(12) == 0});
      op.outputs.push_back(int32_t(problem.values.size()) - 1);
    }
    values.insert(values.end(), op.outputs.begin(), op.outputs.end());
    problem.ops.push_back(op);
  }
  addDetails(problem, seed);
  return problem;
}

} // namespace sluice::testing
