// Law 8: N ranks of M micro-batches each are, bit for bit, one rank with
// accumulate: {count: N * M, as_ranks: N}: parameters, moments, masters, statistics and
// the loss, for full windows and for those that an epoch's end cuts short. So do ranks
// that share out the state of the optimizer and its work (ZeRO), each with its part.

#include "runtime/StateShard.h"
#include "runtime/comm/LocalGroup.h"
#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

struct RankCase {
  const char *name;
  std::string model;
  int ranks = 2;
  int64_t perRank = 1;
  void (*change)(TrainingSpec &spec) = nullptr;
  bool shares = false; ///< some state is in shards
};

/// Case S9: ids [4] -> rows of a table -> logits by the same table, 50,257 words of 2.
const std::string tied = R"(
graph.parameter @"param/table" : tensor<50257x2xf32> "parameter"
func.func @forward(%ids: tensor<4xi64> {graph.name = "ids"}) -> (tensor<4x50257xf32> {graph.name = "logits"}) {
  %t = graph.read @"param/table" : tensor<50257x2xf32>
  %x = graph.gather %t, %ids {axis = 0 : i64} : (tensor<50257x2xf32>, tensor<4xi64>) -> tensor<4x2xf32>
  %y = graph.contract %x, %t {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x2xf32>, tensor<50257x2xf32>) -> tensor<4x50257xf32>
  return %y : tensor<4x50257xf32>
})";

/// x [4, 5] -> gelu layer of 37 -> logits [4, 3]: tensors that 2 or 4 ranks cannot share
/// evenly, and some too small to be shared.
std::string wide(int64_t inputs = 5, int64_t hidden = 37) {
  std::string i = std::to_string(inputs), h = std::to_string(hidden);
  std::string product = "{lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = "
                        "array<i64: 1>, rhs_contract = array<i64: 1>} : ";
  auto type = [](const std::string &shape) { return "tensor<" + shape + "xf32>"; };
  std::string x = type("4x" + i), w1 = type(h + "x" + i), b1 = type(h),
              a = type("4x" + h), w2 = type("3x" + h), y = type("4x3");
  return "graph.parameter @\"param/fc1.weight\" : " + w1 +
         " \"parameter\"\n"
         "graph.parameter @\"param/fc1.bias\" : " +
         b1 +
         " \"parameter\"\n"
         "graph.parameter @\"param/fc2.weight\" : " +
         w2 +
         " \"parameter\"\n"
         "func.func @forward(%x: " +
         x + " {graph.name = \"x\"}) -> (" + y +
         " {graph.name = \"logits\"}) {\n"
         "  %w1 = graph.read @\"param/fc1.weight\" : " +
         w1 + "\n  %b1 = graph.read @\"param/fc1.bias\" : " + b1 +
         "\n  %w2 = graph.read @\"param/fc2.weight\" : " + w2 +
         "\n  %0 = graph.contract %x, %w1 " + product + "(" + x + ", " + w1 + ") -> " +
         a + "\n  %1 = graph.broadcast %b1 {shape = array<i64: 4, " + h + ">} : (" + b1 +
         ") -> " + a + "\n  %2 = graph.add %0, %1 : (" + a + ", " + a + ") -> " + a +
         "\n  %3 = graph.gelu %2 : (" + a + ") -> " + a +
         "\n  %4 = graph.contract %3, %w2 " + product + "(" + a + ", " + w2 + ") -> " +
         y + "\n  return %4 : " + y + "\n}";
}

TrainingSpec specOf(const RankCase &one) {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.clip = {"global_norm", 0.5};
  spec.threads = 1;
  InitRule &rule = spec.init.emplace_back();
  rule.from = "normal";
  rule.std = 0.3;
  if (one.change)
    one.change(spec);
  return spec;
}

class RankGroup : public testing::TestWithParam<RankCase> {
protected:
  void SetUp() override {
    const RankCase &one = GetParam();
    TrainingSpec many = specOf(one), alone = specOf(one);
    many.ranks = one.ranks, many.accumulate = one.perRank;
    alone.asRanks = one.ranks, alone.accumulate = one.ranks * one.perRank;
    compile(many, "many.plan");
    compile(alone, "alone.plan");
    as = std::make_unique<Running>(folder.file("alone.plan"), 1);
    ASSERT_TRUE(as->session);
    CommOptions options;
    options.crowded = true;
    auto made = LocalGroup::create(one.ranks, options);
    ASSERT_TRUE(made.ok());
    group = *made;
  }

