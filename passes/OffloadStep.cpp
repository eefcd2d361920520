#include "passes/OffloadStep.h"

#include "passes/LaunchCosts.h"
#include "passes/LiveRanges.h"
#include "passes/UpdateGroups.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;
constexpr int64_t leastBytes = 256; // below, a copy costs more than its bytes are worth

LinkRates linkOf(ModuleOp module) {
  DeviceRates rates = deviceRates(module);
  return {rates.linkBytesPerSecond, rates.linkLatencyUs};
}

/// State that is an input or output of some program keeps its place.
llvm::StringSet<> statesOfPorts(ModuleOp module) {
  llvm::StringSet<> names;
  module.walk([&](plan::StateBufferOp state) {
    SmallVector<Value> open{state.getBuffer()};
    while (!open.empty())
      for (Operation *user : open.pop_back_val().getUsers()) {
        if (isa<plan::InputOp, plan::OutputOp>(user))
          names.insert(state.getSymbol());
        if (auto slice = dyn_cast<plan::SliceOp>(user))
          open.push_back(slice.getBuffer());
      }
  });
  return names;
}

bool isMovableRole(StringRef role) {
  return role == "parameter" || role == "buffer" || role == "moment" ||
         role == "master" || role == "accumulator" || role == "pending";
}

bool hasGap(const StreamProblem::Tensor &tensor) {
  for (size_t i = 0; i + 1 < tensor.accesses.size(); ++i)
    if (tensor.accesses[i + 1].launch > tensor.accesses[i].launch + 1)
      return true;
  return false;
}

} // namespace

StringRef stateCategory(StringRef role) {
  if (role == "moment" || role == "master")
    return "optimizer";
  if (role == "continual")
    return "continual";
  if (role == "accumulator" || role == "pending")
    return "gradients";
  return "parameters"; // running statistics, constants and controls stand beside them
}

ProgramStream streamOf(plan::ProgramOp program) {
  auto module = program->getParentOfType<ModuleOp>();
  ProgramStream result;
  result.stream.link = linkOf(module);
  llvm::DenseMap<const void *, int32_t> indices;
  auto indexOf = [&](Operation *root) {
    auto state = dyn_cast<plan::StateBufferOp>(root);
    const void *key = state ? state.getSymbolAttr().getAsOpaquePointer() : root;
    auto [known, added] = indices.try_emplace(key, result.roots.size());
    if (!added)
      return known->second;
    StreamProblem::Tensor tensor;
    if (state) {
      auto symbol = SymbolTable::lookupNearestSymbolFrom<plan::StateOp>(
          module, state.getSymbolAttr());
      tensor.sizeBytes = symbol.getSize();
      tensor.isState = true;
      tensor.offloaded = symbol.isOnHost();
      tensor.atOnce = symbol->hasAttr(atOnceAttr);
      result.symbols.push_back(symbol.getSymNameAttr());
      result.roots.push_back(nullptr);
    } else {
      auto buffer = cast<plan::BufferOp>(root);
      tensor.sizeBytes = buffer.getSize();
      tensor.offloaded = buffer.getOffload();
      tensor.atOnce = buffer->hasAttr(atOnceAttr);
      result.symbols.push_back(nullptr);
      result.roots.push_back(root);
    }
    result.stream.tensors.push_back(tensor);
    return known->second;
  };
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
    indexOf(buffer);
  int32_t instant = 0;
  for (plan::LaunchOp launch : launchesOf(program)) {
    result.stream.launchUs.push_back(launch.getPredictedUs().convertToDouble());
    for (const LaunchAccess &access : accessesOf(launch)) {
      auto &list = result.stream.tensors[indexOf(access.range.root)].accesses;
      if (list.empty() || list.back().launch != instant)
        list.push_back({instant, false});
      list.back().written |= access.written || !access.read;
    }
    ++instant;
  }
  return result;
}

OffloadStep::OffloadStep(ModuleOp module) : link(linkOf(module)) {
  addStates(module);
  for (auto program : module.getOps<plan::ProgramOp>())
    addProgram(program);
}

void OffloadStep::addStates(ModuleOp module) {
  llvm::StringSet<> ports = statesOfPorts(module);
  for (auto state : module.getOps<plan::StateOp>()) {
    stateIndex[state.getSymName().str()] = int32_t(states.size());
    states.push_back(state);
    bool movable = isMovableRole(state.getRole()) &&
                   !ports.contains(state.getSymName()) &&
                   int64_t(state.getSize()) >= leastBytes;
    problem.states.push_back({int64_t(state.getSize()), movable});
  }
}

