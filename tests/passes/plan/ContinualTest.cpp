// Plans with a penalty in the runtime: the compiled Fisher, ends of tasks, stored forms,
// checkpoints, memory.

#include "runtime/Checkpoint.h"
#include "tests/passes/plan/HeldPlan.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Continual, TheFisherIsTheSameForEveryBatchSize) {
  Trained reference(modelOf(sampleCount), heldSpec());
  ASSERT_TRUE(reference.good) << reference.errors;
  for (int64_t batch : {1, 3, 5, 12}) {
    Held held(heldSpec(), batch);
    ASSERT_TRUE(held.running);
    held.randomize(modelOf(batch));
    randomize(reference, *held.running);
    Values expected = reference.run("fisher", dataOf());
    auto fisher = FisherEstimate::open(held.session());
    ASSERT_TRUE(fisher.ok()) << fisher.status().message;
    TensorSource data = held.source(dataOf());
    Batch part;
    for (int64_t done = 0; done < sampleCount; done += part.count) {
      ASSERT_TRUE(data.next(part).ok());
      Status status = fisher->add(part);
      ASSERT_TRUE(status.ok()) << status.message;
    }
    EXPECT_EQ(fisher->samples(), sampleCount);
    for (size_t p = 0; p < fisher->held().parameters().size(); ++p) {
      const std::string name = fisher->held().parameters()[p].name;
      const std::vector<double> &sums = expected.at("fisher/" + name).reals;
      std::vector<float> mean = fisher->mean(p);
      ASSERT_EQ(mean.size(), sums.size());
      for (size_t i = 0; i < mean.size(); ++i)
        ASSERT_NEAR(mean[i], sums[i] / sampleCount, 1e-5 * (1e-3 + sums[i] / sampleCount))
            << name << " " << i << ", batch " << batch;
    }
  }
}

// Case C5: F <- gamma F + F_new, penalty lambda / 2 * F * way^2.
TEST(Continual, OnlineImportancesDecayAndAdd) {
  Held held(heldSpec("fp32"));
  ASSERT_TRUE(held.running);
  held.randomize(modelOf(4));
  TensorSource data = held.source(dataOf());
  auto first = consolidate(held.session(), data);
  ASSERT_TRUE(first.ok()) << first.status().message;
  EXPECT_EQ(first->samples, sampleCount);
  std::vector<float> once = importances(held, "fc2");
  auto second = consolidate(held.session(), data);
  ASSERT_TRUE(second.ok()) << second.status().message;
  EXPECT_EQ(second->tasks, 2);
  std::vector<float> twice = importances(held, "fc2");
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(twice[i], 1.5 * once[i], 1e-6 * once[i]);
  EXPECT_EQ(*penaltyValue(held.session()), 0);
  std::vector<float> weights(120);
  ASSERT_TRUE(held.session().readParameter("fc2", weights).ok());
  weights[7] += 0.25F;
  ASSERT_TRUE(held.session().writeParameter("fc2", weights).ok());
  EXPECT_NEAR(*penaltyValue(held.session()), 20 * twice[7] * 0.0625, 1e-5 * twice[7]);
}

TEST(Continual, AnAnchorPerTaskUntilTheyAreUsed) {
  TrainingSpec spec = heldSpec();
  spec.penalty.gamma = std::nullopt;
  spec.penalty.tasks = 2;
  Held held(spec);
  ASSERT_TRUE(held.running);
  held.randomize(modelOf(4));
  TensorSource data = held.source(dataOf());
  ASSERT_TRUE(consolidate(held.session(), data).ok());
  held.steps(3);
  ASSERT_TRUE(consolidate(held.session(), data).ok());
  auto state = held.running->saved();
  EXPECT_NE(state.at("ewc/fc1/anchor"), state.at("ewc/fc1/anchor.2"));
  EXPECT_EQ(state.at("param/fc1"), state.at("ewc/fc1/anchor.2"));
  auto third = consolidate(held.session(), data);
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.status().message.find("all 2 anchors"), std::string::npos)
      << third.status().message;
  EXPECT_EQ(held.running->saved(), state);
}