  void compile(const TrainingSpec &spec, const std::string &name) {
    CompileOptions options;
    options.spec = spec;
    options.outPath = folder.file(name);
    Compiled compiled = compileText(GetParam().model, options);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  }

  /// The micro-batch `index` of all that were ever taken.
  struct Feed {
    std::vector<std::string> storage;
    Batch batch;
  };
  Feed feedOf(const Plan &plan, int64_t index, int64_t count) const {
    const char *program = plan.accumulate() > 1 ? "micro" : "step";
    Values values = inputsOf(plan, program, 7 + 13 * static_cast<unsigned>(index));
    Feed feed;
    for (const InputSpec &input : plan.inputs(program))
      feed.storage.push_back(Running::bytesOf(values.at(input.name), input.dtype));
    for (const std::string &bytes : feed.storage)
      feed.batch.data.push_back(bytes.data());
    feed.batch.count = count;
    feed.batch.firstSample = 4 * index;
    return feed;
  }

  struct Window {
    int64_t first = 0, length = 0, lastCount = 0; ///< in micro-batches; samples
    int64_t countOf(int64_t k) const {
      return k + 1 == length && lastCount > 0 ? lastCount : 4;
    }
  };

  static Status step(Session &session, const Feed &feed, StepResult &result) {
    return session.step(feed.batch, result);
  }

  /// What the one rank makes of the windows.
  std::vector<StepResult> runAlone(const std::vector<Window> &windows) {
    std::vector<StepResult> results;
    for (const Window &window : windows) {
      StepResult result;
      for (int64_t k = 0; k < window.length; ++k)
        EXPECT_TRUE(step(*as->session,
                         feedOf(as->session->plan(), window.first + k, window.countOf(k)),
                         result)
                        .ok());
      if (!result.updated)
        EXPECT_TRUE(as->session->flush(result).ok());
      results.push_back(result);
    }
    return results;
  }

  /// A tensor as one rank has it.
  struct Piece {
    bool isShard = false;
    ElementRange own;
    uint64_t each = 1;
    std::string bytes;
  };
  using Saved = std::map<std::string, Piece>;

  Saved runRank(Communicator &comm, const std::vector<Window> &windows,
                std::vector<StepResult> &results, int threads) {
    auto plan = PlanReader::readFile(folder.file("many.plan"));
    SessionOptions options;
    options.threads = threads;
    options.stepPattern = 0xA5;
    options.communicator = &comm;
    auto session = Session::create(*plan, options);
    EXPECT_TRUE(session.ok()) << session.status().message;
    if (!session)
      return {};
    int64_t perRank = GetParam().perRank, first = perRank * comm.rank();
    for (const Window &window : windows) {
      StepResult result;
      Status status = Status::success();
      for (int64_t k = first; k < std::min(first + perRank, window.length); ++k)
        if (status.ok())
          status = step(**session, feedOf(**plan, window.first + k, window.countOf(k)),
                        result);
      if (status.ok() && !result.updated)
        status = (*session)->flush(result);
      EXPECT_TRUE(status.ok()) << status.message;
      if (!status.ok()) {
        comm.abort(status);
        return {};
      }
      results.push_back(result);
      int64_t end = window.first + window.length - 1;
      EXPECT_EQ((*session)->samples(), 4 * end + window.countOf(window.length - 1));
    }
    Saved saved;
    for (const fbs::StateTensor *tensor : *(*plan)->raw().state())
      if (tensor->saved()) {
        auto bytes = (*session)->state(tensor->name()->string_view());
        Piece &piece = saved[tensor->name()->str()];
        piece.isShard = isShard(*tensor);
        piece.own = ownElements(**plan, *tensor, comm.rank());
        piece.each = dtypeSize(static_cast<DType>(tensor->dtype()));
        piece.bytes = std::string(bytes.begin(), bytes.end());
      }
    return saved;
  }

