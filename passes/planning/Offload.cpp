#include "passes/planning/Offload.h"

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

constexpr int maxMoves = 400;    // of one search
constexpr size_t candidates = 4; // really scheduled for each move

/// One program under a choice.
struct ProgramLoad {
  int64_t peakBytes = 0, hostBytes = 0;
  int32_t peakAt = 0; // the first instant with that many bytes live
  double timeUs = 0;
  StreamSchedule schedule;
};

class Search {
public:
  explicit Search(const OffloadProblem &problem) : problem(problem) {
    for (const OffloadProblem::Program &program : problem.programs)
      streams.push_back(program.stream);
  }

  int64_t rounded(int64_t bytes) const {
    return (bytes + problem.alignBytes - 1) / problem.alignBytes * problem.alignBytes;
  }

  ProgramLoad load(size_t index, const OffloadChoice &choice) {
    const OffloadProblem::Program &program = problem.programs[index];
    StreamProblem &stream = streams[index];
    bool moves = false;
    for (size_t t = 0; t < stream.tensors.size(); ++t) {
      stream.tensors[t].offloaded = level(index, t, choice) > 0;
      stream.tensors[t].atOnce = level(index, t, choice) > 1;
      moves |= stream.tensors[t].offloaded;
    }
    ProgramLoad result;
    if (moves)
      result.schedule = scheduleCopies(stream);
    else
      for (double us : stream.launchUs)
        result.schedule.timeUs += us;
    result.timeUs = result.schedule.timeUs;
    // Instants -1 (inputs) to the count of launches (outputs), shifted by one.
    std::vector<int64_t> change(stream.launchUs.size() + 3, 0);
    auto add = [&](int32_t begin, int32_t end, int64_t bytes) {
      change[size_t(begin + 1)] += bytes;
      change[size_t(end + 2)] -= bytes;
    };
    for (size_t t = 0; t < stream.tensors.size(); ++t)
      if (program.stateOf[t] < 0 && !stream.tensors[t].offloaded)
        add(program.life[t].first, program.life[t].second,
            rounded(stream.tensors[t].sizeBytes));
    for (const StreamSchedule::Part &part : result.schedule.parts)
      add(part.begin, part.end, rounded(stream.tensors[part.tensor].sizeBytes));
    int64_t live = 0;
    for (size_t i = 0; i + 1 < change.size(); ++i) {
      live += change[i];
      if (live > result.peakBytes)
        result.peakBytes = live, result.peakAt = int32_t(i) - 1;
    }
    result.hostBytes = hostLoad(program, result.schedule);
    return result;
  }

  std::vector<ProgramLoad> loads(const OffloadChoice &choice) {
    std::vector<ProgramLoad> list;
    for (size_t p = 0; p < problem.programs.size(); ++p)
      list.push_back(load(p, choice));
    return list;
  }

  OffloadPlan plan(OffloadChoice choice, const std::vector<ProgramLoad> &list) const {
    OffloadPlan plan;
    int64_t host = 0;
    for (size_t p = 0; p < list.size(); ++p) {
      plan.deviceBytes = std::max(plan.deviceBytes, list[p].peakBytes);
      host = std::max(host, list[p].hostBytes);
      plan.timeUs += double(problem.programs[p].runs) * list[p].timeUs;
    }
    plan.hostBytes = host;
    for (size_t s = 0; s < problem.states.size(); ++s)
      (choice.states[s] ? plan.hostBytes : plan.deviceBytes) +=
          rounded(problem.states[s].sizeBytes);
    plan.choice = std::move(choice);
    return plan;
  }

  struct Move {
    int32_t state = -1;
    size_t program = 0, tensor = 0;
    int64_t bytes = 0;
  };

