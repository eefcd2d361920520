#include "passes/AttentionMasks.h"

#include "ir/graph/Interpreter.h"
#include "passes/AttentionPattern.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/bit.h"

#include <limits>
#include <map>

using namespace mlir;

namespace sluice {
namespace {

using graph::HostTensor;
using Mask = AttentionMatch::Mask;

constexpr double infinity = std::numeric_limits<double>::infinity();
/// Beside a score that takes part, e^this is 0 in any case.
constexpr double hides = -1e9;
/// Scores added to this are rounded away, so that replacing them is adding it.
constexpr double absorbs = -1e30;

/// Values that follow from constants alone.
class KnownValues {
public:
  const HostTensor *find(Value value) {
    auto [entry, added] = known.try_emplace(value.getAsOpaquePointer());
    if (added)
      entry->second = compute(value);
    return entry->second ? &*entry->second : nullptr;
  }

private:
  std::optional<HostTensor> compute(Value value) {
    constexpr int64_t most = int64_t{1} << 24;
    Operation *op = value.getDefiningOp();
    auto evaluable = dyn_cast_or_null<graph::Evaluable>(op);
    if (!evaluable || graph::tensorType(value).getNumElements() > most)
      return std::nullopt;
    SmallVector<const HostTensor *> operands;
    for (Value operand : op->getOperands()) {
      operands.push_back(find(operand));
      if (!operands.back())
        return std::nullopt;
    }
    SmallVector<HostTensor> results;
    for (Type type : op->getResultTypes())
      results.push_back(HostTensor::zeros(cast<RankedTensorType>(type)));
    graph::Evaluation eval(op, operands, results, graph::Precision::Single);
    if (failed(evaluable.evaluate(eval)))
      return std::nullopt;
    return std::move(results[cast<OpResult>(value).getResultNumber()]);
  }