  /// What all ranks have of a tensor, put together; each one's padding left out.
  static std::string joined(const std::vector<Saved> &ranks, const std::string &name) {
    std::string all;
    for (const Saved &saved : ranks) {
      const Piece &piece = saved.at(name);
      EXPECT_EQ(piece.own.begin * piece.each, all.size()) << name;
      all += piece.bytes.substr(0, (piece.own.end - piece.own.begin) * piece.each);
    }
    return all;
  }

  PlanFolder folder;
  std::unique_ptr<Running> as;
  std::shared_ptr<LocalGroup> group;
};

TEST_P(RankGroup, HasTheBitsOfOneRankThatPlaysAll) {
  int ranks = GetParam().ranks;
  int64_t all = ranks * GetParam().perRank;
  std::vector<Window> windows;
  int64_t first = 0;
  for (int64_t length = all; length >= 1; --length) {
    windows.push_back({first, length, length == all ? 0 : 3});
    first += length;
  }
  windows.push_back({first, all, 0}); // partial windows have left nothing behind
  std::vector<StepResult> alone = runAlone(windows);
  std::vector<Saved> saved(ranks);
  std::vector<std::vector<StepResult>> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto comm = group->join(rank);
      ASSERT_TRUE(comm.ok());
      saved[rank] = runRank(**comm, windows, results[rank], 1);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(results[rank].size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(results[rank][i].windowLossSum, alone[i].windowLossSum) << i;
      EXPECT_EQ(results[rank][i].windowLossCount, alone[i].windowLossCount) << i;
      float norm = results[rank][i].gradNorm.value_or(0); // may be NaN
      EXPECT_EQ(std::bit_cast<uint32_t>(norm),
                std::bit_cast<uint32_t>(alone[i].gradNorm.value_or(0)))
          << i;
      EXPECT_EQ(results[rank][i].lossScale, alone[i].lossScale) << i;
    }
    for (auto &[name, bytes] : as->saved())
      if (!saved[rank].at(name).isShard)
        EXPECT_EQ(saved[rank][name].bytes == bytes, true)
            << "rank " << rank << ": " << name;
  }
  int shards = 0;
  for (auto &[name, bytes] : as->saved())
    if (saved[0].at(name).isShard) {
      EXPECT_EQ(joined(saved, name) == bytes, true) << name;
      EXPECT_LE(saved[0][name].bytes.size(), bytes.size() / ranks + bytes.size() / 5)
          << name;
      for (int rank = 0; rank < ranks; ++rank) { // every part has been updated
        const Piece &piece = saved[rank].at(name);
        size_t size = (piece.own.end - piece.own.begin) * piece.each;
        EXPECT_NE(piece.bytes.substr(0, size), std::string(size, '\0')) << name;
      }
      ++shards;
    }
  EXPECT_EQ(shards > 0, GetParam().shares);
}

void amp(TrainingSpec &spec) { spec.precision.compute = "amp_bf16"; }
void scaled(TrainingSpec &spec) {
  spec.precision.compute = "amp_fp16";
  spec.lossScale.kind = "dynamic";
  spec.lossScale.init = 1024; // some updates are applied, some skipped
}
void plainSgd(TrainingSpec &spec) {
  spec.optimizer.kind = "sgd";
  spec.clip = {};
}

/// Norms that all ranks judge alike: one that is twice the mean is an outlier here.
void health(TrainingSpec &spec) {
  spec.clip = {"zclip", 0.5};
  spec.clip.warmup = 2;
  spec.clip.z = 0.5;
  spec.spikes.outliers = "skip";
  spec.spikes.factor = 1.2;
  spec.spikes.cutsRates = true;
  spec.spikes.fluctuation = 1e-6;
  spec.spikes.window = 2;
  spec.spikes.cooldown = 0;
}
void units(TrainingSpec &spec) {
  spec.clip = {"agc", 0};
  spec.clip.ratio = 0.003;
}
void zeroHealth(TrainingSpec &spec) { health(spec), spec.zero = 2; }
void zero1(TrainingSpec &spec) { spec.zero = 1; }
void zero2(TrainingSpec &spec) { spec.zero = 2; }
template <const char *Kind> void zeroOf(TrainingSpec &spec) {
  spec.zero = 2;
  spec.optimizer.kind = Kind;
}
constexpr char lion[] = "lion", adagrad[] = "adagrad";
void zeroMomentum(TrainingSpec &spec) {
  spec.zero = 1;
  spec.optimizer.kind = "sgd";
  spec.optimizer.momentum = 0.9;
}
void zeroAmp(TrainingSpec &spec) { amp(spec), zero2(spec); }
void zeroF32Master(TrainingSpec &spec) {
  zeroAmp(spec);
  spec.precision.master = "fp32";
}
void zeroScaled(TrainingSpec &spec) { scaled(spec), zero1(spec); }
void zeroInt8(TrainingSpec &spec) {
  zero2(spec);
  spec.precision.optimizerState = "int8";
}
void zeroBf16(TrainingSpec &spec) { // moments and weights rounded stochastically
  zeroAmp(spec);
  spec.precision.master = "none";
  spec.precision.optimizerState = "bf16";
}
void zeroBf16Moments(TrainingSpec &spec) {
  zero1(spec);
  spec.precision.optimizerState = "bf16";
}
void zeroFp8(TrainingSpec &spec) {
  zero1(spec);
  spec.precision.optimizerState = "fp8";
}