  /// What could leave the device at the peak of a program, largest first.
  std::vector<Move> movesAt(size_t index, int32_t instant,
                            const OffloadChoice &choice) const {
    const OffloadProblem::Program &program = problem.programs[index];
    std::vector<Move> moves;
    std::vector<char> needed(problem.states.size(), 0);
    for (size_t t = 0; t < program.stream.tensors.size(); ++t) {
      const StreamProblem::Tensor &tensor = program.stream.tensors[t];
      bool before = false, after = false, at = false;
      for (const StreamProblem::Access &access : tensor.accesses) {
        before |= access.launch < instant;
        after |= access.launch > instant;
        at |= access.launch == instant;
      }
      if (program.stateOf[t] >= 0)
        needed[program.stateOf[t]] |= at;
      else if (program.movable[t] && choice.tensors[index][t] < 2 && before && after &&
               !at)
        moves.push_back({-1, index, t, rounded(tensor.sizeBytes)});
    }
    for (size_t s = 0; s < problem.states.size(); ++s)
      if (problem.states[s].movable && choice.states[s] < 2 && !needed[s])
        moves.push_back({int32_t(s), 0, 0, rounded(problem.states[s].sizeBytes)});
    std::sort(moves.begin(), moves.end(), [](const Move &a, const Move &b) {
      return std::tuple(-a.bytes, a.state, a.tensor) <
             std::tuple(-b.bytes, b.state, b.tensor);
    });
    return moves;
  }

  /// False if it is at its last level.
  static bool raise(OffloadChoice &choice, const Move &move) {
    char &level = move.state >= 0 ? choice.states[move.state]
                                  : choice.tensors[move.program][move.tensor];
    return level < 2 && ++level;
  }

  /// Bytes of the whole plan at an instant of a program.
  int64_t bytesAt(size_t index, int32_t instant, const OffloadChoice &choice,
                  const ProgramLoad &load) const {
    const OffloadProblem::Program &program = problem.programs[index];
    int64_t bytes = 0;
    for (size_t s = 0; s < problem.states.size(); ++s)
      bytes += choice.states[s] ? 0 : rounded(problem.states[s].sizeBytes);
    for (size_t t = 0; t < program.stream.tensors.size(); ++t)
      if (program.stateOf[t] < 0 && !level(index, t, choice) &&
          program.life[t].first <= instant && instant <= program.life[t].second)
        bytes += rounded(program.stream.tensors[t].sizeBytes);
    for (const StreamSchedule::Part &part : load.schedule.parts)
      if (part.begin <= instant && instant <= part.end)
        bytes += rounded(program.stream.tensors[part.tensor].sizeBytes);
    return bytes;
  }

private:
  char level(size_t program, size_t tensor, const OffloadChoice &choice) const {
    int32_t state = problem.programs[program].stateOf[tensor];
    return state >= 0 ? choice.states[state] : choice.tensors[program][tensor];
  }

  /// Live from the first copy to the last one, by copies.
  int64_t hostLoad(const OffloadProblem::Program &program,
                   const StreamSchedule &schedule) const {
    std::vector<int64_t> change(schedule.copies.size() + 1, 0);
    for (size_t i = 0; i < schedule.parts.size();) {
      int32_t tensor = schedule.parts[i].tensor, first = -1, last = -1;
      for (; i < schedule.parts.size() && schedule.parts[i].tensor == tensor; ++i)
        for (int32_t c : {schedule.parts[i].copyIn, schedule.parts[i].copyOut})
          if (c >= 0)
            first = first < 0 ? c : std::min(first, c), last = std::max(last, c);
      if (program.stateOf[tensor] >= 0 || first < 0)
        continue;
      change[first] += rounded(program.stream.tensors[tensor].sizeBytes);
      change[last + 1] -= rounded(program.stream.tensors[tensor].sizeBytes);
    }
    int64_t live = 0, peak = 0;
    for (int64_t bytes : change)
      live += bytes, peak = std::max(peak, live);
    return peak;
  }

  const OffloadProblem &problem;
  std::vector<StreamProblem> streams; // of the programs, with flags of the choice
};

size_t fullest(const std::vector<ProgramLoad> &loads) {
  size_t most = 0;
  for (size_t p = 1; p < loads.size(); ++p)
    if (loads[p].peakBytes > loads[most].peakBytes)
      most = p;
  return most;
}

} // namespace

OffloadChoice keepAll(const OffloadProblem &problem) {
  OffloadChoice choice;
  choice.states.assign(problem.states.size(), 0);
  for (const OffloadProblem::Program &program : problem.programs)
    choice.tensors.emplace_back(program.stream.tensors.size(), 0);
  return choice;
}

