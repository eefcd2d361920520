#include "frontend/SpecReader.h"
#include "frontend/SpecKeys.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>

using namespace sluice;

namespace {

class SpecReaderTest : public testing::Test {
protected:
  SpecResult read(const std::string &yaml,
                  const std::vector<std::string> &overrides = {}) {
    path = testing::TempDir() + "spec.yaml";
    std::ofstream(path) << yaml;
    return readSpec(path, overrides);
  }
  void expectError(const std::string &yaml, const std::string &part) {
    SpecResult result = read(yaml);
    EXPECT_FALSE(result.spec) << yaml;
    std::string all;
    for (auto &error : result.errors)
      all += error + "\n";
    EXPECT_NE(all.find(part), std::string::npos) << "expected '" << part << "' in\n"
                                                 << all;
  }
  std::string path;
};

TEST_F(SpecReaderTest, EmptyFileGivesDefaults) {
  auto result = read("");
  ASSERT_TRUE(result.spec);
  EXPECT_EQ(result.spec->optimizer.kind, "adamw");
  EXPECT_DOUBLE_EQ(result.spec->optimizer.lr, 1e-3);
  EXPECT_EQ(result.spec->accumulate, 1);
}

// What a plan holds of its spec is enough to read it again.
TEST_F(SpecReaderTest, TextOfASpecReadsAsTheSpec) {
  auto first = read("seed: 3\n# --set seed=9\noptimizer: {kind: adam}",
                    {"optimizer.lr=0.5", "loss={kind: mse}"});
  ASSERT_TRUE(first.spec);
  auto again = readSpecText(first.spec->text, "text");
  ASSERT_TRUE(again.spec);
  EXPECT_EQ(again.spec->text, first.spec->text);
  EXPECT_EQ(again.spec->seed, 3u);
  EXPECT_EQ(again.spec->optimizer, first.spec->optimizer);
  EXPECT_EQ(again.spec->loss.kind, "mse");
  EXPECT_TRUE(readSpecText("", "text").spec);
}

TEST_F(SpecReaderTest, BucketsAreCalledByWhatSetsThemApart) {
  auto result = read("shapes: [{batch: 4, T: 64}, {batch: 4, T: 128}]\n"
                     "pad: {tokens: 0, mask: 0.5}\n");
  ASSERT_TRUE(result.spec);
  ASSERT_EQ(result.spec->buckets.size(), 2u);
  EXPECT_EQ(result.spec->buckets[0].name, "T=64");
  EXPECT_EQ(result.spec->buckets[1].name, "T=128");
  EXPECT_EQ(result.spec->buckets[1].dimensions.at("T"), 128);
  EXPECT_EQ(result.spec->dimensions.at("T"), 64);
  EXPECT_EQ(result.spec->pad.at("mask"), 0.5);

  auto byInput = read("shapes: [{x: [4, 64], y: [4]}, {x: [2, 128], y: [2]}]\n");
  ASSERT_TRUE(byInput.spec);
  EXPECT_EQ(byInput.spec->buckets[1].name, "x=2x128,y=2");
}

TEST_F(SpecReaderTest, OneBucketIsNoBucket) {
  auto result = read("shapes: [{T: 64}]\n");
  ASSERT_TRUE(result.spec);
  EXPECT_TRUE(result.spec->buckets.empty());
  EXPECT_EQ(result.spec->dimensions.at("T"), 64);
}

TEST_F(SpecReaderTest, BucketsThatCannotBe) {
  expectError("shapes: []\n", "'shapes' is an empty list");
  expectError("shapes: [64]\n", "an element of 'shapes' is 64, expected a map");
  expectError("shapes: 64\n", "expected a map or a list of maps");
  expectError("shapes: [{T: 64}, {T: 64}]\n", "elements 1 and 2 of 'shapes' give the");
  expectError("shapes: [{T: 64}, {T: 64, batch: 2}]\n",
              "element 2 of 'shapes' gives other names than the first");
  expectError("pad: {x: low}\n", "'pad.x' is 'low', expected a number");
}

TEST_F(SpecReaderTest, ReadsTheKeysOfThePage) {
  auto result = read(R"(
shapes: {input: [32, 1, 28, 28], batch_size: 8}
threads: 2
seed: 7
loss: {kind: cross_entropy, logits: output, labels: y, ignore_index: -1, class_weights: [1, 4], label_smoothing: 0.1}
frozen: ["conv*"]
tie: [[wte.weight, "head@transpose"]]
optimizer: {kind: sgd, momentum: 0.9, nesterov: true}
parameter_groups: [{match: "*.bias", weight_decay: 0}]
schedule: {kind: cosine, warmup_steps: 10, total_steps: 100}
accumulate: 4
clip: {kind: global_norm, max: 1.0}
memory: {budget: 2GiB}
)");
  ASSERT_TRUE(result.spec) << result.errors[0];
  const TrainingSpec &spec = *result.spec;
  EXPECT_EQ(spec.shapes.at("input"), (std::vector<int64_t>{32, 1, 28, 28}));
  EXPECT_EQ(spec.dimensions.at("batch_size"), 8);
  EXPECT_DOUBLE_EQ(spec.optimizer.lr, 1e-2);
  EXPECT_EQ(spec.parameterGroups.at(0).options.weightDecay, 0.0);
  EXPECT_TRUE(spec.tie.at(0).transpose);
  EXPECT_EQ(spec.tie.at(0).second, "head");
  EXPECT_EQ(*spec.budgetBytes, int64_t(2) << 30);
  EXPECT_EQ(spec.loss.classWeights.size(), 2u);
}

TEST_F(SpecReaderTest, UnknownKeyNamesPlaceAndNearest) {
  expectError("seed: 1\noptimiser: {kind: sgd}\n",
              "spec.yaml:2:1: unknown key 'optimiser'; did you mean 'optimizer'?");
  expectError("optimizer: {kind: sgd, momentun: 1}\n", "did you mean 'momentum'?");
}

TEST_F(SpecReaderTest, UpdateGroupsHaveNamesOfTheirOwn) {
  expectError("update: {grouping: [{name: a, match: 'w*'}, {name: a, match: 'b*'}]}\n",
              "two groups of 'update.grouping' have the name 'a'");
  expectError("update: {grouping: [{name: '', match: 'w*'}]}\n",
              "expected a line of text that is not empty");
  expectError("update: {grouping: []}\n", "'update.grouping' is an empty list");
}

TEST_F(SpecReaderTest, PlannedKeysAreNotYet) {
  expectError("update: {mode: overlap}\n", "'update.grouping' makes none");
}

TEST_F(SpecReaderTest, InitHasGainsAndRefusesWhatARuleDoesNotRead) {
  auto result = read("init: {from: kaiming, gain: tanh, mode: fan_out, rules: [{match: "
                     "\"a*\", trunc_normal: 0.02, bound: 0.04}]}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->init[0].gain, 5.0 / 3);
  EXPECT_TRUE(result.spec->init[0].fanOut);
  EXPECT_EQ(result.spec->init[1].from, "trunc_normal");
  EXPECT_EQ(result.spec->init[1].std, 0.02);
  EXPECT_EQ(result.spec->init[1].bound, 0.04);
  expectError("init: {from: zeros, gain: 2}\n", "'init.gain' has no effect on zeros");
  expectError("init: {from: xavier, mode: fan_out}\n",
              "'init.mode' has no effect on xavier");
  expectError("init: {from: kaiming, gain: softmax}\n", "linear, sigmoid, tanh, relu");
  expectError("init: {from: kaiming, mode: fan}\n", "expected one of fan_in, fan_out");
  expectError("init: {trunc_normal: 1, bound: 0.1}\n", "less than a quarter");
}

TEST_F(SpecReaderTest, LossScaleIsAKindOrAMap) {
  auto result = read("precision: {loss_scale: {init: 1024, growth_interval: 100, "
                     "backoff: 0.25, min_scale: 0.5, max_scale: 2048}}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  const LossScaleSpec &scale = result.spec->lossScale;
  EXPECT_EQ(scale.kind, "dynamic");
  EXPECT_EQ(scale.init, 1024);
  EXPECT_EQ(scale.growthInterval, 100);
  EXPECT_EQ(scale.backoff, 0.25);
  EXPECT_EQ(scale.min, 0.5);
  EXPECT_EQ(scale.max, 2048);
  result = read("precision: {loss_scale: adaptive}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->lossScale.kind, "adaptive");
  EXPECT_EQ(result.spec->lossScale.init, 65536);
  result = read("precision: {loss_scale: {kind: static, init: 128}}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->lossScale.min, 128);
  EXPECT_EQ(result.spec->lossScale.max, 128);
  EXPECT_FALSE(read("precision: {loss_scale: none}\n").spec->lossScale.isOn());
  EXPECT_FALSE(read("seed: 1\n").spec->lossScale.isOn());
}

TEST_F(SpecReaderTest, LossScaleRefusesWhatCannotBeUndone) {
  expectError("precision: {loss_scale: {init: 1000}}\n",
              "'init' is 1000, expected a power of two such as 1024");
  expectError("precision: {loss_scale: {backoff: 0.7}}\n", "'backoff' is 0.7");
  expectError("precision: {loss_scale: {init: 1, min_scale: 2}}\n",
              "begins at 1, expected a number from 'min_scale', 2,");
  expectError("precision: {loss_scale: {kind: static, max_scale: 2}}\n",
              "'precision.loss_scale.max_scale' has no effect on static; remove it");
  expectError("precision: {loss_scale: {kind: adaptive, growth_interval: 2}}\n",
              "has no effect on adaptive");
  expectError("precision: {loss_scale: {kind: dynamical}}\n",
              "expected one of none, dynamic, static, adaptive");
  expectError("precision: {loss_scale: [1]}\n", "is 'a list'");
  expectError("precision: {compute: amp_fp16, loss_scale: none}\n",
              "'precision.loss_scale' is none under 'amp_fp16'");
}

TEST_F(SpecReaderTest, RanksAndWhatTheyTellEachOther) {
  auto result =
      read("parallel: {data: 4, zero: 2, tensor: 1, pipeline: 1}\n"
           "comm: {bucket: 8MiB, window_ms: 0.5, timeout_s: 10, order: fixed}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->ranks, 4);
  EXPECT_EQ(result.spec->zero, 2);
  EXPECT_EQ(result.spec->bucketBytes, int64_t(8) << 20);
  EXPECT_EQ(result.spec->windowMs, 0.5);
  EXPECT_EQ(result.spec->timeoutSeconds, 10);
  EXPECT_FALSE(read("comm: {bucket: auto}\n").spec->bucketBytes);
  expectError("parallel: {data: 0}\n", "'data' is 0, expected at least 1");
  expectError("parallel: {data: 5000}\n", "expected at most 4096");
  expectError("parallel: {data: 2}\naccumulate: {count: 2, as_ranks: 2}\n",
              "leave it out beside 'parallel.data: 2'");
  expectError("parallel: {zero: 3}\n", "'parallel.zero: 3' is not yet supported");
  expectError("parallel: {pipeline: 4}\n", "'parallel.pipeline: 4' is not yet supported");
  expectError("parallel: {micro_batches: 8}\n", "not yet");
  expectError("comm: {bucket: lots}\n", "'comm.bucket' is 'lots'");
  expectError("comm: {order: any}\n", "expected one of fixed");
  expectError("comm: {timeout_s: 0}\n", "'timeout_s'");
}

TEST_F(SpecReaderTest, AllErrorsAreReportedAtOnce) {
  auto result = read("optimiser: 1\nlos: {kind: mse}\n");
  EXPECT_EQ(result.errors.size(), 2u);
}

TEST_F(SpecReaderTest, WrongValuesSayWhatIsExpected) {
  expectError("accumulate: 0\n", "'accumulate' is 0, expected at least 1");
  expectError("accumulate: {count: 4, as_ranks: 3}\n",
              "'accumulate.as_ranks' is 3, expected a divisor of 'count', 4");
  expectError("accumulate: {count: 4, as_ranks: 0}\n",
              "'as_ranks' is 0, expected at least 1");
  expectError("optimizer: {lr: fast}\n", "'lr' is 'fast', expected a number");
  expectError("optimizer: {betas: [0.9]}\n", "'betas' must be two numbers");
  expectError("memory: {budget: lots}\n", "'memory.budget' is 'lots'");
  expectError("loss: {kind: hinge}\n", "expected one of cross_entropy");
  expectError("loss: {logits: y}\n", "'loss' has no 'kind'");
  expectError("schedule: {kind: cosine}\n", "needs 'total_steps'");
  expectError("values: {sr: fast}\n", "'values.sr' is 'fast', expected a number");
  expectError("seed: 1\nseed: 2\n", "given twice");
  expectError("loss: [1\n", "spec.yaml:");
}

TEST_F(SpecReaderTest, AnOptimizerStartsFromItsOwnDefaults) {
  auto muon = read("optimizer: {kind: muon, ns_steps: 6, adjust_lr_fn: match_rms_adamw}\n"
                   "parameter_groups: [{match: head, kind: lion}]\n");
  ASSERT_TRUE(muon.spec) << muon.errors[0];
  EXPECT_EQ(muon.spec->optimizer.momentum, 0.95);
  EXPECT_TRUE(muon.spec->optimizer.nesterov && muon.spec->optimizer.matchRmsAdamw);
  EXPECT_EQ(muon.spec->optimizer.nsSteps, 6);
  EXPECT_EQ(muon.spec->parameterGroups.at(0).kind, "lion");
  auto adagrad = read("optimizer: {kind: adagrad, initial_accumulator_value: 0.5}\n");
  ASSERT_TRUE(adagrad.spec);
  EXPECT_EQ(adagrad.spec->optimizer.initialAccumulator, 0.5);
  EXPECT_EQ(adagrad.spec->optimizer.eps, 1e-10);
  for (const char *kind : kOptimizerKinds)
    EXPECT_TRUE(read(std::string("optimizer: {kind: ") + kind + "}\n").spec) << kind;
}

TEST_F(SpecReaderTest, RefusesKeysWithoutEffect) {
  expectError("optimizer: {kind: adam, momentum: 0.9}\n",
              "'optimizer.momentum' has no effect on adam; remove it");
  expectError("optimizer: {kind: lion, eps: 1.0e-8}\n", "has no effect on lion");
  expectError("schedule: {kind: cosine, total_steps: 9, gamma: 0.5}\n",
              "'schedule.gamma' has no effect on cosine");
  expectError("optimizer: {kind: adamm}\n",
              "'optimizer.kind' is 'adamm', expected one of sgd, adam");
  expectError("parameter_groups: [{match: w, kind: no}]\n", "is 'no', expected one of");
  expectError("optimizer: {kind: radam, betas: [0.9, 0.5]}\n", "above 0.6");
}

TEST_F(SpecReaderTest, SchedulesHaveWhatTheyNeed) {
  auto table = read("schedule: {kind: table, table: [[0, 1], [100, 0.5]]}\n");
  ASSERT_TRUE(table.spec) << table.errors[0];
  EXPECT_EQ(table.spec->schedule.points, (std::vector<int64_t>{0, 100}));
  EXPECT_EQ(table.spec->schedule.factors, (std::vector<double>{1, 0.5}));
  EXPECT_TRUE(read("schedule: {kind: step, milestones: [3, 9]}\n").spec);
  EXPECT_TRUE(read("schedule: {kind: wsd, total_steps: 9, decay_steps: 3}\n").spec);
  EXPECT_TRUE(read("schedule: {kind: one_cycle, total_steps: 9}\n").spec);
  expectError("schedule: {kind: wsd, total_steps: 9}\n", "needs 'decay_steps'");
  expectError("schedule: {kind: wsd, total_steps: 9, decay_steps: 10}\n",
              "expected at most 'total_steps', 9");
  expectError("schedule: {kind: step}\n", "needs 'step_size' or 'milestones'");
  expectError("schedule: {kind: step, milestones: [3, 3]}\n", "must rise");
  expectError("schedule: {kind: table, table: [[0, 1], [1]]}\n", "no list of pairs");
  expectError("schedule: {kind: table, table: [[5, 1], [1, 1]]}\n", "must rise");
}

TEST_F(SpecReaderTest, OverridesComeLast) {
  auto result = read("optimizer: {kind: sgd, lr: 0.5}\n",
                     {"optimizer.lr=0.25", "shapes.x=[2,3]", "values.sr=16000"});
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_DOUBLE_EQ(result.spec->optimizer.lr, 0.25);
  EXPECT_EQ(result.spec->shapes.at("x"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(result.spec->values.at("sr"), std::vector<double>{16000});
  EXPECT_FALSE(read("", {"nonsense"}).spec);
  EXPECT_FALSE(read("", {"optimizer.lrr=1"}).spec);
}

TEST_F(SpecReaderTest, DesignNoteSpellingsAreTranslatedAndSaid) {
  auto result =
      read("training_params: {batch_size: 32, optimizer: \"AdamW(lr=5e-5)\"}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_DOUBLE_EQ(result.spec->optimizer.lr, 5e-5);
  EXPECT_EQ(result.spec->dimensions.at("batch_size"), 32);
  EXPECT_EQ(result.translations.size(), 2u);
  result = read("training_params: {precision: amp_fp16}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->precision.compute, "amp_fp16");
  EXPECT_EQ(result.spec->lossScale.kind, "dynamic");
  result =
      read("training_params: {memory: {checkpointing: true, offload_threshold: 0.9}}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->recompute, "auto");
  EXPECT_EQ(result.spec->offload, "auto");
  EXPECT_DOUBLE_EQ(result.spec->offloadThreshold, 0.9);
}

TEST_F(SpecReaderTest, OffloadHasPoliciesAndAThreshold) {
  auto result = read("memory: {offload: host}\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->offload, "host");
  EXPECT_DOUBLE_EQ(result.spec->offloadThreshold, 1);
  expectError("memory: {offload: disk}\n", "'memory.offload' is 'disk'");
  expectError("memory: {offload_threshold: 0}\n", "'memory.offload_threshold' is 0");
  expectError("memory: {offload_threshold: 1.5}\n", "share of the budget");
}

TEST_F(SpecReaderTest, PromotedWeightsAndTiedCopies) {
  auto result = read("promote: [\"*.weight\"]\ntie: [[token, \"token@copies\"]]\n");
  ASSERT_TRUE(result.spec) << result.errors[0];
  EXPECT_EQ(result.spec->promote, std::vector<std::string>{"*.weight"});
  EXPECT_TRUE(result.spec->tie.at(0).copies);
  EXPECT_EQ(result.spec->tie.at(0).second, "token");
}

TEST_F(SpecReaderTest, MissingFileIsNamed) {
  auto result = readSpec("/nonexistent/spec.yaml");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_NE(result.errors[0].find("/nonexistent/spec.yaml"), std::string::npos);
}

TEST_F(SpecReaderTest, PrecisionOfProductsAndState) {
  auto result = read("precision: {compute: amp_bf16, optimizer_state: int8, accumulator: "
                     "gradient, rules: [{match: 'head.*', keep: fp32}]}\n");
  ASSERT_TRUE(result.spec);
  const PrecisionSpec &precision = result.spec->precision;
  EXPECT_TRUE(precision.isNarrow());
  EXPECT_EQ(precision.master, "split");
  EXPECT_EQ(precision.optimizerState, "int8");
  EXPECT_EQ(precision.keep, std::vector<std::string>{"head.*"});
  result = read("precision: {compute: amp_fp16}\n");
  EXPECT_EQ(result.spec->precision.master, "fp32");
  EXPECT_EQ(result.spec->lossScale.kind, "dynamic");
  EXPECT_EQ(read("seed: 1\n").spec->precision.master, "");
  result = read("training_params: {precision: amp_bf16}\n");
  EXPECT_EQ(result.spec->precision.master, "split");
  PrecisionSpec bare; // as a program fills it
  bare.compute = "amp_fp16";
  EXPECT_EQ(bare.masterForm(), "fp32");

  expectError("precision: {compute: fp64}\n", "amp_bf16");
  expectError("precision: {compute: amp_fp16, master: none}\n", "expected fp32");
  expectError("precision: {master: split}\n", "has no effect under compute fp32");
  EXPECT_EQ(read("precision: {optimizer_state: fp8}\n").spec->precision.optimizerState,
            "fp8");
  expectError("precision: {optimizer_state: fp4}\n",
              "'precision.optimizer_state' is 'fp4', expected int8, fp8");
  EXPECT_EQ(read("precision: {optimizer_state: mxfp8}\n").spec->precision.optimizerState,
            "mxfp8");
  expectError("precision: {rules: [{match: x, moments: int4}]}\n",
              "'precision.rules[].moments' is 'int4', expected int8, fp8");
  expectError("precision: {compute: amp_bf16, rules: [{match: x}]}\n",
              "has none of 'keep', 'storage', 'saved' and 'moments'");
  expectError("precision: {rules: [{match: x, keep: fp32}]}\n", "no effect");
}

TEST_F(SpecReaderTest, RulesOfStorage) {
  auto result =
      read("precision: {rules: [{match: 'a.*', storage: [fp8, nvfp4], master: "
           "fp32, scaling: delayed, moments: int8}, {match: b, keep: fp32}]}\n");
  ASSERT_TRUE(result.spec);
  const std::vector<StorageRule> &rules = result.spec->precision.rules;
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].storage, (std::vector<std::string>{"fp8", "nvfp4"}));
  EXPECT_EQ(rules[0].master, "fp32");
  EXPECT_EQ(rules[0].moments, "int8");
  EXPECT_TRUE(rules[0].isDelayed);
  EXPECT_TRUE(rules[1].isKept);
  EXPECT_EQ(result.spec->precision.keep, std::vector<std::string>{"b"});
  expectError("precision: {rules: [{match: x, storage: int3}]}\n",
              "expected one of fp32, bf16, fp16, e4m3");
  expectError("precision: {rules: [{match: x, storage: []}]}\n", "is an empty list");
  expectError("precision: {rules: [{match: x, saved: fp32}]}\n", "that is not fp32");
  expectError("precision: {rules: [{match: x, part: y, storage: bf16}]}\n",
              "expected one of them");
}

TEST_F(SpecReaderTest, NotesSpellPoliciesByPart) {
  auto result = read("optim: {group_size: 6, precision_policy: {text: fp16, image: [fp8, "
                     "fp16]}}\n");
  ASSERT_TRUE(result.spec);
  const std::vector<StorageRule> &rules = result.spec->precision.rules;
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].part, "text");
  EXPECT_EQ(rules[1].storage, (std::vector<std::string>{"fp8", "fp16"}));
  ASSERT_EQ(result.translations.size(), 2u);
  EXPECT_EQ(result.translations[1],
            "'optim.precision_policy' read as 'precision: {rules: [{part: text, storage: "
            "fp16}, {part: image, storage: [fp8, fp16]}]}'");
}

TEST(ParseSize, UnitsAndRefusals) {
  EXPECT_EQ(parseSize("512MiB"), int64_t(512) << 20);
  EXPECT_EQ(parseSize("1.5GB"), 1500000000);
  EXPECT_EQ(parseSize("42"), 42);
  EXPECT_FALSE(parseSize("-1"));
  EXPECT_FALSE(parseSize("12 parsecs"));
  EXPECT_FALSE(parseSize("99999999999TiB"));
}

TEST(SpecSchema, ListsReadyKeysOnly) {
  std::string schema = specSchema();
  EXPECT_NE(schema.find("label_smoothing"), std::string::npos);
  EXPECT_NE(schema.find("loss_scale"), std::string::npos);
  EXPECT_EQ(schema.find("\"phases\""), std::string::npos);
  EXPECT_EQ(schema.find("\"controller\""), std::string::npos);
}

} // namespace