  std::map<void *, std::optional<HostTensor>> known;
};

using Rule = KnownMasks::Rule;

/// Whether each element of the last two dimensions is seen; nothing where it is not said
/// by a mask that is the same for all heads.
std::optional<std::vector<bool>> seenElements(const Mask &mask, const HostTensor &known,
                                              int64_t queries, int64_t keys) {
  int64_t rank = known.shape.size();
  if (rank < 2 || known.size() != queries * keys || known.shape[rank - 2] != queries ||
      known.shape[rank - 1] != keys)
    return std::nullopt;
  std::vector<bool> seen(known.size());
  for (int64_t i = 0; i < known.size(); ++i) {
    if (mask.selects)
      seen[i] = (known.integers[i] != 0) != mask.whereTrue;
    else if (known.reals[i] == 0 || known.reals[i] <= hides)
      seen[i] = known.reals[i] == 0;
    else
      return std::nullopt;
  }
  return seen;
}

/// Of a mask whose fill hides; every query sees a key.
Rule ruleOf(const Mask &mask, const HostTensor *known, int64_t queries, int64_t keys) {
  if (!known || (mask.selects && !(mask.fill <= hides)))
    return {};
  auto seen = seenElements(mask, *known, queries, keys);
  if (!seen)
    return {};
  int64_t first = std::find(seen->begin(), seen->begin() + keys, false) - seen->begin();
  if (first == 0)
    return {};
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      if ((*seen)[i * keys + j] != (j < i + first))
        return {std::find(seen->begin(), seen->end(), false) == seen->end(), {}, 0};
  if (first == keys)
    return {true, {}, 0};
  return {false, first - 1, 0};
}

/// What hidden elements are: -inf only where all of them are.
double fillOf(const Mask &mask, const HostTensor &known) {
  if (mask.selects)
    return mask.fill;
  double fill = -infinity;
  for (double x : known.reals)
    if (x < 0)
      fill = std::max(fill, x);
  return fill;
}

const Rule &knownRule(KnownMasks &masks, const Mask &mask, int64_t queries,
                      int64_t keys) {
  auto [entry, added] = masks.rules.try_emplace(
      {mask.value.getAsOpaquePointer(), mask.selects, mask.whereTrue,
       llvm::bit_cast<uint64_t>(mask.fill), queries, keys});
  if (!added)
    return entry->second;
  KnownValues known;
  const HostTensor *value = known.find(mask.value);
  entry->second = ruleOf(mask, value, queries, keys);
  if (entry->second.causal)
    entry->second.fill = fillOf(mask, *value);
  return entry->second;
}

bool hasGradient(Value value) {
  llvm::SmallPtrSet<Operation *, 16> seen;
  SmallVector<Value> open{value};
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (auto read = dyn_cast<graph::ReadOp>(op)) {
      auto parameter = SymbolTable::lookupNearestSymbolFrom<graph::ParameterOp>(
          read, read.getSymbolAttr());
      if (!parameter || parameter.getTrainable())
        return true;
    }
    llvm::append_range(open, op->getOperands());
  }
  return false;
}

/// Masks that stay, and the causal rule that one of them is.
struct Sorted {
  SmallVector<Mask> masks;
  std::optional<int64_t> causal;
};

Sorted sortMasks(AttentionMatch &match) {
  graph::AttentionSizes s = match.sizes();
  Sorted sorted;
  std::optional<Mask> triangle;
  bool replaces = false;
  for (const Mask &mask : match.masks) {
    const Rule &rule = knownRule(*match.known, mask, s.queries, s.keys);
    if (rule.seesAll)
      continue;
    bool alone = match.masks.size() == 1;
    if (rule.causal && !triangle && (alone || rule.fill == -infinity)) {
      triangle = mask, sorted.causal = rule.causal;
      replaces = false;
      continue;
    }
    // What is replaced behind the triangle need not stay -inf.
    replaces |= mask.selects && mask.fill != -infinity;
    sorted.masks.push_back(mask);
  }
  if (triangle && replaces)
    return {match.masks, std::nullopt};
  return sorted;
}

/// [B|1, H|1, Tq|1, Tk|1] of what is repeated.
Value asFourDimensions(graph::GraphBuilder &b, const AttentionMatch &match,
                       const Mask &mask) {
  SmallVector<int64_t> shape(graph::tensorType(mask.value).getShape());
  if (auto number = splatReal(mask.value))
    return b.splat(RankedTensorType::get({1, 1, 1, 1}, b.getF32Type()), *number);
  shape.insert(shape.begin(), mask.rank - shape.size(), 1);
  if (mask.rank == 3) { // batch and heads as one
    shape.insert(shape.begin(), shape[0] == 1 ? 1 : match.batch);
    shape[1] = shape[1] == 1 ? 1 : match.heads;
  }
  return b.reshape(mask.value, shape);
}

SmallVector<int64_t> jointShape(Value a, Value b) {
  SmallVector<int64_t> shape(graph::tensorType(a).getShape());
  for (auto [d, size] : llvm::enumerate(graph::tensorType(b).getShape()))
    shape[d] = std::max(shape[d], size);
  return shape;
}

} // namespace

std::optional<double> splatReal(Value value) {
  auto constant = behindBroadcast(value).getDefiningOp<graph::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : nullptr;
  if (!dense || dense.getNumElements() == 0 || !dense.isSplat())
    return std::nullopt;
  return dense.getSplatValue<APFloat>().convertToDouble();
}

Value behindBroadcast(Value value) {
  while (auto broadcast = value.getDefiningOp<graph::BroadcastOp>())
    value = broadcast.getX();
  return value;
}

bool areMasksExact(AttentionMatch &match) {
  for (const Mask &mask : match.masks)
    if (hasGradient(mask.value))
      return false;
  for (const Mask &mask : sortMasks(match).masks)
    if (mask.selects && !(mask.fill <= absorbs))
      return false;
  return true;
}

AttentionMask buildMask(graph::GraphBuilder &b, AttentionMatch &match) {
  Sorted sorted = sortMasks(match);
  AttentionMask result{Value(), sorted.causal};
  for (const Mask &mask : sorted.masks) {
    Value value = asFourDimensions(b, match, mask), &sum = result.value;
    if (!mask.selects && !sum) {
      sum = value;
      continue;
    }
    SmallVector<int64_t> shape = jointShape(value, sum ? sum : value);
    auto type = RankedTensorType::get(shape, b.getF32Type());
    Value before = sum ? b.broadcast(sum, shape) : b.splat(type, 0);
    value = b.broadcast(value, shape);
    if (!mask.selects) {
      sum = b.add(before, value);
      continue;
    }
    Value fill = b.splat(type, mask.fill);
    sum = b.select(value, mask.whereTrue ? fill : before, mask.whereTrue ? before : fill);
  }
  return result;
}

} // namespace sluice
