// The graph of a program of a plan file.

#include "kernels/StoredFormats.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/DotText.h"
#include "tools/sluice/GraphPicture.h"
#include "tools/sluice/MemoryCertificate.h"
#include "tools/sluice/UpdateGroupNames.h"

#include <algorithm>
#include <map>

namespace sluice::cli {
namespace {

using Mark = DotText::Mark;

bool touches(const fbs::Launch &launch, const fbs::BufferInfo &buffer) {
  for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s)
    for (uint32_t o = 0; o < sizeOf(launch.stages()->Get(s)->operands()); ++o) {
      const fbs::Operand &operand = *launch.stages()->Get(s)->operands()->Get(o);
      if (operand.space() == fbs::Space::step &&
          operand.offset() < buffer.offset() + buffer.size() &&
          buffer.offset() < operand.offset() + operand.size())
        return true;
    }
  return false;
}

/// Bits of a parameter in a stored format; 0: in f32, or no parameter.
int storedBitsOf(const fbs::StateTensor &tensor) {
  if (tensor.role() != fbs::Role::parameter)
    return 0;
  if (auto format = storedFormat(viewOf(tensor.format())))
    return traitsOf(*format).bits;
  bool isHalf = tensor.dtype() == fbs::DType::bf16 || tensor.dtype() == fbs::DType::f16;
  return isHalf ? 16 : 0;
}

class ProgramGraph {
public:
  ProgramGraph(const fbs::Plan &plan, const fbs::Program &program)
      : program(program), launches(sizeOf(program.launches())) {
    for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
      if (int bits = storedBitsOf(*plan.state()->Get(i)))
        narrow.push_back({plan.state()->Get(i)->offset(), bits});
    std::sort(narrow.begin(), narrow.end());
    findGroups(plan);
    int64_t forward = 0; // what runs before any run more
    while (forward < launches &&
           program.launches()->Get(static_cast<uint32_t>(forward))->again() == 0)
      ++forward;
    for (uint32_t b = 0; b < sizeOf(program.buffers()); ++b) {
      const fbs::BufferInfo &buffer = *program.buffers()->Get(b);
      if (buffer.first() < forward && buffer.run() == 0 && isRecomputed(buffer))
        dropped.insert(buffer.first());
    }
  }

  std::string draw() {
    dot.open("0", viewOf(program.name()));
    for (uint32_t i = 0; i < launches; ++i) {
      const fbs::Launch &launch = *program.launches()->Get(i);
      std::string label = std::to_string(i) + ": " + std::string(viewOf(launch.op())) +
                          "\n" + nodeText(launch);
      if (launch.again() > 0)
        label += "\n(run again, " + std::to_string(launch.again()) + ")";
      Mark mark = launch.again() > 0    ? Mark::RunAgain
                  : dropped.contains(i) ? Mark::Recomputed
                                        : Mark::None;
      dot.inGroup(groupOf(launch));
      if (int bits = mark == Mark::None ? fewestBitsOf(launch) : 0)
        dot.stored(launchId(i), label, bits);
      else
        dot.node(launchId(i), label, mark);
      if (i > 0)
        dot.below(launchId(i - 1), launchId(i));
    }
    for (uint32_t b = 0; b < sizeOf(program.buffers()); ++b)
      if (program.buffers()->Get(b)->space() == fbs::Space::step)
        addBuffer(b, *program.buffers()->Get(b));
    for (uint32_t c = 0; c < sizeOf(program.copies()); ++c)
      addCopy(c, *program.copies()->Get(c));
    dot.close();
    return dot.finish();
  }

private:
  static std::string launchId(int64_t launch) { return "l" + std::to_string(launch); }

  /// Of the parameters that the launch reads or writes; 0: none is in a stored format.
  int fewestBitsOf(const fbs::Launch &launch) const {
    int fewest = 0;
    for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s)
      for (uint32_t o = 0; o < sizeOf(launch.stages()->Get(s)->operands()); ++o) {
        const fbs::Operand &operand = *launch.stages()->Get(s)->operands()->Get(o);
        if (operand.space() != fbs::Space::state)
          continue;
        auto at = std::lower_bound(narrow.begin(), narrow.end(),
                                   std::pair(operand.offset(), 0));
        if (at != narrow.end() && at->first == operand.offset() &&
            (fewest == 0 || at->second < fewest))
          fewest = at->second;
      }
    return fewest;
  }

