#include "passes/AttentionPattern.h"

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Shapes.h"
#include "passes/AttentionMasks.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {
namespace {

using graph::ContractOp;
using Heads = AttentionMatch::Heads;
using Mask = AttentionMatch::Mask;

ArrayRef<int64_t> shapeOf(Value value) { return graph::tensorType(value).getShape(); }

/// x * c or x / c with one c for all elements.
struct Scaled {
  Value x;
  double factor = 1;
};
std::optional<Scaled> scaledBy(Value value) {
  if (auto mul = value.getDefiningOp<graph::MulOp>()) {
    if (auto factor = splatReal(mul.getB()))
      return Scaled{mul.getA(), *factor};
    if (auto factor = splatReal(mul.getA()))
      return Scaled{mul.getB(), *factor};
  }
  if (auto div = value.getDefiningOp<graph::DivOp>())
    if (auto divisor = splatReal(div.getB()); divisor && *divisor != 0)
      return Scaled{div.getA(), 1 / *divisor};
  return std::nullopt;
}

/// One side of a product: what it keeps of its own, and sums over.
struct Side {
  ArrayRef<int64_t> batch, contract;
  Value value;

  /// Its only free dimension, if it has one only.
  std::optional<int64_t> freeDimension() const {
    int64_t rank = shapeOf(value).size(), found = -1;
    for (int64_t d = 0; d < rank; ++d)
      if (!llvm::is_contained(batch, d) && !llvm::is_contained(contract, d)) {
        if (found >= 0)
          return std::nullopt;
        found = d;
      }
    return found < 0 ? std::nullopt : std::optional<int64_t>(found);
  }
};

/// A product [batch.., rows, k] x [batch.., cols, k] with one or two batch dimensions.
bool isMatrixProduct(ContractOp op) {
  Side left{op.getLhsBatch(), op.getLhsContract(), op.getLhs()};
  Side right{op.getRhsBatch(), op.getRhsContract(), op.getRhs()};
  size_t batches = left.batch.size();
  return (batches == 1 || batches == 2) && left.contract.size() == 1 &&
         left.freeDimension() && right.freeDimension() && !op.getRoundTo() &&
         graph::tensorType(op.getY()).getElementType().isF32();
}

/// Whether batch and heads become one dimension, or two again.
bool joinsHeads(graph::ReshapeOp reshape) {
  ArrayRef<int64_t> from = shapeOf(reshape.getX()), to = shapeOf(reshape.getY());
  return from.size() + to.size() == 7 && std::min(from.size(), to.size()) == 3 &&
         from.take_back(2) == to.take_back(2);
}

/// The value behind transposes, joined heads and scales, which `scale` takes.
Heads headsOf(Value value, SmallVector<int64_t> permutation, double *scale) {
  for (;;) {
    if (auto transpose = value.getDefiningOp<graph::TransposeOp>()) {
      for (int64_t &d : permutation)
        d = transpose.getPermutation()[d];
      value = transpose.getX();
      continue;
    }
    auto joined = value.getDefiningOp<graph::ReshapeOp>();
    if (joined && permutation.size() == 3 && permutation[0] == 0 && joinsHeads(joined)) {
      permutation = {0, 1, permutation[1] + 1, permutation[2] + 1};
      value = joined.getX();
      continue;
    }
    auto scaled = scale ? scaledBy(value) : std::nullopt;
    if (!scaled || !value.hasOneUse())
      return {value, permutation};
    *scale *= scaled->factor;
    value = scaled->x;
  }
}

/// [B, G, T, D] where `heads` is [B, G * n, T, D] and repeats each of G heads n times.
void lookThroughRepeats(Heads &heads) {
  auto joined = heads.source.getDefiningOp<graph::ReshapeOp>();
  auto repeated = joined ? joined.getX().getDefiningOp<graph::BroadcastOp>() : nullptr;
  if (!repeated || heads.permutation.size() != 4 || !llvm::is_sorted(heads.permutation))
    return;
  ArrayRef<int64_t> wide = shapeOf(repeated.getY()), all = shapeOf(joined.getY());
  auto narrow = llvm::to_vector(shapeOf(repeated.getX()));
  narrow.insert(narrow.begin(), wide.size() - std::min(wide.size(), narrow.size()), 1);
  bool fits = wide.size() == 5 && wide[0] == all[0] && wide[1] * wide[2] == all[1] &&
              wide[3] == all[2] && wide[4] == all[3];
  for (size_t d = 0; fits && d < 5; ++d)
    fits = narrow[d] == wide[d] || (d == 2 && narrow[d] == 1);
  if (!fits || narrow[2] == wide[2])
    return;
  heads.source = repeated.getX();
  heads.shared = true;
}

class Matcher {
public:
  Matcher(ContractOp product, std::shared_ptr<KnownMasks> known) {
    match.values = product;
    match.known = std::move(known);
  }

