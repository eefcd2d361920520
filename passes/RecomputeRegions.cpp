#include "passes/RecomputeRegions.h"

#include "passes/NamePatterns.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace sluice {
namespace {

std::string firstName(Location loc) {
  std::string first;
  visitNames(loc, [&](StringRef name) {
    if (first.empty())
      first = name.str();
  });
  return first;
}

std::string titleOf(ArrayRef<std::string> patterns) {
  return "'" + llvm::join(patterns, "', '") + "'";
}

/// The node inside, where the path leaves, and where it comes back.
std::string shortened(std::vector<std::string> path) {
  constexpr size_t head = 3, tail = 2;
  if (path.size() > head + tail + 1) {
    path.erase(path.begin() + head, path.end() - tail);
    path.insert(path.begin() + head, "...");
  }
  return "'" + llvm::join(path, "' -> '") + "'";
}

/// Follows values that come from a region, node by node: an operation's own name counts,
/// not the kernel that computes it.
class PathSearch {
public:
  explicit PathSearch(ArrayRef<std::string> patterns) : patterns(patterns) {}

  /// Operations in program order. False where a path comes back: `path` names it.
  bool add(Operation *op) {
    Mark mark = markOf(op->getOperands());
    std::string name = firstName(op->getLoc());
    bool inside = namesAny(patterns, op->getLoc());
    if (inside && mark.left) {
      path = pathTo(mark.from, name);
      return false;
    }
    if (inside)
      mark = {op, false};
    else if (mark.from && !name.empty())
      before[op] = mark.from, mark = {op, true};
    for (Value result : op->getResults())
      marks[result] = mark;
    return true;
  }
  /// Inside a fused region the value of `outer` has another name.
  void rename(Value outer, Value inner) { marks[inner] = marks.lookup(outer); }

  std::vector<std::string> path;

private:
  struct Mark {
    Operation *from = nullptr; // the last named one on the way; null: not from the region
    bool left = false;
  };

  Mark markOf(ValueRange operands) const {
    Mark mark;
    for (Value operand : operands) {
      Mark other = marks.lookup(operand);
      if (other.from && (!mark.from || other.left > mark.left))
        mark = other;
    }
    return mark;
  }

  std::vector<std::string> pathTo(Operation *from, const std::string &last) const {
    std::vector<std::string> names{last};
    for (Operation *op = from; op; op = before.lookup(op))
      if (std::string name = firstName(op->getLoc()); name != names.back())
        names.push_back(name);
    std::reverse(names.begin(), names.end());
    return names;
  }

  ArrayRef<std::string> patterns;
  DenseMap<Value, Mark> marks;
  DenseMap<Operation *, Operation *> before;
};

class RegionNames {
public:
  explicit RegionNames(const StepProblem &step) : step(step) {
    for (auto [i, op] : llvm::enumerate(step.operations()))
      if (!step.problem.ops[i].backward)
        forward.push_back(op);
  }

  std::string error;

  std::vector<int32_t> find(ArrayRef<std::string> patterns) {
    if (!checkPatterns(patterns) || !checkPaths(patterns))
      return {};
    std::vector<int32_t> list;
    llvm::DenseSet<Operation *> left; // reached by what leaves the region
    for (auto [i, op] : llvm::enumerate(step.operations())) {
      if (step.problem.ops[i].backward)
        continue;
      bool behind = llvm::any_of(op->getOperands(), [&](Value operand) {
        Operation *producer = step.rootOf(operand).getDefiningOp();
        return left.contains(producer) || outside(producer);
      });
      if (behind || !isInside(op, patterns)) {
        if (behind)
          left.insert(op);
        continue;
      }
      inside.insert(op);
      list.push_back(int32_t(i));
    }
    inside.clear();
    return list;
  }

private:
  bool checkPatterns(ArrayRef<std::string> patterns) {
    llvm::SetVector<StringRef> names;
    for (Operation *op : forward)
      op->walk([&](Operation *inner) {
        visitNames(inner->getLoc(), [&](StringRef name) { names.insert(name); });
      });
    for (const std::string &pattern : patterns) {
      bool any = false;
      for (StringRef name : names)
        if (namesNode(pattern, name)) {
          any = true;
          auto [owner, added] = owners.try_emplace(name, titleOf(patterns));
          if (!added && owner->second != titleOf(patterns))
            return fail("'memory.regions' has node '" + name.str() +
                        "' in two regions, " + owner->second + " and " +
                        titleOf(patterns) + "; a node can be in one");
        }
      std::vector<std::string> known;
      for (StringRef name : names)
        known.push_back(name.str());
      if (!any)
        return fail("'memory.regions' has '" + pattern +
                    "', which names no node that the loss depends on" +
                    nearestNames(pattern, known));
    }
    return true;
  }

  bool checkPaths(ArrayRef<std::string> patterns) {
    PathSearch search(patterns);
    llvm::DenseSet<Operation *> known(forward.begin(), forward.end());
    for (Operation &op : *step.operations().front()->getBlock()) {
      bool counted = known.contains(&op) || step.isRenaming(&op);
      if (counted && !addAll(&op, search)) {
        return fail("'memory.regions' has the region " + titleOf(patterns) +
                    ", which is not convex: the path " + shortened(search.path) +
                    " leaves it and comes back; add the nodes between, or make two "
                    "regions of it");
      }
    }
    return true;
  }

  static bool addAll(Operation *op, PathSearch &search) {
    auto region = dyn_cast<graph::RegionOp>(op);
    if (!region)
      return search.add(op);
    Block &body = region.getBody().front();
    for (auto [outer, inner] : llvm::zip_equal(region.getInputs(), body.getArguments()))
      search.rename(outer, inner);
    for (Operation &inner : body.without_terminator())
      if (!search.add(&inner))
        return false;
    for (auto [inner, outer] :
         llvm::zip_equal(body.getTerminator()->getOperands(), op->getResults()))
      search.rename(inner, outer);
    return true;
  }

  /// An operation beside the region that reads it. Fusion can make such ones even where
  /// the nodes are convex; what is behind them is then left out of the region.
  bool outside(Operation *producer) const {
    if (!producer || inside.contains(producer))
      return false;
    return llvm::any_of(producer->getOperands(), [&](Value operand) {
      return inside.contains(step.rootOf(operand).getDefiningOp());
    });
  }

  static bool isInside(Operation *op, ArrayRef<std::string> patterns) {
    auto region = dyn_cast<graph::RegionOp>(op);
    if (!region)
      return namesAny(patterns, op->getLoc());
    for (Value result : region.getBody().front().getTerminator()->getOperands()) {
      Operation *producer = result.getDefiningOp();
      if (!producer || !namesAny(patterns, producer->getLoc()))
        return false;
    }
    return true;
  }

  bool fail(const std::string &why) {
    error = why;
    return false;
  }

  const StepProblem &step;
  std::vector<Operation *> forward;
  llvm::DenseSet<Operation *> inside;
  std::map<StringRef, std::string> owners; // node -> its region
};

} // namespace

NamedRegions namedRegions(const StepProblem &step,
                          ArrayRef<std::vector<std::string>> regions) {
  NamedRegions result;
  RegionNames names(step);
  for (const std::vector<std::string> &patterns : regions) {
    result.operations.push_back(names.find(patterns));
    if (!names.error.empty())
      return {names.error, {}};
  }
  return result;
}

} // namespace sluice