  /// Where parameters lie that are updated in a group, as the plan's decisions say.
  void findGroups(const fbs::Plan &plan) {
    std::map<std::string, std::string> groups = updateGroupsOf(plan);
    for (uint32_t i = 0; i < sizeOf(plan.state()); ++i) {
      const fbs::StateTensor &tensor = *plan.state()->Get(i);
      std::string_view name = viewOf(tensor.name());
      if (!name.starts_with("param/") || tensor.space() != fbs::Space::state)
        continue;
      if (auto found = groups.find(std::string(name.substr(6))); found != groups.end())
        grouped[tensor.offset()] = found->second;
    }
  }

  /// Of the parameters that the launch reads or writes; empty where it has several.
  std::string groupOf(const fbs::Launch &launch) const {
    std::string group;
    for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s)
      for (uint32_t o = 0; o < sizeOf(launch.stages()->Get(s)->operands()); ++o) {
        const fbs::Operand &operand = *launch.stages()->Get(s)->operands()->Get(o);
        auto found = grouped.find(operand.offset());
        if (operand.space() != fbs::Space::state || found == grouped.end())
          continue;
        if (!group.empty() && group != found->second)
          return "";
        group = found->second;
      }
    return group;
  }

  bool isRecomputed(const fbs::BufferInfo &buffer) const {
    for (uint32_t t = 0; t < sizeOf(program.tensors()); ++t) {
      const fbs::TensorFact &fact = *program.tensors()->Get(t);
      if (fact.choice() == fbs::Choice::recomputed &&
          hasName(viewOf(buffer.name()), viewOf(fact.name())))
        return true;
    }
    return false;
  }

  Mark markOf(const fbs::BufferInfo &buffer) const {
    if (buffer.offloaded())
      return Mark::Offloaded;
    return buffer.run() > 0 ? Mark::RunAgain : Mark::None;
  }

  void addBuffer(uint32_t index, const fbs::BufferInfo &buffer) {
    std::string from = launchId(buffer.first());
    if (buffer.first() < 0) {
      from = "b" + std::to_string(index);
      dot.node(from, viewOf(buffer.name()), Mark::None, "ellipse");
    }
    std::string name(viewOf(buffer.name()));
    constexpr size_t most = 40; // the end of a name says most
    if (name.size() > most)
      name = "..." + name.substr(name.size() - most);
    std::string label = name + "\n" + sizeText(buffer.size());
    auto [first, last] = launchesOf(buffer, program);
    for (int64_t i = first; i <= last && i < launches; ++i)
      if (i != buffer.first() &&
          touches(*program.launches()->Get(static_cast<uint32_t>(i)), buffer))
        dot.edge(from, launchId(i), label, markOf(buffer));
  }

  void addCopy(uint32_t index, const fbs::Copy &copy) {
    std::string id = "c" + std::to_string(index);
    bool out = copy.to_space() == fbs::Space::host_step ||
               copy.to_space() == fbs::Space::host_state;
    dot.node(id,
             std::string(out ? "copy to the host\n" : "copy from the host\n") +
                 std::string(viewOf(copy.name())) + " " + sizeText(copy.size()),
             Mark::Offloaded, "cds");
    if (copy.wait_launches() > 0)
      dot.order(launchId(copy.wait_launches() - 1), id);
    if (index > 0)
      dot.order("c" + std::to_string(index - 1), id);
    for (uint32_t i = 0; i < launches; ++i)
      if (program.launches()->Get(i)->wait_copies() == index + 1) {
        dot.order(id, launchId(i));
        break;
      }
  }

  const fbs::Program &program;
  int64_t launches;
  std::vector<std::pair<uint64_t, int>> narrow; // offset and bits of parameters
  std::map<uint64_t, std::string> grouped;      // offset of a parameter, its group
  std::set<int64_t> dropped; // launches whose results are computed again
  DotText dot;
};

} // namespace

std::string programDot(const fbs::Plan &plan, const fbs::Program &program) {
  return ProgramGraph(plan, program).draw();
}

} // namespace sluice::cli
