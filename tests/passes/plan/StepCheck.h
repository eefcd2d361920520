#pragma once
// Trains a plan and the same graph in the interpreter, and compares them.

#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

namespace sluice {

/// Enough rows for products to be chained with the bias and activation behind them: x
/// [160, 1, 6, 6] -> convolution, bias, relu -> gelu layer of 48 -> logits [160, 5].
inline const std::string wide = R"(
graph.parameter @"param/conv.weight" : tensor<4x1x3x3xf32> "parameter"
graph.parameter @"param/conv.bias" : tensor<4xf32> "parameter"
graph.parameter @"param/fc1.weight" : tensor<48x144xf32> "parameter"
graph.parameter @"param/fc1.bias" : tensor<48xf32> "parameter"
graph.parameter @"param/fc2.weight" : tensor<5x48xf32> "parameter"
func.func @forward(%x: tensor<160x1x6x6xf32> {graph.name = "x"}) -> (tensor<160x5xf32> {graph.name = "logits"}) {
  %k = graph.read @"param/conv.weight" : tensor<4x1x3x3xf32>
  %kb = graph.read @"param/conv.bias" : tensor<4xf32>
  %w1 = graph.read @"param/fc1.weight" : tensor<48x144xf32>
  %b1 = graph.read @"param/fc1.bias" : tensor<48xf32>
  %w2 = graph.read @"param/fc2.weight" : tensor<5x48xf32>
  %0 = graph.conv %x, %k {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<160x1x6x6xf32>, tensor<4x1x3x3xf32>) -> tensor<160x4x6x6xf32>
  %1 = graph.reshape %kb {shape = array<i64: 4, 1, 1>} : (tensor<4xf32>) -> tensor<4x1x1xf32>
  %2 = graph.broadcast %1 {shape = array<i64: 160, 4, 6, 6>} : (tensor<4x1x1xf32>) -> tensor<160x4x6x6xf32>
  %3 = graph.add %0, %2 : (tensor<160x4x6x6xf32>, tensor<160x4x6x6xf32>) -> tensor<160x4x6x6xf32>
  %4 = graph.relu %3 : (tensor<160x4x6x6xf32>) -> tensor<160x4x6x6xf32>
  %5 = graph.reshape %4 {shape = array<i64: 160, 144>} : (tensor<160x4x6x6xf32>) -> tensor<160x144xf32>
  %6 = graph.contract %5, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<160x144xf32>, tensor<48x144xf32>) -> tensor<160x48xf32>
  %7 = graph.broadcast %b1 {shape = array<i64: 160, 48>} : (tensor<48xf32>) -> tensor<160x48xf32>
  %8 = graph.add %6, %7 : (tensor<160x48xf32>, tensor<160x48xf32>) -> tensor<160x48xf32>
  %9 = graph.gelu %8 : (tensor<160x48xf32>) -> tensor<160x48xf32>
  %10 = graph.contract %9, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<160x48xf32>, tensor<5x48xf32>) -> tensor<160x5xf32>
  return %10 : tensor<160x5xf32>
})";

inline CompileOptions optionsFor(const TrainingSpec &spec, const std::string &path) {
  CompileOptions options;
  options.spec = spec;
  options.outPath = path;
  return options;
}

inline TrainingSpec classification(const std::string &optimizer = "sgd") {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.optimizer.kind = optimizer;
  spec.optimizer.lr = 0.1;
  spec.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  spec.optimizer.eps = 1e-2; // keeps Adam from magnifying rounding
  spec.threads = 3;
  spec.seed = 7;
  return spec;
}

/// Controls as the runtime writes them before a program.
inline void setControls(Trained &trained, const Session &session, int64_t sample) {
  trained.set("control/seed", static_cast<double>(session.seed()));
  trained.set("control/update", static_cast<double>(session.updates()));
  trained.set("control/sample", static_cast<double>(sample));
  trained.set("control/valid", static_cast<double>(session.plan().batch()));
  for (const fbs::ParamGroup *group : *session.plan().raw().groups()) {
    std::string prefix = "control/" + group->name()->str();
    trained.set(prefix + "/lr", learningRate(*group, session.updates()));
    trained.set(prefix + "/update", static_cast<double>(session.updates()));
    trained.set(prefix + "/bc1", biasCorrection(group->beta1(), session.updates()));
    trained.set(prefix + "/bc2", biasCorrection(group->beta2(), session.updates()));
  }
}

inline void expectSameState(Trained &trained, const Session &session, double tolerance) {
  for (const fbs::StateTensor *tensor : *session.plan().raw().state()) {
    auto type = static_cast<DType>(tensor->dtype());
    if (!tensor->saved() || (type != DType::f32 && type != DType::bf16))
      continue;
    const HostTensor &expected = trained.at(tensor->name()->str());
    auto bytes = session.state(tensor->name()->string_view());
    for (size_t i = 0; i < expected.reals.size(); ++i) {
      uint32_t word = 0; // bf16 are the upper halves of f32
      size_t size = type == DType::f32 ? 4 : 2;
      std::memcpy(reinterpret_cast<char *>(&word) + 4 - size, bytes.data() + size * i,
                  size);
      float found = std::bit_cast<float>(word);
      ASSERT_NEAR(found, expected.reals[i], tolerance * (1 + std::abs(expected.reals[i])))
          << tensor->name()->str() << "[" << i << "]";
    }
  }
}

/// Trains for some micro-batches in both and compares losses and the whole state.
inline void expectTrainsLikeInterpreter(const std::string &model,
                                        const TrainingSpec &spec, int steps,
                                        double tolerance = 2e-5) {
  PlanFolder folder;
  Compiled compiled = compileText(model, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 2);
  ASSERT_TRUE(running.session);
  Trained trained(model, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  randomize(trained, running);
  std::string entry = spec.accumulate > 1 ? "micro" : "step";
  int64_t batch = running.session->plan().batch();
  for (int step = 0; step < steps; ++step) {
    Values inputs = inputsOf(running.session->plan(), entry, 10 + step);
    setControls(trained, *running.session, step * batch);
    Values expected = trained.run(entry, inputs);
    if (spec.accumulate > 1 && (step + 1) % spec.accumulate == 0)
      trained.run("update");
    StepResult result = running.step(inputs, step * batch);
    double loss = scalar(expected, "loss_sum");
    ASSERT_NEAR(result.lossSum, loss, tolerance * (1 + std::abs(loss)))
        << "step " << step;
    ASSERT_EQ(result.lossCount, scalar(expected, "loss_count"));
    ASSERT_NO_FATAL_FAILURE(expectSameState(trained, *running.session, tolerance))
        << "step " << step;
  }
}

/// State after a few steps of a plan compiled with `fuse`, run by `threads`.
inline std::map<std::string, std::string>
trainedBits(const std::string &model, const TrainingSpec &spec, bool fuse, int threads) {
  PlanFolder folder;
  CompileOptions options = optionsFor(spec, folder.file("m.plan"));
  options.fuse = fuse;
  Compiled compiled = compileText(model, options);
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), threads);
  if (!running.session)
    return {};
  Trained trained(model, options.spec);
  randomize(trained, running);
  for (int step = 0; step < 3; ++step)
    running.step(inputsOf(running.session->plan(), "step", 20 + step),
                 step * running.session->plan().batch());
  return running.saved();
}

} // namespace sluice