TEST(Continual, AGradientThatIsNotFiniteChangesNothing) {
  Held held(heldSpec());
  ASSERT_TRUE(held.running);
  held.randomize(modelOf(4));
  TensorSource good = held.source(dataOf());
  ASSERT_TRUE(consolidate(held.session(), good).ok());
  auto before = held.running->saved();
  Values values = dataOf();
  values["x"].reals[200] = NAN;
  TensorSource data = held.source(values);
  auto report = consolidate(held.session(), data);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message.find("not finite"), std::string::npos);
  EXPECT_EQ(held.running->saved(), before);
}

TEST(Continual, TrainsLikeTheInterpreterFromAnAnchor) {
  for (bool coupled : {false, true})
    for (const char *storage : {coupled ? "fp32" : "bf16", coupled ? "int8" : "fp16"}) {
      TrainingSpec spec = heldSpec(storage);
      spec.penalty.coupled = coupled;
      spec.clip.kind = "global_norm";
      spec.clip.max = 0.5;
      Held held(spec);
      ASSERT_TRUE(held.running);
      Trained trained(modelOf(4), spec);
      ASSERT_TRUE(trained.good) << trained.errors;
      randomize(trained, *held.running);
      TensorSource data = held.source(dataOf());
      ASSERT_TRUE(consolidate(held.session(), data).ok());
      for (const fbs::StateTensor *tensor : *held.session().plan().raw().state()) {
        if (tensor->role() != fbs::Role::continual)
          continue;
        std::string name = tensor->name()->str();
        HostTensor &to = trained.at(name);
        auto bytes = held.session().state(name);
        for (size_t i = 0; i < to.reals.size(); ++i) {
          float value = 0;
          if (tensor->dtype() == fbs::DType::f32)
            std::memcpy(&value, bytes.data() + 4 * i, 4);
          else if (tensor->dtype() == fbs::DType::bf16)
            std::memcpy(reinterpret_cast<char *>(&value) + 2, bytes.data() + 2 * i, 2);
          else
            value =
                static_cast<float>(reinterpret_cast<const _Float16 *>(bytes.data())[i]);
          to.reals[i] = value;
        }
        for (size_t i = 0; i < to.integers.size(); ++i)
          to.integers[i] = static_cast<int8_t>(bytes[i]);
      }
      for (int step = 0; step < 3; ++step) {
        Values inputs = inputsOf(held.session().plan(), "step", 10 + step);
        setControls(trained, held.session(), step * 4);
        Values expected = trained.run("step", inputs);
        StepResult result = held.running->step(inputs, step * 4);
        double loss = scalar(expected, "loss_sum");
        ASSERT_NEAR(result.lossSum, loss, 1e-4 * (1 + std::abs(loss)));
      }
      std::vector<float> weights(120);
      ASSERT_TRUE(held.session().readParameter("fc2", weights).ok());
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_NEAR(weights[i], trained.at("param/fc2").reals[i], 1e-4)
            << storage << " " << coupled;
    }
}

/// x [8, 16] through 24 layers of tanh, whose gradients shrink from layer to layer.
std::string deepModel() {
  std::string declared, body, last = "%x";
  for (int layer = 0; layer < 24; ++layer) {
    std::string n = std::to_string(layer);
    declared +=
        "graph.parameter @\"param/w" + n + "\" : tensor<16x16xf32> \"parameter\"\n";
    body +=
        "  %w" + n + " = graph.read @\"param/w" + n + "\" : tensor<16x16xf32>\n  %c" + n +
        " = graph.contract " + last + ", %w" + n +
        " {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: "
        "1>, rhs_contract = array<i64: 1>} : (tensor<8x16xf32>, tensor<16x16xf32>) -> "
        "tensor<8x16xf32>\n  %h" +
        n + " = graph.tanh %c" + n + " : (tensor<8x16xf32>) -> tensor<8x16xf32>\n";
    last = "%h" + n;
  }
  return declared +
         "func.func @forward(%x: tensor<8x16xf32> {graph.name = \"x\"}) -> "
         "(tensor<8x16xf32> {graph.name = \"logits\"}) {\n" +
         body + "  return " + last + " : tensor<8x16xf32>\n}\n";
}

Values deepData() {
  Values values{{"x", uniform({8, 16}, -1, 1, 5)}};
  for (double &x : values["x"].reals)
    x = static_cast<float>(x);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 8; ++i)
    labels.push_back(i * 3 % 16);
  values["labels"] = integer({8}, labels);
  return values;
}

