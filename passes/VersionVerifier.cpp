#include "passes/VersionVerifier.h"

#include "ir/graph/Graph.h"
#include "passes/Collectives.h"
#include "passes/PlanLaunches.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace sluice {

std::vector<GroupTiming> groupTimings(ModuleOp module) {
  std::vector<GroupTiming> timings;
  bool staggers = false;
  for (const UpdateGroup &group : updateGroups(module)) {
    timings.push_back({group.name, group.every, group.phase, group.delay});
    staggers |= group.every > 1 || group.delay > 0;
  }
  return staggers ? timings : std::vector<GroupTiming>();
}

namespace {

/// The programs of a plan as the checker sees them. Groups are those of equal options,
/// which are parted by when they are updated.
class VersionFacts {
public:
  explicit VersionFacts(ModuleOp module) : module(module) {
    auto groups = module->getAttrOfType<ArrayAttr>("graph.groups");
    for (auto group : groups.getAsRange<DictionaryAttr>()) {
      auto number = [&](StringRef key, int64_t otherwise) {
        auto attr = group.getAs<IntegerAttr>(key);
        return attr ? attr.getInt() : otherwise;
      };
      std::string name = group.getAs<StringAttr>("name").str();
      groupIndex[name] = static_cast<int32_t>(timings.size());
      timings.push_back(
          {name, number("every", 1), number("phase", 0), number("delay", 0)});
      problem.maxAge = std::max(problem.maxAge, timings.back().delay);
    }
  }

  /// Empty where the plan does not train.
  std::string check() {
    VersionTable table = versionTable(timings);
    for (int64_t turn = 0; turn < table.every; ++turn) {
      auto &step = problem.steps.emplace_back();
      std::string update = "update." + std::to_string(turn);
      if (auto program = find("step"))
        step.push_back(programOf(program));
      else if (auto micro = find("micro")) {
        step.push_back(programOf(micro));
        if (auto last = find(table.every > 1 ? update : "update"))
          step.push_back(programOf(last));
      }
      if (step.empty())
        return "";
    }
    return checkVersions(table, problem);
  }

private:
  plan::ProgramOp find(StringRef entry) {
    for (auto program : module.getOps<plan::ProgramOp>())
      if (program.getEntry() == entry)
        return program;
    return {};
  }

  VersionProgram programOf(plan::ProgramOp program) {
    VersionProgram result;
    result.name = program.getEntry().str();
    SmallVector<QueuedCollective> messages = collectivesOf(program);
    SmallVector<QueuedCopy> copies = copiesOf(program);
    size_t sent = 0, copied = 0;
    auto launches = launchesOf(program);
    for (int64_t place = 0; place <= int64_t(launches.size()); ++place) {
      for (; copied < copies.size() && copies[copied].waitLaunches <= place; ++copied) {
        VersionEvent event{place, copies[copied].doneBy, {}, {}, true};
        add(event, plan::rangeOf(copies[copied].op.getSource()).root, true, false);
        add(event, plan::rangeOf(copies[copied].op.getTarget()).root, false, true);
        result.events.push_back(std::move(event));
      }
      for (; sent < messages.size() && messages[sent].waitLaunches <= place; ++sent) {
        plan::CollectiveOp message = messages[sent].op; // of several tensors
        for (auto [in, out] : llvm::zip_equal(message.getIns(), message.getOuts())) {
          VersionEvent event{place, messages[sent].doneBy, {}, {}, true};
          add(event, plan::rangeOf(in).root, true, false);
          add(event, plan::rangeOf(out).root, false, true);
          result.events.push_back(std::move(event));
        }
      }
      if (place < int64_t(launches.size()))
        addStages(launches[place], place, result);
    }
    return result;
  }

  /// An event for each result, of the inputs that it depends on; one for all weights,
  /// behind the others.
  void addStages(plan::LaunchOp launch, int64_t place, VersionProgram &result) {
    launch.walk([&](plan::StageOp stage) {
      VersionEvent update{place, place + 1, {}, {}, false};
      for (auto [index, out] : llvm::enumerate(stage.getOuts())) {
        Operation *root = plan::rangeOf(out).root;
        int32_t target = indexOf(root);
        bool isWeights = problem.resources[target].kind == VersionResource::Weights;
        VersionEvent single{place, place + 1, {}, {}, false};
        VersionEvent &event = isWeights ? update : single;
        for (auto [number, in] : llvm::enumerate(stage.getIns()))
          if (dependsOn(stage, index, number))
            add(event, plan::rangeOf(in).root, true, false);
        event.writes.push_back(target);
        if (!isWeights)
          result.events.push_back(std::move(event));
      }
      if (!update.writes.empty())
        result.events.push_back(std::move(update));
    });
  }

