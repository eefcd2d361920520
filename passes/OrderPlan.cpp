// OrderPlan: moves launches so that fewer bytes are live together, by planning/Order.
// Launches whose buffers conflict (one writes what the other touches) keep their order.
// A collective follows what computes its buffer: it needs no bytes, and what reads its
// result frees some.

#include "passes/Collectives.h"
#include "passes/Passes.h"
#include "passes/PlanLaunches.h"
#include "passes/planning/Order.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_ORDERPLAN
#include "passes/Passes.h.inc"
namespace {

constexpr int64_t lineBytes = 64;

/// Collects the problem of one program.
class Collector {
public:
  explicit Collector(plan::ProgramOp program) {
    SmallVector<plan::LaunchOp> all = launchesOf(program);
    if (llvm::any_of(all, isCollective))
      for (plan::LaunchOp launch : all)
        for (const LaunchAccess &access : accessesOf(launch))
          touching[access.range.root].push_back({launch, access.written});
    for (plan::LaunchOp launch : all)
      if (!follow(launch))
        launches.push_back(launch);
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
      if (aliases.contains(buffer))
        continue;
      indices[buffer] = problem.values.size();
      problem.values.push_back({int64_t(llvm::alignTo(buffer.getSize(), lineBytes)),
                                isInput(buffer), isOutput(buffer)});
    }
    for (auto [result, source] : aliases)
      indices[result] = indices[source];
    produced.resize(problem.values.size());
    for (auto [i, value] : llvm::enumerate(problem.values))
      produced[i] = value.preexisting;
    for (size_t i = 0; i < launches.size(); ++i)
      addNode(i);
  }

  SmallVector<plan::LaunchOp> launches; // without those that follow others
  OrderProblem problem;
  llvm::MapVector<Operation *, SmallVector<plan::LaunchOp>> followers;

private:
  /// A collective over a buffer that one launch has written, and that nothing else
  /// touches: its result is that buffer under another name.
  bool follow(plan::LaunchOp launch) {
    if (!isCollective(launch))
      return false;
    SmallVector<LaunchAccess> own = accessesOf(launch);
    auto from = dyn_cast<plan::BufferOp>(own.front().range.root),
         to = dyn_cast<plan::BufferOp>(own.back().range.root);
    if (!from || !to || isInput(from) || isOutput(from) || isOutput(to) ||
        from.getSize() != to.getSize() || aliases.contains(from))
      return false;
    plan::LaunchOp writer;
    for (auto &[other, written] : touching[from]) {
      if (other == launch)
        continue;
      if (!written || (writer && writer != other))
        return false;
      writer = other;
    }
    if (!writer || isCollective(writer))
      return false;
    if (from != to)
      aliases[to] = from;
    followers[writer].push_back(launch);
    return true;
  }

  void addNode(size_t index) {
    OrderProblem::Node node;
    SmallVector<LaunchAccess> accesses = accessesOf(launches[index]);
    for (LaunchAccess &access : accesses)
      if (Operation *source = aliases.lookup(access.range.root))
        access.range.root = source;
    for (const LaunchAccess &access : accesses) {
      addHazards(access, index, node);
      auto buffer = dyn_cast<plan::BufferOp>(access.range.root);
      if (!buffer)
        continue;
      int32_t value = indices[buffer];
      if (!access.read && !access.written)
        node.workspaceBytes += problem.values[value].sizeBytes;
      else if (access.written && !produced[value])
        node.outputs.push_back(value), produced[value] = true;
      else if (!llvm::is_contained(node.outputs, value))
        node.inputs.push_back(value); // later writes of parts keep what is there
    }
    llvm::sort(node.after);
    node.after.erase(llvm::unique(node.after), node.after.end());
    addInPlace(launches[index], node);
    problem.nodes.push_back(std::move(node));
    for (const LaunchAccess &access : accesses)
      history[keyOf(access)].push_back({index, access});
  }

  static Attribute symbolOf(Operation *root) {
    auto state = dyn_cast<plan::StateBufferOp>(root);
    return state ? Attribute(state.getSymbolAttr()) : Attribute();
  }
  static const void *keyOf(const LaunchAccess &access) {
    Attribute symbol = symbolOf(access.range.root);
    return symbol ? symbol.getAsOpaquePointer() : access.range.root;
  }

  void addHazards(const LaunchAccess &access, size_t index, OrderProblem::Node &node) {
    for (auto &[earlier, other] : history[keyOf(access)])
      if (earlier != index && conflict(access, other))
        node.after.push_back(static_cast<int32_t>(earlier));
  }

  void addInPlace(plan::LaunchOp launch, OrderProblem::Node &node) {
    for (auto stage : launch.getBody().front().getOps<plan::StageOp>()) {
      ArrayRef<int64_t> pairs = stage.getInPlace().value_or(ArrayRef<int64_t>());
      for (size_t i = 0; i < pairs.size(); i += 2) {
        auto in = stage.getIns()[pairs[i]].getDefiningOp<plan::BufferOp>();
        auto out = stage.getOuts()[pairs[i + 1]].getDefiningOp<plan::BufferOp>();
        if (!in || !out || in == out || isInput(in))
          continue;
        std::pair<int32_t, int32_t> pair{indices[in], indices[out]};
        bool free = llvm::none_of(node.inPlace, [&](auto &other) {
          return other.first == pair.first || other.second == pair.second;
        });
        bool fits =
            problem.values[pair.second].sizeBytes <= problem.values[pair.first].sizeBytes;
        // In a chain the input is a result of the node itself.
        bool read = llvm::is_contained(node.inputs, pair.first);
        if (free && fits && read && llvm::is_contained(node.outputs, pair.second))
          node.inPlace.push_back(pair);
      }
    }
  }

  llvm::DenseMap<Operation *, Operation *> aliases; // results of what follows
  /// Launches by buffer, and whether they write it; only where there are collectives.
  llvm::DenseMap<Operation *, SmallVector<std::pair<plan::LaunchOp, bool>>> touching;
  llvm::DenseMap<Operation *, int32_t> indices;
  std::vector<char> produced;
  llvm::DenseMap<const void *, SmallVector<std::pair<size_t, LaunchAccess>>> history;
};

struct OrderPlan : impl::OrderPlanBase<OrderPlan> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      Collector collected(program);
      OrderSolution solution = orderNodes(collected.problem);
      if (!solution.error.empty()) {
        program.emitError("the launches cannot be ordered: ") << solution.error;
        return signalPassFailure();
      }
      Block &queue = program.queue().getBody().front();
      for (int32_t node : solution.order) {
        plan::LaunchOp launch = collected.launches[node];
        launch->moveBefore(&queue, queue.end());
        for (plan::LaunchOp follower : collected.followers.lookup(launch))
          follower->moveBefore(&queue, queue.end());
      }
    }
  }
};

} // namespace

std::unique_ptr<Pass> createOrderPlan() { return std::make_unique<OrderPlan>(); }
} // namespace sluice