/// The penalty of a layer by itself, and how many of its importances are 0.
struct Layer {
  double penalty = 0;
  size_t zeros = 0;
};

std::vector<Layer> layersUnder(const std::string &storage) {
  Held held(deepModel(), heldSpec(storage));
  std::vector<Layer> layers;
  if (!held.running)
    return layers;
  Trained reference(deepModel(), held.spec);
  randomize(reference, *held.running);
  for (int n = 0; n < 24; ++n) { // gradients that shrink
    std::string name = "w" + std::to_string(n);
    std::vector<float> weights(256);
    EXPECT_TRUE(held.session().readParameter(name, weights).ok());
    for (float &w : weights)
      w *= 0.5F;
    EXPECT_TRUE(held.session().writeParameter(name, weights).ok());
  }
  TensorSource data(held.session().plan(), deepData(), 8, "fisher");
  auto report = consolidate(held.session(), data);
  EXPECT_TRUE(report.ok()) << report.status().message;
  for (int n = 0; n < 24; ++n) {
    std::vector<float> found = importances(held, "w" + std::to_string(n));
    Layer layer;
    HostTensor way = uniform({256}, -1, 1, static_cast<unsigned>(100 + n));
    for (size_t i = 0; i < found.size(); ++i) {
      layer.penalty += found[i] * way.reals[i] * way.reals[i];
      layer.zeros += found[i] == 0;
    }
    layers.push_back(layer);
  }
  return layers;
}

TEST(Continual, StoredFormsKeepThePenaltyOfEveryLayerOfADeepModel) {
  std::vector<Layer> exact = layersUnder("fp32");
  ASSERT_EQ(exact.size(), 24U);
  // What half precision without a scale would lose is there.
  EXPECT_LT(exact.front().penalty / 256, 0x1p-24);
  for (const char *storage : {"bf16", "fp16", "int8"}) {
    std::vector<Layer> stored = layersUnder(storage);
    ASSERT_EQ(stored.size(), exact.size());
    for (size_t n = 0; n < exact.size(); ++n) {
      EXPECT_NEAR(stored[n].penalty, exact[n].penalty, 0.01 * exact[n].penalty)
          << storage << " layer " << n;
      EXPECT_LE(stored[n].zeros, exact[n].zeros + 8) << storage << " layer " << n;
    }
  }
}

TEST(Continual, SiAddsTheWayOverItsSquare) {
  TrainingSpec spec = heldSpec("fp32");
  spec.penalty.kind = "si";
  spec.penalty.gamma = 1;
  Held held(spec);
  ASSERT_TRUE(held.running);
  held.randomize(modelOf(4));
  std::string start = held.running->saved().at("param/fc2");
  held.steps(4);
  auto before = held.running->saved();
  EXPECT_EQ(before.at("si/fc2/anchor"), start);
  std::vector<float> path(120), from(120), to(120);
  std::memcpy(path.data(), before.at("si/fc2/path").data(), 480);
  std::memcpy(from.data(), start.data(), 480);
  std::memcpy(to.data(), before.at("param/fc2").data(), 480);
  auto report = consolidate(held.session(), nullptr);
  ASSERT_TRUE(report.ok()) << report.status().message;
  EXPECT_GT(report->importanceMost, 0);
  std::vector<float> omega = importances(held, "fc2");
  for (size_t i = 0; i < omega.size(); ++i) {
    double way = double(to[i]) - from[i];
    EXPECT_NEAR(omega[i], std::max(path[i], 0.0F) / (way * way + 0.1), 1e-6);
  }
  auto after = held.running->saved();
  EXPECT_EQ(after.at("si/fc2/anchor"), before.at("param/fc2"));
  EXPECT_EQ(after.at("si/fc2/path"), std::string(480, '\0'));
}

