#pragma once
// One ONNX node while it is emitted: its operands, attributes and results. An operator is
// a short function `LogicalResult(Node &)` and one line in its family's table.

#include "frontend/onnx/GraphImporter.h"

namespace sluice::frontend {

using graph::HostTensor;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;

class Node {
public:
  Node(GraphImporter &importer, Scope &scope, onnx::NodeProto &proto, int64_t version)
      : importer(importer), scope(scope), proto(proto), version(version), e(importer.e) {}

  LogicalResult fail(const llvm::Twine &reason);

  // Operands.
  int inputs() const { return proto.input_size(); }
  bool has(int i) const { return i < proto.input_size() && !proto.input(i).empty(); }
  /// The operand; null (and an error) where absent.
  Value in(int i);
  /// The elements of an operand that must be known now; an error where it is not.
  std::optional<HostTensor> constant(int i);
  /// The same for a list of integers.
  std::optional<Ints> ints(int i);
  /// The operand's elements if they are known, without an error.
  std::optional<HostTensor> maybeConstant(int i);
  /// The elements of a sequence; an error where it is none.
  std::optional<llvm::SmallVector<Value>> sequence(int i);
  /// Its ONNX element type; 0 where it is not known.
  int32_t typeOf(int i);

  // Results.
  int outputs() const { return proto.output_size(); }
  bool wants(int i) const { return i < proto.output_size() && !proto.output(i).empty(); }
  LogicalResult out(int i, Value value);
  LogicalResult out(Value value) { return out(0, value); }
  /// The same where the result's ONNX type does not follow from an operand.
  LogicalResult out(int i, Value value, int32_t onnxType);
  LogicalResult outSequence(llvm::ArrayRef<Value> items);

  // Attributes.
  const onnx::AttributeProto *attribute(llvm::StringRef name) const;
  bool hasAttr(llvm::StringRef name) const { return attribute(name); }
  int64_t i(llvm::StringRef name, int64_t otherwise) const;
  double f(llvm::StringRef name, double otherwise) const;
  std::string s(llvm::StringRef name, llvm::StringRef otherwise) const;
  std::optional<Ints> is(llvm::StringRef name) const;
  llvm::SmallVector<double> fs(llvm::StringRef name) const;
  onnx::GraphProto *g(llvm::StringRef name);

  /// `axis` counted from the front; nothing (and an error) if out of range.
  std::optional<int64_t> axis(int64_t axis, int64_t rank);
  std::optional<Ints> axes(llvm::ArrayRef<int64_t> axes,
                           int64_t rank); // sorted, distinct

  GraphImporter &importer;
  Scope &scope;
  onnx::NodeProto &proto;
  int64_t version; // of the operator set the node belongs to
  Emitter &e;
  std::string reason;
};

using Handler = LogicalResult (*)(Node &);
using OpTable = llvm::StringMap<Handler>;

} // namespace sluice::frontend