  std::optional<AttentionMatch> run() {
    if (!isMatrixProduct(match.values) || !findSoftmax() ||
        !findScores(match.softmax.getX()))
      return std::nullopt;
    std::reverse(match.masks.begin(), match.masks.end());
    readHeads();
    if (!isSplitBySamples() || !areMasksExact(match))
      return std::nullopt;
    return match;
  }

private:
  bool isProbability(Value value) {
    int64_t last = shapeOf(value).size() - 1;
    return llvm::equal(match.values.getLhsBatch(),
                       llvm::seq<int64_t>(0, match.values.getLhsBatch().size())) &&
           last == int64_t(match.values.getLhsBatch().size()) + 1 &&
           match.values.getLhsContract()[0] == last;
  }

  /// PyTorch's safe softmax: rows of NaN, which see nothing, become 0.
  static Value behindNanGuard(Value value) {
    auto select = value.getDefiningOp<graph::SelectOp>();
    auto isNan =
        select ? select.getCondition().getDefiningOp<graph::CompareOp>() : nullptr;
    bool guards = isNan && isNan.getPredicate() == "ne" && isNan.getA() == isNan.getB() &&
                  isNan.getA() == select.getB() && splatReal(select.getA()) == 0.0 &&
                  isNan->hasOneUse();
    return guards ? select.getB() : Value();
  }

  /// The value before batch and heads were joined, or split again.
  Value behindReshapes(Value value) {
    for (;;) {
      ArrayRef<int64_t> shape = shapeOf(value);
      if (shape.size() == 4)
        match.batch = shape[0], match.heads = shape[1];
      auto reshape = value.getDefiningOp<graph::ReshapeOp>();
      if (!reshape || !value.hasOneUse() || !joinsHeads(reshape))
        return value;
      value = reshape.getX();
    }
  }

  bool findSoftmax() {
    Value value = match.values.getLhs();
    if (!isProbability(value) || !value.hasOneUse())
      return false;
    match.batch = shapeOf(value)[0];
    value = behindReshapes(value);
    if (!value.hasOneUse())
      return false;
    if (auto dropout = value.getDefiningOp<graph::DropoutOp>()) {
      if (!dropout.getMask().use_empty())
        return false;
      match.dropout = dropout;
      value = behindReshapes(dropout.getX());
    }
    if (match.dropout && !value.hasOneUse())
      return false;
    Value guarded = behindNanGuard(value); // read by the guard's operations alone
    value = guarded ? guarded : value;
    match.softmax = value.getDefiningOp<graph::SoftmaxOp>();
    int64_t readers = guarded ? 3 : 1;
    return match.softmax &&
           std::distance(value.use_begin(), value.use_end()) == readers &&
           match.softmax.getAxis() + 1 == uint64_t(shapeOf(value).size());
  }

  /// Whether the path of scores goes through `value`.
  bool leadsToProduct(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!op || !value.hasOneUse())
      return false;
    if (auto product = dyn_cast<ContractOp>(op))
      return isMatrixProduct(product);
    if (auto scaled = scaledBy(value))
      return leadsToProduct(scaled->x);
    if (auto reshape = dyn_cast<graph::ReshapeOp>(op))
      return joinsHeads(reshape) && leadsToProduct(reshape.getX());
    if (auto sum = dyn_cast<graph::AddOp>(op))
      return leadsToProduct(sum.getA()) || leadsToProduct(sum.getB());
    if (auto select = dyn_cast<graph::SelectOp>(op))
      return leadsToProduct(select.getA()) || leadsToProduct(select.getB());
    return false;
  }

  /// From the softmax up; masks lie behind all scales.
  bool findScores(Value value) {
    for (bool scaled = false;;) {
      value = behindReshapes(value);
      if (!value.hasOneUse())
        return false;
      if (auto product = value.getDefiningOp<ContractOp>()) {
        match.scores = product;
        return isMatrixProduct(product) && !llvm::is_contained(shapeOf(value), 0);
      }
      if (auto by = scaledBy(value)) {
        match.scale *= by->factor;
        scaled = true;
        value = by->x;
        continue;
      }
      auto next = scaled ? std::nullopt : maskedValue(value);
      if (!next)
        return false;
      value = *next;
    }
  }

  /// The scores before a mask, which is noted.
  std::optional<Value> maskedValue(Value value) {
    if (auto sum = value.getDefiningOp<graph::AddOp>()) {
      bool first = leadsToProduct(sum.getA());
      if (!first && !leadsToProduct(sum.getB()))
        return std::nullopt;
      Value mask = behindBroadcast(first ? sum.getB() : sum.getA());
      match.masks.push_back({mask, shapeOf(value).size()});
      return first ? sum.getA() : sum.getB();
    }
    auto select = value.getDefiningOp<graph::SelectOp>();
    if (!select)
      return std::nullopt;
    for (bool whereTrue : {true, false}) {
      auto fill = splatReal(whereTrue ? select.getA() : select.getB());
      Value other = whereTrue ? select.getB() : select.getA();
      if (!fill || !leadsToProduct(other))
        continue;
      match.masks.push_back({behindBroadcast(select.getCondition()),
                             shapeOf(value).size(), true, whereTrue, *fill});
      return other;
    }
    return std::nullopt;
  }