/// Everything saved after `steps` updates, a consolidation after the third, and, with
/// `resumes`, a stop and a new session behind it.
std::map<std::string, std::string> tasksOf(const TrainingSpec &spec, bool resumes) {
  Held held(spec);
  if (!held.running)
    return {};
  held.randomize(modelOf(4));
  held.steps(3);
  if (spec.penalty.kind == "ewc") {
    TensorSource data = held.source(dataOf());
    EXPECT_TRUE(consolidate(held.session(), data).ok());
  } else {
    EXPECT_TRUE(consolidate(held.session(), nullptr).ok());
  }
  held.steps(1, 3);
  if (resumes) {
    EXPECT_TRUE(saveCheckpoint(held.session(), held.folder.file("run"), {}).ok());
    held.running = std::make_unique<Running>(held.folder.file("m.plan"), 1);
    auto loaded = loadCheckpoint(held.session(), held.folder.file("run"));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message;
  }
  held.steps(3, 4);
  return held.running->saved();
}

TEST(Continual, ResumesInsideATaskAndRecomputesBitForBit) {
  for (const char *kind : {"ewc", "si"}) {
    TrainingSpec spec = heldSpec(kind[0] == 'e' ? "int8" : "bf16");
    spec.penalty.kind = kind;
    spec.penalty.coupled = kind[0] == 's';
    auto whole = tasksOf(spec, false);
    ASSERT_FALSE(whole.empty());
    EXPECT_EQ(tasksOf(spec, true), whole) << kind;
    spec.recompute = "sqrt";
    EXPECT_EQ(tasksOf(spec, false), whole) << kind;
  }
}

uint32_t launchesOf(Held &held) {
  return held.session().plan().program("step")->launches()->size();
}

// Bytes of state are 6 per element, of the step none; and updates are still merged.
TEST(Continual, TakesStateAndNoMemoryOfTheStep) {
  Held plain(classification("adamw"));
  Held held(heldSpec());
  ASSERT_TRUE(plain.running && held.running);
  EXPECT_EQ(launchesOf(plain), launchesOf(held));
  EXPECT_EQ(plain.session().plan().program("step")->step_bytes(),
            held.session().plan().program("step")->step_bytes());
  int64_t elements = 4 * 2 * 9 + 4 + 40 * 64 + 120;
  int64_t added = held.compiled.report.arena.at("continual");
  EXPECT_GE(added, 6 * elements);
  EXPECT_LE(added, 6 * elements + 8 * 64); // each tensor is aligned to lines
  EXPECT_EQ(plain.compiled.report.arena.at("continual"), 0);
}

// Case C10.
TEST(Continual, ABudgetOfOneTensorMoreIsRefusedWithTheBytes) {
  Held plain(classification("adamw"));
  ASSERT_TRUE(plain.running);
  TrainingSpec spec = heldSpec();
  spec.budgetBytes = plain.compiled.report.stateBytes + plain.compiled.report.stepBytes +
                     4 * (40 * 64 + 120 + 76);
  PlanFolder folder;
  Compiled compiled = compileText(modelOf(4), optionsFor(spec, folder.file("m.plan")));
  EXPECT_EQ(compiled.status.code, StatusCode::doesNotFit) << compiled.status.message;
  EXPECT_NE(compiled.status.message.find("continual"), std::string::npos)
      << compiled.status.message;
}

TEST(Continual, ACheckpointWithoutAFisherIsRefusedAndItsWeightsAreNot) {
  Held plain(classification("adamw"));
  Held held(heldSpec());
  ASSERT_TRUE(plain.running && held.running);
  plain.steps(2);
  std::string run = plain.folder.file("run");
  ASSERT_TRUE(saveCheckpoint(plain.session(), run, {}).ok());
  auto before = held.running->saved();
  auto loaded = loadCheckpoint(held.session(), run);
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message.find("has no anchors and importances"),
            std::string::npos)
      << loaded.status().message;
  EXPECT_EQ(held.running->saved(), before);
  Status status = held.session().loadWeights(run + "/step-00000002.safetensors");
  EXPECT_TRUE(status.ok()) << status.message;
  // And the other way about: what is not needed is left out, and said.
  held.steps(1);
  std::string other = held.folder.file("other");
  ASSERT_TRUE(saveCheckpoint(held.session(), other, {}).ok());
  auto back = loadCheckpoint(plain.session(), other);
  ASSERT_TRUE(back.ok()) << back.status().message;
  ASSERT_FALSE(back->notes.empty());
  EXPECT_NE(back->notes.front().find("anchors and importances"), std::string::npos);
}

} // namespace
} // namespace sluice
