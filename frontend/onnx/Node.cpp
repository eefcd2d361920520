#include "frontend/onnx/Node.h"

namespace sluice::frontend {

using namespace mlir;

LogicalResult Node::fail(const Twine &text) {
  if (reason.empty())
    reason = text.str();
  return failure();
}

Value Node::in(int i) {
  if (!has(i))
    return e.fail("operand " + Twine(i) + " is missing");
  Value value = importer.read(scope, proto.input(i), {&proto, i});
  if (!value)
    if (Entry *entry = scope.find(proto.input(i)); entry && entry->items)
      return e.fail("operand '" + proto.input(i) + "' is a sequence, expected a tensor");
  return value ? value : e.fail("operand '" + proto.input(i) + "' has no value");
}

std::optional<HostTensor> Node::maybeConstant(int i) {
  if (!has(i))
    return std::nullopt;
  return importer.constantOf(scope, proto.input(i));
}

std::optional<HostTensor> Node::constant(int i) {
  auto tensor = maybeConstant(i);
  if (!tensor)
    e.fail(has(i) ? "operand " + Twine(i) + " ('" + proto.input(i) +
                        "') depends on data, but must be known when compiling; if it "
                        "comes from an "
                        "input that never changes, fix that input by `values`"
                  : "operand " + Twine(i) + " is missing");
  return tensor;
}

std::optional<Ints> Node::ints(int i) {
  auto tensor = constant(i);
  if (!tensor)
    return std::nullopt;
  if (tensor->isReal() || tensor->shape.size() > 1) {
    e.fail("operand " + Twine(i) + " is no list of integers");
    return std::nullopt;
  }
  return Ints(tensor->integers.begin(), tensor->integers.end());
}

int32_t Node::typeOf(int i) {
  return has(i) ? importer.typeOf(scope, proto.input(i)) : 0;
}

LogicalResult Node::out(int i, Value value) {
  if (!value)
    return failure();
  // Unsigned types are carried by signed ones; results of the same carrier inherit them.
  for (int operand = 0; operand < inputs(); ++operand) {
    int32_t type = typeOf(operand);
    if (unsignedBits(type) && elementType(e.context(), type) == elementOf(value))
      return out(i, value, type);
  }
  return out(i, value, 0);
}
LogicalResult Node::out(int i, Value value, int32_t onnxType) {
  if (!value)
    return failure();
  if (!wants(i))
    return success();
  Entry entry;
  entry.value = value;
  entry.onnxType = onnxType;
  if (!scope.entries.try_emplace(proto.output(i), entry).second)
    return fail("the name '" + proto.output(i) + "' is given twice");
  return success();
}

LogicalResult Node::outSequence(ArrayRef<Value> items) {
  if (!wants(0))
    return success();
  Entry entry;
  entry.items.emplace(items.begin(), items.end());
  if (!scope.entries.try_emplace(proto.output(0), entry).second)
    return fail("the name '" + proto.output(0) + "' is given twice");
  return success();
}
std::optional<SmallVector<Value>> Node::sequence(int i) {
  Entry *entry = has(i) ? scope.find(proto.input(i)) : nullptr;
  if (entry && entry->items)
    return entry->items;
  e.fail("operand " + Twine(i) + " is no sequence of known length");
  return std::nullopt;
}

const onnx::AttributeProto *Node::attribute(StringRef name) const {
  for (const auto &attribute : proto.attribute())
    if (name == attribute.name())
      return &attribute;
  return nullptr;
}
int64_t Node::i(StringRef name, int64_t otherwise) const {
  auto *found = attribute(name);
  return found && found->has_i() ? found->i() : otherwise;
}
double Node::f(StringRef name, double otherwise) const {
  auto *found = attribute(name);
  return found && found->has_f() ? double(found->f()) : otherwise;
}
std::string Node::s(StringRef name, StringRef otherwise) const {
  auto *found = attribute(name);
  return found && found->has_s() ? found->s() : otherwise.str();
}
std::optional<Ints> Node::is(StringRef name) const {
  auto *found = attribute(name);
  if (!found)
    return std::nullopt;
  return Ints(found->ints().begin(), found->ints().end());
}
SmallVector<double> Node::fs(StringRef name) const {
  auto *found = attribute(name);
  if (!found)
    return {};
  return SmallVector<double>(found->floats().begin(), found->floats().end());
}
onnx::GraphProto *Node::g(StringRef name) {
  for (auto &attribute : *proto.mutable_attribute())
    if (name == attribute.name() && attribute.has_g())
      return attribute.mutable_g();
  return nullptr;
}

std::optional<int64_t> Node::axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    e.fail("axis " + Twine(axis) + " is out of range for rank " + Twine(rank));
    return std::nullopt;
  }
  return axis < 0 ? axis + rank : axis;
}
std::optional<Ints> Node::axes(ArrayRef<int64_t> axes, int64_t rank) {
  Ints sorted;
  for (int64_t value : axes) {
    auto normal = axis(value, rank);
    if (!normal)
      return std::nullopt;
    sorted.push_back(*normal);
  }
  llvm::sort(sorted);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    e.fail("an axis is given twice");
    return std::nullopt;
  }
  return sorted;
}

} // namespace sluice::frontend