  static SmallVector<int64_t> order(ArrayRef<int64_t> batch, int64_t rows, int64_t cols) {
    SmallVector<int64_t> dims(batch);
    dims.append({rows, cols});
    return dims;
  }

  /// Elements are dropped by samples, which have to be parts of the batch.
  bool isSplitBySamples() {
    int64_t samples = match.dropout ? match.dropout.getSamples() : 0;
    return samples == 0 || match.batch % samples == 0;
  }

  static SmallVector<int64_t> arranged(const Heads &heads) {
    SmallVector<int64_t> shape;
    for (int64_t d : heads.permutation)
      shape.push_back(shapeOf(heads.source)[d]);
    return shape;
  }

  void readHeads() {
    ContractOp s = match.scores, y = match.values;
    Side q{s.getLhsBatch(), s.getLhsContract(), s.getLhs()};
    Side k{s.getRhsBatch(), s.getRhsContract(), s.getRhs()};
    Side v{y.getRhsBatch(), y.getRhsContract(), y.getRhs()};
    match.q =
        headsOf(q.value, order(q.batch, *q.freeDimension(), q.contract[0]), &match.scale);
    match.k =
        headsOf(k.value, order(k.batch, *k.freeDimension(), k.contract[0]), &match.scale);
    match.v =
        headsOf(v.value, order(v.batch, v.contract[0], *v.freeDimension()), nullptr);
    // Heads that only the operands tell from the batch.
    if (match.heads == 1 && match.q.permutation.size() == 4) {
      auto split = arranged(match.q);
      match.batch = split[0], match.heads = split[1];
    }
    Heads k2 = match.k, v2 = match.v;
    lookThroughRepeats(k2);
    lookThroughRepeats(v2);
    if (k2.shared && v2.shared)
      match.k = k2, match.v = v2;
  }

  AttentionMatch match;
};

/// The value of `heads` as [B, H, T, D].
Value arrange(graph::GraphBuilder &b, const AttentionMatch &match, const Heads &heads) {
  if (heads.shared) {
    auto shape = llvm::to_vector(shapeOf(heads.source)); // [B, G, 1, T, D], or without B
    shape.erase(shape.end() - 3);
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    return b.reshape(heads.source, shape);
  }
  Value value = b.transpose(heads.source, heads.permutation);
  ArrayRef<int64_t> last = shapeOf(value).take_back(2);
  return b.reshape(value, {match.batch, match.heads, last[0], last[1]});
}

} // namespace

graph::AttentionSizes AttentionMatch::sizes() {
  graph::AttentionSizes s;
  ArrayRef<int64_t> scored = shapeOf(scores.getY());
  s.batch = batch, s.heads = heads;
  s.queries = scored.drop_back().back(), s.keys = scored.back();
  s.kvHeads = s.heads;
  if (k.shared)
    s.kvHeads = shapeOf(k.source).drop_back(3).back();
  s.depth = shapeOf(scores.getLhs())[scores.getLhsContract()[0]];
  s.valueDepth = shapeOf(values.getY()).back();
  return s;
}

std::optional<AttentionMatch> matchAttention(ContractOp product,
                                             std::shared_ptr<KnownMasks> known) {
  return Matcher(product, std::move(known)).run();
}

graph::AttentionOp buildAttention(AttentionMatch &match) {
  OpBuilder at(match.values);
  SmallVector<Location> locs{match.scores.getLoc(), match.softmax.getLoc()};
  if (match.dropout)
    locs.push_back(match.dropout->getLoc());
  locs.push_back(match.values->getLoc());
  graph::GraphBuilder b(FusedLoc::get(at.getContext(), locs), at);
  AttentionMask mask = buildMask(b, match);
  SmallVector<Value> random;
  double ratio = 0;
  int64_t id = 0, samples = 0;
  if (graph::DropoutOp d = match.dropout) {
    random = {d.getSeed(), d.getUpdate(), d.getSample()};
    ratio = d.getRatio().convertToDouble(), id = d.getId(), samples = d.getSamples();
  }
  auto causal = mask.causal ? b.getI64IntegerAttr(*mask.causal) : IntegerAttr();
  auto attention = b.create<graph::AttentionOp>(
      arrange(b, match, match.q), arrange(b, match, match.k), arrange(b, match, match.v),
      mask.value, random, b.getF64FloatAttr(match.scale), causal,
      b.getF64FloatAttr(ratio), b.getI64IntegerAttr(id), b.getI64IntegerAttr(samples),
      TypeAttr());
  ContractOp product = match.values;
  Value out = b.reshape(attention.getOut(), shapeOf(product.getY()));
  product.getY().replaceAllUsesWith(out);
  return attention;
}

} // namespace sluice
