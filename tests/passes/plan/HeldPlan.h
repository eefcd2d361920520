#pragma once
// A small plan with a penalty, its data, and what it holds.

#include "runtime/continual/Consolidation.h"
#include "runtime/continual/Fisher.h"
#include "tests/passes/plan/StepCheck.h"
#include "tests/passes/plan/TensorSource.h"

namespace sluice {

inline constexpr int64_t sampleCount = 12;

/// x [batch, 2, 4, 4] -> convolution, bias, tanh -> layer of 40 -> logits [batch, 3].
inline std::string modelOf(int64_t batch) {
  std::string text = R"(
graph.parameter @"param/conv" : tensor<4x2x3x3xf32> "parameter"
graph.parameter @"param/bias" : tensor<4xf32> "parameter"
graph.parameter @"param/fc1" : tensor<40x64xf32> "parameter"
graph.parameter @"param/fc2" : tensor<3x40xf32> "parameter"
func.func @forward(%x: tensor<Bx2x4x4xf32> {graph.name = "x"}) -> (tensor<Bx3xf32> {graph.name = "logits"}) {
  %k = graph.read @"param/conv" : tensor<4x2x3x3xf32>
  %b = graph.read @"param/bias" : tensor<4xf32>
  %w1 = graph.read @"param/fc1" : tensor<40x64xf32>
  %w2 = graph.read @"param/fc2" : tensor<3x40xf32>
  %0 = graph.conv %x, %k {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<Bx2x4x4xf32>, tensor<4x2x3x3xf32>) -> tensor<Bx4x4x4xf32>
  %1 = graph.reshape %b {shape = array<i64: 4, 1, 1>} : (tensor<4xf32>) -> tensor<4x1x1xf32>
  %2 = graph.broadcast %1 {shape = array<i64: B, 4, 4, 4>} : (tensor<4x1x1xf32>) -> tensor<Bx4x4x4xf32>
  %3 = graph.add %0, %2 : (tensor<Bx4x4x4xf32>, tensor<Bx4x4x4xf32>) -> tensor<Bx4x4x4xf32>
  %4 = graph.tanh %3 : (tensor<Bx4x4x4xf32>) -> tensor<Bx4x4x4xf32>
  %5 = graph.reshape %4 {shape = array<i64: B, 64>} : (tensor<Bx4x4x4xf32>) -> tensor<Bx64xf32>
  %6 = graph.contract %5, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<Bx64xf32>, tensor<40x64xf32>) -> tensor<Bx40xf32>
  %7 = graph.tanh %6 : (tensor<Bx40xf32>) -> tensor<Bx40xf32>
  %8 = graph.contract %7, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<Bx40xf32>, tensor<3x40xf32>) -> tensor<Bx3xf32>
  return %8 : tensor<Bx3xf32>
})";
  const std::string size = std::to_string(batch);
  for (const char *mark : {"<B", " B,"})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark))
      text.replace(at + 1, 1, size);
  return text;
}

inline TrainingSpec heldSpec(const std::string &storage = "bf16") {
  TrainingSpec spec = classification("adamw");
  spec.penalty.kind = "ewc";
  spec.penalty.lambda = 40;
  spec.penalty.gamma = 0.5;
  spec.penalty.storage = storage;
  return spec;
}

inline Values dataOf(unsigned seed = 60) {
  Values values{{"x", uniform({sampleCount, 2, 4, 4}, -1, 1, seed)}};
  for (double &x : values["x"].reals)
    x = static_cast<float>(x);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < sampleCount; ++i)
    labels.push_back((i * 7 + seed) % 3);
  values["labels"] = integer({sampleCount}, labels);
  return values;
}

struct Held {
  explicit Held(const TrainingSpec &spec, int64_t batch = 4)
      : Held(modelOf(batch), spec) {}
  Held(const std::string &model, const TrainingSpec &spec)
      : spec(spec),
        compiled(compileText(model, optionsFor(spec, folder.file("m.plan")))) {
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    if (compiled.status.ok())
      running = std::make_unique<Running>(folder.file("m.plan"), 2);
  }
  Session &session() { return *running->session; }
  void randomize(const std::string &model) {
    Trained reference(model, spec);
    sluice::randomize(reference, *running);
  }
  TensorSource source(const Values &data) {
    return {session().plan(), data, sampleCount, "fisher"};
  }
  void steps(int count, int64_t first = 0) {
    int64_t batch = session().plan().batch();
    for (int i = 0; i < count; ++i) {
      int64_t at = first + i;
      running->step(inputsOf(session().plan(), "step", static_cast<unsigned>(30 + at)),
                    at * batch);
    }
  }

  PlanFolder folder;
  TrainingSpec spec;
  Compiled compiled;
  std::unique_ptr<Running> running;
};

inline std::vector<float> importances(Held &held, const std::string &name) {
  auto state = HeldState::open(held.session().plan());
  EXPECT_TRUE(state.ok());
  for (const HeldParameter &parameter : state->parameters())
    if (parameter.name == name)
      return state->importances(held.session(), parameter, 0);
  ADD_FAILURE() << name;
  return {};
}

} // namespace sluice