void OffloadStep::addProgram(plan::ProgramOp program) {
  auto integer = [&](StringRef name) {
    auto attr = program->getParentOp()->getAttrOfType<IntegerAttr>(name);
    return attr ? attr.getInt() : 1;
  };
  OffloadProblem::Program added;
  StringRef entry = program.getEntry();
  // One of the entries of groups that interleave, whichever it is, runs at each step.
  added.runs = entry == "step" || isUpdateEntry(entry) ? 1
               : entry == "micro"                      ? integer("graph.accumulate")
               : entry == "close_rank"                 ? integer("graph.as_ranks") - 1
                                                       : 0;
  ProgramStream stream = streamOf(program);
  LiveRanges ranges = liveRanges(program);
  for (size_t t = 0; t < stream.roots.size(); ++t) {
    StreamProblem::Tensor &tensor = stream.stream.tensors[t];
    tensor.offloaded = false;
    if (tensor.isState) {
      added.stateOf.push_back(stateIndex[stream.symbols[t].str()]);
      added.life.push_back({0, 0});
      added.movable.push_back(false);
      continue;
    }
    auto buffer = cast<plan::BufferOp>(stream.roots[t]);
    LiveRange range = ranges.lookup(buffer);
    if (range.empty())
      range = {0, 0};
    added.stateOf.push_back(-1);
    added.life.push_back({int32_t(range.first), int32_t(range.last)});
    added.movable.push_back(buffer.getCategory() != "workspace" && !isInput(buffer) &&
                            !isOutput(buffer) && tensor.sizeBytes >= leastBytes &&
                            hasGap(tensor));
  }
  added.stream = stream.stream;
  problem.programs.push_back(std::move(added));
  streams.push_back(std::move(stream));
  entries.push_back(entry.str());
}

OffloadChoice OffloadStep::withStates(ArrayRef<StringRef> roles) const {
  OffloadChoice choice = keepAll(problem);
  for (size_t s = 0; s < states.size(); ++s)
    if (problem.states[s].movable &&
        llvm::is_contained(roles, plan::StateOp(states[s]).getRole()))
      choice.states[s] = 1;
  return choice;
}

OffloadChoice OffloadStep::withNames(const OffloadNames &names) const {
  OffloadChoice choice = keepAll(problem);
  for (const auto &[name, level] : names.states)
    if (auto known = stateIndex.find(name); known != stateIndex.end())
      choice.states[known->second] = level;
  for (size_t p = 0; p < streams.size(); ++p) {
    auto list = names.buffers.find(entries[p]);
    int64_t ordinal = 0;
    for (size_t t = 0; list != names.buffers.end() && t < streams[p].roots.size(); ++t)
      if (streams[p].roots[t])
        if (auto level = list->second.find(ordinal++); level != list->second.end())
          choice.tensors[p][t] = level->second;
  }
  return choice;
}

int64_t OffloadStep::stateBytes() const {
  int64_t bytes = 0;
  for (const OffloadProblem::State &state : problem.states)
    bytes += llvm::alignTo(state.sizeBytes, lineBytes);
  return bytes;
}

OffloadNames OffloadStep::names(const OffloadChoice &choice) const {
  OffloadNames names;
  for (size_t s = 0; s < states.size(); ++s)
    if (choice.states[s])
      names.states[plan::StateOp(states[s]).getSymName().str()] = choice.states[s];
  for (size_t p = 0; p < streams.size(); ++p) {
    int64_t ordinal = 0;
    for (size_t t = 0; t < streams[p].roots.size(); ++t) {
      if (!streams[p].roots[t])
        continue;
      if (choice.tensors[p][t])
        names.buffers[entries[p]][ordinal] = choice.tensors[p][t];
      ++ordinal;
    }
  }
  return names;
}

std::vector<std::pair<std::string, std::string>>
OffloadStep::decisions(const OffloadChoice &choice) const {
  std::vector<std::pair<std::string, std::string>> lines;
  auto how = [](char level) {
    return level > 1 ? "launches wait for its copies" : "copies run beside launches";
  };
  for (size_t s = 0; s < states.size(); ++s) {
    if (!choice.states[s])
      continue;
    plan::StateOp state = states[s];
    lines.push_back(
        {state.getSymName().str(),
         llvm::formatv("offloaded: its {0} bytes lie in the host's memory and "
                       "stream through the step; {1:F1} us a copy, {2}",
                       state.getSize(), link.copyUs(state.getSize()),
                       how(choice.states[s]))
             .str()});
  }
  for (size_t p = 0; p < streams.size(); ++p)
    for (size_t t = 0; t < streams[p].roots.size(); ++t)
      if (choice.tensors[p][t]) {
        auto buffer = cast<plan::BufferOp>(streams[p].roots[t]);
        lines.push_back(
            {buffer.getLabel().str(),
             llvm::formatv("offloaded in '{0}': its {1} bytes lie in the host's memory "
                           "until they are needed again; {2:F1} us a copy, {3}",
                           entries[p], buffer.getSize(), link.copyUs(buffer.getSize()),
                           how(choice.tensors[p][t]))
                 .str()});
      }
  return lines;
}

int64_t OffloadStep::stateBytes(StringRef entry, bool touched) const {
  std::vector<char> seen(states.size(), 0), written(states.size(), 0);
  for (size_t p = 0; p < streams.size(); ++p)
    for (size_t t = 0; entries[p] == entry && t < streams[p].roots.size(); ++t)
      if (int32_t state = problem.programs[p].stateOf[t]; state >= 0) {
        seen[state] = 1;
        for (const auto &access : streams[p].stream.tensors[t].accesses)
          written[state] |= access.written;
      }
  int64_t bytes = 0;
  for (size_t s = 0; s < states.size(); ++s)
    if (problem.states[s].movable && bool(seen[s]) == touched && !written[s])
      bytes += llvm::alignTo(problem.states[s].sizeBytes, lineBytes);
  return bytes;
}

int64_t OffloadStep::untouchedStateBytes(StringRef entry) const {
  return stateBytes(entry, false);
}
int64_t OffloadStep::readOnlyStateBytes(StringRef entry) const {
  return stateBytes(entry, true);
}

} // namespace sluice
