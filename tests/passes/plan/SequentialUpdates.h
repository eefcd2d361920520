#pragma once
// The recurrences of update modes, step by step: gradients of single micro-batches and
// updates of single groups come from a plan without modes ('accumulate' without end), and
// everything between them, what waits, what is averaged, what is compensated, is here.

#include "tests/passes/plan/PlanFixture.h"

#include <cmath>
#include <deque>
#include <set>

namespace sluice {

struct GroupMode {
  std::string group; // of equal options, in the plan without modes
  std::vector<std::string> parameters;
  int64_t every = 1, phase = 0, delay = 0;
};

class SequentialUpdates {
public:
  using Tensors = std::map<std::string, std::vector<float>>;

  SequentialUpdates(const std::string &planPath, std::vector<GroupMode> modes,
                    CompensationSpec how)
      : running(planPath, 1), modes(std::move(modes)), how(std::move(how)) {}

  Session &session() { return *running.session; }

  /// A step on one micro-batch of every rank.
  void step(const std::vector<Batch> &ranks) {
    for (GroupMode &mode : modes)
      remember(mode, ranks);
    std::vector<std::pair<GroupMode *, Sum>> updates;
    for (GroupMode &mode : modes)
      if (steps % mode.every == mode.phase)
        if (auto sum = takeDue(mode))
          updates.emplace_back(&mode, *sum);
    for (auto &[mode, sum] : updates)
      update(*mode, sum, ranks[0]);
    ++steps;
  }

  /// What waits, oldest first.
  void applyAll(const Batch &any) {
    int64_t rounds = 0, every = 1;
    for (const GroupMode &mode : modes) {
      rounds = std::max({rounds, mode.every - 1, mode.delay});
      every = std::max(every, mode.every);
    }
    for (int64_t round = 0; round < rounds; ++round)
      for (GroupMode &mode : modes) {
        std::deque<Sum> &waits = waiting[mode.group];
        bool isDue = mode.delay > 0
                         ? static_cast<int64_t>(waits.size()) + round >= mode.delay
                         : (steps + round) % every == mode.phase && round < every - 1;
        if (waits.empty() || !isDue)
          continue;
        Sum sum = mode.delay > 0 ? waits.front() : whole(waits);
        mode.delay > 0 ? waits.pop_front() : waits.clear();
        update(mode, sum, any);
      }
  }

  /// Parameters and moments of the plan without modes.
  std::map<std::string, std::string> saved() const {
    auto all = running.saved();
    std::erase_if(all, [](auto &entry) {
      return !entry.first.starts_with("param/") && !entry.first.starts_with("opt/");
    });
    return all;
  }
  const Tensors &meanSquares() const { return means; }

private:
  struct Sum {
    std::vector<Tensors> byRank; // sums of gradients
    std::vector<float> counts;   // of samples, by rank
    Tensors weights;             // they were computed with
  };

  std::vector<float> read(const std::string &symbol) {
    auto bytes = session().state(symbol);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  void write(const std::string &symbol, const std::vector<float> &values) {
    ASSERT_TRUE(
        session().writeState(symbol, values.data(), values.size() * sizeof(float)).ok())
        << symbol;
  }

  /// Leaves a window that is not empty.
  void measure(const Batch &batch) {
    for (const fbs::StateTensor *tensor : *session().plan().raw().state())
      if (tensor->role() == fbs::Role::accumulator)
        std::memset(session().state(tensor->name()->string_view()).data(), 0,
                    tensor->size());
    StepResult result;
    ASSERT_TRUE(session().step(batch, result).ok());
  }

  void remember(GroupMode &mode, const std::vector<Batch> &ranks) {
    Sum sum;
    for (const Batch &batch : ranks) {
      measure(batch);
      Tensors &own = sum.byRank.emplace_back();
      for (const std::string &name : mode.parameters)
        own[name] = read("grad/" + name);
      sum.counts.push_back(read("grad/count")[0]);
    }
    for (const std::string &name : mode.parameters)
      sum.weights[name] = read("param/" + name);
    waiting[mode.group].push_back(std::move(sum));
  }

  /// Of ranks that add up what they have of several steps.
  static Sum whole(const std::deque<Sum> &waits) {
    Sum all = waits.front();
    for (auto sum = std::next(waits.begin()); sum != waits.end(); ++sum)
      for (size_t rank = 0; rank < all.byRank.size(); ++rank) {
        for (auto &[name, values] : all.byRank[rank])
          for (size_t i = 0; i < values.size(); ++i)
            values[i] += sum->byRank[rank].at(name)[i];
        all.counts[rank] += sum->counts[rank];
      }
    return all;
  }

  std::optional<Sum> takeDue(GroupMode &mode) {
    std::deque<Sum> &waits = waiting[mode.group];
    if (mode.delay == 0) {
      Sum sum = whole(waits);
      waits.clear();
      return sum;
    }
    if (static_cast<int64_t>(waits.size()) <= mode.delay)
      return std::nullopt;
    Sum sum = std::move(waits.front());
    waits.pop_front();
    return sum;
  }

  /// Rank r takes that of rank r + 1, then of r + 2, ...
  static float treeSum(std::vector<float> terms) {
    for (size_t step = 1; step < terms.size(); step *= 2)
      for (size_t r = 0; r + step < terms.size(); r += 2 * step)
        terms[r] += terms[r + step];
    return terms[0];
  }

  float gradient(const Sum &sum, const std::string &name, size_t i) const {
    std::vector<float> terms;
    for (const Tensors &rank : sum.byRank)
      terms.push_back(rank.at(name)[i]);
    return treeSum(terms) + 0.f;
  }

  void update(GroupMode &mode, const Sum &sum, const Batch &any) {
    measure(any); // so that there is a window to end
    float inverse = 1.f / (treeSum(sum.counts) + 0.f);
    for (const std::string &name : mode.parameters) {
      std::vector<float> now = read("param/" + name), mean = now;
      for (size_t i = 0; i < now.size(); ++i) {
        float g = gradient(sum, name, i) * inverse;
        mean[i] = mode.delay == 0 || how.kind != "dc_asgd"
                      ? g
                      : corrected(name, i, g, now[i] - sum.weights.at(name)[i]);
      }
      write("grad/" + name, mean);
    }
    write("grad/count", {1.f});
    for (const GroupMode &other : modes)
      ASSERT_TRUE(session().setFrozen(other.group, other.group != mode.group).ok());
    StepResult result;
    ASSERT_TRUE(session().flush(result).ok());
  }

  float corrected(const std::string &name, size_t i, float g, float moved) {
    float term = g * g * moved, lambda = static_cast<float>(how.lambda);
    if (!how.adaptive)
      return g + term * lambda;
    std::vector<float> &ms = means[name];
    ms.resize(std::max(ms.size(), i + 1), 0.f);
    ms[i] =
        ms[i] * static_cast<float>(how.decay) + g * g * static_cast<float>(1 - how.decay);
    return g + term * lambda / std::sqrt(ms[i] + static_cast<float>(1e-7));
  }

  Running running;
  std::vector<GroupMode> modes;
  CompensationSpec how;
  std::map<std::string, std::deque<Sum>> waiting; // by group, oldest first
  Tensors means;
  int64_t steps = 0;
};

} // namespace sluice