INSTANTIATE_TEST_SUITE_P(
    Zero, RankGroup,
    testing::Values(RankCase{"Adam2x1", wide(), 2, 1, zero1, true},
                    RankCase{"Adam2x3", wide(), 2, 3, zero2, true},
                    RankCase{"Adam4x1", wide(), 4, 1, zero2, true},
                    RankCase{"Adam4x3", wide(), 4, 3, zero1, true},
                    RankCase{"Momentum3x2", wide(), 3, 2, zeroMomentum, true},
                    RankCase{"Lion2x1", wide(), 2, 1, zeroOf<lion>, true},
                    RankCase{"Adagrad2x1", wide(), 2, 1, zeroOf<adagrad>, true},
                    RankCase{"Split2x1", wide(), 2, 1, zeroAmp, true},
                    RankCase{"Split4x3", wide(), 4, 3, zeroAmp, true},
                    RankCase{"F32Master2x1", wide(), 2, 1, zeroF32Master, true},
                    RankCase{"Scaled2x3", wide(), 2, 3, zeroScaled, true},
                    RankCase{"Int8x3x1", wide(64, 65), 3, 1, zeroInt8, true},
                    RankCase{"Fp8x2x2", wide(64, 65), 2, 2, zeroFp8, true},
                    RankCase{"Bf16x2x1", wide(), 2, 1, zeroBf16, true},
                    RankCase{"Bf16Moments4x3", wide(), 4, 3, zeroBf16Moments, true},
                    RankCase{"Tied4x1", tied, 4, 1, zero1, true},
                    RankCase{"Cnn2x1", models::cnn, 2, 1, zero2, true},
                    RankCase{"Health2x1", wide(), 2, 1, zeroHealth, true},
                    RankCase{"Health4x3", wide(), 4, 3, zeroHealth, true}),
    [](const auto &info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Of, RankGroup,
    testing::Values(
        RankCase{"Mlp2x1", models::mlp, 2, 1}, RankCase{"Mlp2x3", models::mlp, 2, 3},
        RankCase{"Mlp4x1", models::mlp, 4, 1}, RankCase{"Mlp4x3", models::mlp, 4, 3},
        RankCase{"Mlp3x2Sgd", models::mlp, 3, 2, plainSgd},
        RankCase{"Cnn2x1", models::cnn, 2, 1}, RankCase{"Cnn2x3", models::cnn, 2, 3},
        RankCase{"Cnn4x1", models::cnn, 4, 1}, RankCase{"Cnn4x3", models::cnn, 4, 3},
        RankCase{"CnnBf16x2x1", models::cnn, 2, 1, amp},
        RankCase{"CnnBf16x2x3", models::cnn, 2, 3, amp},
        RankCase{"CnnScaled2x1", models::cnn, 2, 1, scaled},
        RankCase{"CnnScaled2x3", models::cnn, 2, 3, scaled},
        RankCase{"CnnHealth2x1", models::cnn, 2, 1, health},
        RankCase{"CnnHealth2x3", models::cnn, 2, 3, health},
        RankCase{"MlpUnits2x3", models::mlp, 2, 3, units}),
    [](const auto &info) { return info.param.name; });

} // namespace
} // namespace sluice
