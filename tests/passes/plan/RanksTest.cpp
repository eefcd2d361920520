// accumulate: {count: N * M, as_ranks: N}: the bits that N ranks of M micro-batches give.
// The reference takes the gradients of single micro-batches from a plain plan and adds
// them in float by the definition in docs/numerics.md.

#include "runtime/Checkpoint.h"
#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Sums = std::map<std::string, std::vector<float>>; // by state name "grad/NAME"

TrainingSpec adamw(int64_t count, int64_t asRanks) {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.clip = {"global_norm", 0.5};
  spec.threads = 1;
  spec.accumulate = count;
  spec.asRanks = asRanks;
  return spec;
}

CompileOptions writing(const TrainingSpec &spec, const std::string &path) {
  CompileOptions options;
  options.spec = spec;
  options.outPath = path;
  return options;
}

Sums gradients(const Session &session) {
  Sums sums;
  for (const fbs::StateTensor *tensor : *session.plan().raw().state()) {
    std::string name = tensor->name()->str();
    if (!name.starts_with("grad/"))
      continue;
    auto bytes = session.state(name);
    sums[name].resize(bytes.size() / 4);
    std::memcpy(sums[name].data(), bytes.data(), bytes.size());
  }
  return sums;
}

void setGradients(Session &session, const Sums &sums) {
  for (const auto &[name, values] : sums)
    ASSERT_TRUE(session.writeState(name, values.data(), 4 * values.size()).ok());
}

Sums added(const Sums &a, const Sums &b) {
  Sums sums = a;
  for (auto &[name, values] : sums)
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += b.at(name)[i];
  return sums;
}

Sums zeros(const Sums &like) {
  Sums sums = like;
  for (auto &[name, values] : sums)
    std::fill(values.begin(), values.end(), 0.0f);
  return sums;
}

/// In round s rank r, a multiple of 2^(s+1), adds what rank r + 2^s has.
Sums overRanks(std::vector<Sums> ranks) {
  for (size_t reach = 1; reach < ranks.size(); reach *= 2)
    for (size_t r = 0; r + reach < ranks.size(); r += 2 * reach)
      ranks[r] = added(ranks[r], ranks[r + reach]);
  return ranks[0];
}

/// The plan under test beside a plain one that gives single gradients.
class Ranks : public testing::TestWithParam<int64_t> {
protected:
  static constexpr int64_t perRank = 2;

  void SetUp() override {
    ranks = GetParam();
    count = ranks * perRank;
    as = open(adamw(count, ranks), "as.plan");
    plain = open(adamw(count + 1, 1), "plain.plan"); // its window never ends by itself
    ASSERT_TRUE(as && as->session && plain && plain->session);
    Trained trained(models::mlp, adamw(count, ranks));
    randomize(trained, *as);
    randomize(trained, *plain);
  }

  std::unique_ptr<Running> open(const TrainingSpec &spec, const std::string &name) {
    Compiled compiled = compileText(models::mlp, writing(spec, folder.file(name)));
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    return std::make_unique<Running>(folder.file(name), 1);
  }

  /// One window of `length` micro-batches in both; the plain plan's is put together by
  /// hand. Returns whether the order of addition made a difference.
  bool window(int64_t length) {
    Session &reference = *plain->session;
    std::vector<Sums> sums;
    Sums inOrder;
    for (int64_t k = 0; k < length; ++k) {
      Values inputs = inputsOf(as->session->plan(), "micro", seed += 11);
      StepResult result = as->step(inputs, 4 * k);
      EXPECT_EQ(result.updated, k + 1 == count);
      plain->step(inputs, 4 * k);
      Sums one = gradients(reference);
      setGradients(reference, zeros(one));
      if (sums.empty())
        sums.assign(ranks, zeros(one));
      sums[k / perRank] = added(sums[k / perRank], one);
      inOrder = k == 0 ? one : added(inOrder, one);
    }
    Sums total = overRanks(sums);
    setGradients(reference, total);
    StepResult result;
    EXPECT_TRUE(reference.flush(result).ok());
    if (length < count)
      EXPECT_TRUE(as->session->flush(result).ok());
    return total != inOrder;
  }

  PlanFolder folder;
  int64_t ranks = 1, count = 1;
  unsigned seed = 1;
  std::unique_ptr<Running> as, plain;
};

TEST_P(Ranks, EveryWindowHasTheBitsOfTheTree) {
  bool orderMatters = false;
  for (int64_t length = count; length >= 1; --length) {
    orderMatters |= window(length);
    ASSERT_EQ(as->saved(), plain->saved()) << "window of " << length;
  }
  orderMatters |= window(count); // partial windows have left nothing behind
  ASSERT_EQ(as->saved(), plain->saved());
  EXPECT_TRUE(orderMatters) << "the inputs do not tell one order from another";
}

TEST_P(Ranks, ResumeGivesTheSameBits) {
  window(count);
  window(perRank + 1);
  std::string path = folder.file("checkpoints");
  ASSERT_TRUE(saveCheckpoint(*as->session, path, {}).ok());
  // Inside a window, with a sum waiting in the tree, there is no checkpoint to make, and
  // one that is loaded forgets the window.
  for (int64_t k = 0; k < perRank + 1; ++k)
    as->step(inputsOf(as->session->plan(), "micro", 400 + k), 4 * k);
  EXPECT_FALSE(saveCheckpoint(*as->session, path, {}).ok());
  ASSERT_TRUE(loadCheckpoint(*as->session, path).ok());
  window(count);
  EXPECT_EQ(as->saved(), plain->saved());
}

INSTANTIATE_TEST_SUITE_P(Of, Ranks, testing::Values(2, 3, 4, 5, 7, 8));

} // namespace
} // namespace sluice