  /// Of a generated kernel: its region tells; sums are emptied by updates that read them.
  bool dependsOn(plan::StageOp stage, size_t out, size_t in) {
    auto kernel = module.lookupSymbol<plan::KernelOp>(stage.getKernel());
    if (!kernel || !kernel.isGenerated())
      return true;
    auto &reached = dependences[kernel.getSymName()];
    if (reached.empty())
      for (auto region : kernel.getBody().front().getOps<graph::RegionOp>()) {
        Block &block = region.getBody().front();
        for (Value value : block.getTerminator()->getOperands())
          reached.push_back(argumentsOf(value, block));
      }
    return out >= reached.size() || reached[out].contains(unsigned(in));
  }

  static llvm::DenseSet<unsigned> argumentsOf(Value value, Block &block) {
    llvm::DenseSet<unsigned> arguments;
    llvm::DenseSet<Value> seen;
    SmallVector<Value> open{value};
    while (!open.empty()) {
      Value next = open.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      if (auto argument = dyn_cast<BlockArgument>(next)) {
        if (argument.getOwner() == &block)
          arguments.insert(argument.getArgNumber());
        continue;
      }
      next.getDefiningOp()->walk(
          [&](Operation *op) { open.append(op->operand_begin(), op->operand_end()); });
    }
    return arguments;
  }

  void add(VersionEvent &event, Operation *root, bool read, bool written) {
    int32_t index = indexOf(root);
    if (read)
      event.reads.push_back(index);
    if (written)
      event.writes.push_back(index);
  }

  int32_t indexOf(Operation *root) {
    auto state = dyn_cast<plan::StateBufferOp>(root);
    int32_t &index = state ? byName[state.getSymbol()] : byBuffer[root];
    if (index == 0) {
      problem.resources.push_back(state ? resourceOf(state) : resourceOf(root));
      index = static_cast<int32_t>(problem.resources.size());
    }
    return index - 1;
  }

  VersionResource resourceOf(plan::StateBufferOp buffer) {
    auto state = module.lookupSymbol<plan::StateOp>(buffer.getSymbol());
    VersionResource result{VersionResource::Other, -1, buffer.getSymbol().str()};
    StringRef role = state ? state.getRole() : "";
    bool trains = role == "master" || (role == "parameter" && state.getTrainable());
    auto group = trains && state.getGroup() ? groupIndex.find(*state.getGroup())
                                            : groupIndex.end();
    if (group != groupIndex.end()) {
      result.kind = VersionResource::Weights;
      result.group = group->second;
    }
    if (role == "accumulator" || role == "pending")
      result.kind = VersionResource::Scratch;
    return result;
  }

  VersionResource resourceOf(Operation *root) {
    auto buffer = dyn_cast<plan::BufferOp>(root);
    VersionResource result{VersionResource::Scratch, -1, "a buffer"};
    if (buffer && isInput(buffer))
      result.kind = VersionResource::Samples;
    if (buffer)
      result.name = buffer.getLabel().str();
    return result;
  }

  ModuleOp module;
  std::vector<GroupTiming> timings;
  llvm::StringMap<int32_t> groupIndex;
  llvm::StringMap<int32_t> byName; // 1 + index
  llvm::DenseMap<Operation *, int32_t> byBuffer;
  /// By kernel: the inputs that each result depends on.
  llvm::StringMap<std::vector<llvm::DenseSet<unsigned>>> dependences;
  VersionProblem problem;
};

} // namespace

LogicalResult verifyVersions(ModuleOp module) {
  if (groupTimings(module).empty())
    return success();
  std::string wrong = VersionFacts(module).check();
  if (wrong.empty())
    return success();
  return module.emitError("versions of weights: ") << wrong;
}

} // namespace sluice
