// Sequences of tensors whose length is known: lists while importing, nothing in the
// module. Exporters write them for split, unbind and stack.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

using Items = llvm::SmallVector<Value>;

/// A position in [-length, length), or with `end` one more, counted from the front.
std::optional<int64_t> positionOf(Node &n, int operand, int64_t length, bool end) {
  auto known = n.maybeConstant(operand);
  if (!known || known->size() != 1 || known->isReal()) {
    n.e.fail("its position, operand " + llvm::Twine(operand) +
             ", depends on data; fix the input it comes from by `values`");
    return std::nullopt;
  }
  int64_t at = known->integers[0];
  at += at < 0 ? length : 0;
  if (at < 0 || at >= length + end) {
    n.e.fail("position " + llvm::Twine(known->integers[0]) + " is out of range for " +
             llvm::Twine(length) + " elements");
    return std::nullopt;
  }
  return at;
}

LogicalResult importConstruct(Node &n) {
  Items items;
  for (int i = 0; i < n.inputs(); ++i) {
    Value item = n.in(i);
    if (!item)
      return failure();
    items.push_back(item);
  }
  return n.outSequence(items);
}
LogicalResult importEmpty(Node &n) { return n.outSequence({}); }

LogicalResult importInsert(Node &n) {
  auto items = n.sequence(0);
  Value item = n.in(1);
  if (!items || !item)
    return failure();
  std::optional<int64_t> at = int64_t(items->size());
  if (n.has(2))
    at = positionOf(n, 2, int64_t(items->size()), true);
  if (!at)
    return failure();
  items->insert(items->begin() + *at, item);
  return n.outSequence(*items);
}
LogicalResult importErase(Node &n) {
  auto items = n.sequence(0);
  if (!items || items->empty())
    return n.fail("the sequence is empty");
  std::optional<int64_t> at = int64_t(items->size()) - 1;
  if (n.has(1))
    at = positionOf(n, 1, int64_t(items->size()), false);
  if (!at)
    return failure();
  items->erase(items->begin() + *at);
  return n.outSequence(*items);
}
LogicalResult importAt(Node &n) {
  auto items = n.sequence(0);
  auto at = items ? positionOf(n, 1, int64_t(items->size()), false) : std::nullopt;
  return at ? n.out((*items)[*at]) : failure();
}
LogicalResult importLength(Node &n) {
  auto items = n.sequence(0);
  return items ? n.out(n.e.splat({}, n.e.i64Type(), double(items->size()))) : failure();
}

LogicalResult importSplit(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  auto axis = x ? n.axis(n.i("axis", 0), rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  int64_t size = dimOf(x, *axis);
  Ints sizes(size, 1);
  if (n.has(1)) {
    auto given = n.ints(1);
    if (!given)
      return failure();
    sizes = *given;
    auto known = n.maybeConstant(1);
    if (known && known->shape.empty()) { // equal parts, the last may be smaller
      if (sizes[0] < 1)
        return n.fail("the size of a part is not positive");
      sizes.assign((size + sizes[0] - 1) / sizes[0], sizes[0]);
      if (!sizes.empty())
        sizes.back() = size - sizes[0] * (int64_t(sizes.size()) - 1);
    }
  }
  Items items;
  int64_t at = 0;
  for (int64_t part : sizes) {
    if (part < 0 || part > size - at)
      return n.fail("the parts are larger than the operand");
    Value item = e.sliceAxis(x, *axis, at, part);
    if (!n.has(1) && !n.i("keepdims", 1))
      item = e.squeeze(item, *axis);
    if (!item)
      return failure();
    items.push_back(item);
    at += part;
  }
  return n.outSequence(items);
}
LogicalResult importConcat(Node &n) {
  Emitter &e = n.e;
  auto items = n.sequence(0);
  if (!items || items->empty())
    return n.fail("the sequence is empty");
  bool isNew = n.i("new_axis", 0);
  auto axis = n.axis(n.i("axis", 0), rankOf((*items)[0]) + isNew);
  if (!axis)
    return failure();
  if (isNew)
    for (Value &item : *items)
      item = e.unsqueeze(item, *axis);
  return n.out(e.concat(*items, *axis));
}

} // namespace

void addSequence(OpTable &table) {
  table["SequenceConstruct"] = importConstruct;
  table["SequenceEmpty"] = importEmpty;
  table["SequenceInsert"] = importInsert;
  table["SequenceErase"] = importErase;
  table["SequenceAt"] = importAt;
  table["SequenceLength"] = importLength;
  table["SplitToSequence"] = importSplit;
  table["ConcatFromSequence"] = importConcat;
}

} // namespace sluice::frontend