OffloadPlan measureOffload(const OffloadProblem &problem, OffloadChoice choice) {
  Search search(problem);
  std::vector<ProgramLoad> loads = search.loads(choice);
  return search.plan(std::move(choice), loads);
}

std::vector<OffloadPlan> offloadPlans(const OffloadProblem &problem,
                                      OffloadChoice start) {
  std::vector<OffloadPlan> plans;
  if (problem.programs.empty())
    return plans;
  Search search(problem);
  std::vector<ProgramLoad> loads = search.loads(start);
  OffloadPlan current = search.plan(std::move(start), loads);
  plans.push_back(current);
  for (int move = 0; move < maxMoves; ++move) {
    size_t at = fullest(loads);
    int32_t instant = loads[at].peakAt;
    int64_t bytes = search.bytesAt(at, instant, current.choice, loads[at]);
    double bestPrice = 0; // microseconds for each byte
    OffloadPlan best;
    std::vector<ProgramLoad> bestLoads;
    size_t tried = 0;
    for (const Search::Move &option : search.movesAt(at, instant, current.choice)) {
      if (tried == candidates)
        break;
      OffloadChoice choice = current.choice;
      std::vector<ProgramLoad> nextLoads;
      int64_t freed = 0;
      // Beside launches if that helps here, else at once.
      while (freed <= 0 && Search::raise(choice, option)) {
        nextLoads = loads;
        for (size_t p = 0; p < nextLoads.size(); ++p)
          if (option.state >= 0 || p == option.program)
            nextLoads[p] = search.load(p, choice);
        freed = bytes - search.bytesAt(at, instant, choice, nextLoads[at]);
      }
      if (freed <= 0)
        continue;
      ++tried;
      OffloadPlan next = search.plan(std::move(choice), nextLoads);
      // A busy link is a price too, though a small one.
      double linkUs = 0;
      for (size_t p = 0; p < nextLoads.size(); ++p)
        linkUs += nextLoads[p].schedule.linkUs - loads[p].schedule.linkUs;
      double price =
          (std::max(0.0, next.timeUs - current.timeUs) + 1e-3 * linkUs) / double(freed);
      if (best.choice.tensors.empty() || price < bestPrice) {
        bestPrice = price;
        best = std::move(next);
        bestLoads = std::move(nextLoads);
      }
    }
    if (best.choice.tensors.empty())
      break;
    loads = std::move(bestLoads);
    current = std::move(best);
    if (current.deviceBytes < plans.back().deviceBytes)
      plans.push_back(current);
  }
  return plans;
}

double leastLinkUs(int64_t movedBytes, int64_t readOnlyBytes, const LinkRates &link) {
  int64_t once = std::min(movedBytes, readOnlyBytes);
  return double(once + 2 * (movedBytes - once)) / link.bytesPerSecond * 1e6;
}

std::string checkOffloadCertificate(const RecomputeProblem &problem,
                                    const LinkRates &link,
                                    const OffloadCertificate &certificate) {
  if (certificate.movedBytes < 0 || certificate.readOnlyBytes < 0)
    return "bytes are negative";
  if (certificate.compute.budgetBytes != certificate.budgetBytes + certificate.movedBytes)
    return "the two parts do not meet";
  if (std::string wrong = checkCertificate(problem, certificate.compute); !wrong.empty())
    return wrong;
  double once = double(std::min(certificate.movedBytes, certificate.readOnlyBytes));
  double twice = double(certificate.movedBytes) - once;
  double linkUs = (once + 2 * twice) * 1e6 / link.bytesPerSecond;
  if (certificate.linkUs > linkUs * (1 + 1e-9))
    return "the link needs less time than stated";
  double proved = certificate.compute.infeasible
                      ? certificate.linkUs
                      : std::min(certificate.compute.boundUs, certificate.linkUs);
  double onceUs = 0;
  for (const RecomputeProblem::Op &op : problem.ops)
    onceUs += op.costUs;
  if (certificate.boundUs > std::max(proved, onceUs) * (1 + 1e-9))
    return "the bound is above what is proved";
  return {};
}

} // namespace sluice
