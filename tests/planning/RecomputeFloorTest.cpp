#include "RecomputeSteps.h"

#include "passes/planning/Frontier.h"
#include "passes/planning/RecomputeFloor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace sluice;
using namespace sluice::testing;

namespace {

/// Runs with the instances of values they hand on, for orders by force.
struct Runs {
  Runs(const RecomputeProblem &problem, const RecomputeSolution &plan)
      : problem(problem), schedule(plan.schedule) {
    std::vector<int32_t> latest(problem.values.size(), -1);
    for (size_t i = 0; i < schedule.size(); ++i) {
      const auto &op = problem.ops[schedule[i].op];
      std::set<int32_t> &in = reads.emplace_back();
      for (int32_t v : op.inputs)
        in.insert(instanceOf(v, latest));
      std::set<int32_t> &out = writes.emplace_back();
      for (int32_t v : op.outputs) {
        latest[v] = int32_t(values.size());
        out.insert(latest[v]);
        values.push_back(v);
        writer.push_back(int32_t(i));
      }
    }
    for (size_t v = 0; v < latest.size(); ++v)
      if (problem.values[v].liveAtEnd)
        kept.insert(instanceOf(int32_t(v), latest));
  }

  int32_t instanceOf(int32_t v, std::vector<int32_t> &latest) {
    if (latest[v] < 0) {
      latest[v] = int32_t(values.size());
      values.push_back(v);
      writer.push_back(-1);
    }
    return latest[v];
  }
  int64_t round(int64_t bytes) const {
    return (bytes + problem.alignBytes - 1) / problem.alignBytes * problem.alignBytes;
  }
  int64_t bytes(int32_t instance) const {
    return round(problem.values[values[instance]].sizeBytes);
  }
  bool diesBy(int32_t instance, uint32_t done) const {
    for (size_t r = 0; r < reads.size(); ++r)
      if (reads[r].count(instance) && !(done >> r & 1))
        return false;
    return !kept.count(instance);
  }

  /// Bytes while run r runs behind the runs `done`.
  int64_t during(uint32_t done, size_t r) const {
    const auto &op = problem.ops[schedule[r].op];
    int64_t level = round(op.workspaceBytes);
    for (int32_t k = 0; k < int32_t(values.size()); ++k) {
      bool exists = writer[k] < 0 || done >> writer[k] & 1 || writer[k] == int32_t(r);
      if (exists && (!diesBy(k, done) || writes[r].count(k)))
        level += bytes(k);
    }
    std::set<int32_t> shared;
    for (auto [in, out] : op.inPlace)
      for (int32_t k : reads[r])
        if (values[k] == in && diesBy(k, done | 1u << r) && !shared.count(in) &&
            !shared.count(out)) {
          shared.insert({in, out});
          level -= std::min(bytes(k), round(problem.values[out].sizeBytes));
        }
    return level;
  }

  int64_t leastPeak() const {
    size_t count = schedule.size();
    std::vector<int64_t> peak(size_t(1) << count, INT64_MAX);
    peak[0] = 0;
    for (uint32_t done = 0; done + 1 < peak.size(); ++done)
      for (size_t r = 0; r < count && peak[done] < INT64_MAX; ++r) {
        bool ready = !(done >> r & 1);
        for (int32_t k : reads[r])
          ready = ready && (writer[k] < 0 || done >> writer[k] & 1);
        if (!ready)
          continue;
        int64_t &next = peak[done | 1u << r];
        next = std::min(next, std::max(peak[done], during(done, r)));
      }
    return peak.back();
  }

  const RecomputeProblem &problem;
  const std::vector<Execution> &schedule;
  std::vector<int32_t> values, writer; // by instance
  std::vector<std::set<int32_t>> reads, writes;
  std::set<int32_t> kept;
};

TEST(RecomputeFloor, IsBelowThePeakOfEveryOrder) {
  int32_t equal = 0, count = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RecomputeProblem problem = randomStep(seed, 5 + int32_t(seed % 5));
    for (auto &op : problem.ops)
      op.optionalInputs.clear(); // the runs here read all
    Frontier frontier = Frontier::build(problem);
    for (size_t member = 0; member < frontier.members().size(); ++member) {
      RecomputeSolution plan = frontier.plan(member);
      if (plan.schedule.size() > 13)
        continue;
      int64_t floor = leastBytesInAnyOrder(problem, plan);
      int64_t least = Runs(problem, plan).leastPeak();
      EXPECT_LE(floor, least) << seed;
      EXPECT_LE(least, plan.peakBytes) << seed;
      equal += floor == least;
      ++count;
    }
  }
  std::printf("%d of %d floors are met by an order\n", equal, count);
  EXPECT_GE(equal, count / 4);
}

TEST(RecomputeFloor, IsCloseToThePlansOfADecoder) {
  RecomputeProblem problem = decoderStep({12, 768, 12, 8, 1024});
  Frontier frontier = Frontier::build(problem);
  for (size_t i = 0; i < frontier.members().size(); i += 16) {
    RecomputeSolution plan = frontier.plan(i);
    int64_t floor = leastBytesInAnyOrder(problem, plan);
    EXPECT_LE(floor, plan.peakBytes);
    EXPECT_GE(double(floor), 0.8 * double(plan.peakBytes)) << i;
  }
}

} // namespace
