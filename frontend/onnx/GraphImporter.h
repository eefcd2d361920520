#pragma once
// Walks an ONNX graph in order and emits each node; subgraphs and functions are flattened
// into the one function being built. A value whose node failed is "poisoned": what
// depends on it is skipped, so that one problem is reported once and all others still
// are.

#include "frontend/OnnxImporter.h"
#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/TensorData.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace sluice::frontend {

class Node;

/// Where a value is read: operand `index` of `node`.
struct Use {
  const onnx::NodeProto *node;
  int index;
};
using UseMap = llvm::StringMap<llvm::SmallVector<Use, 2>>;

/// A name of a graph.
struct Entry {
  Value value; // null: not emitted yet, or poisoned
  onnx::TensorProto *initializer = nullptr;
  bool poisoned = false;
  std::optional<llvm::SmallVector<Value>> items; // a sequence, which has no value
  int32_t onnxType = 0; // where known: tells unsigned types from their carriers
};

struct Scope {
  llvm::StringMap<Entry> entries;
  Scope *parent = nullptr;      // captured names
  const UseMap *uses = nullptr; // of this graph and those inside it
  std::string path;             // prefix of parameter names that would clash
  int depth = 0;

  Entry *find(llvm::StringRef name);
};

/// What an initializer (or a ConstantOfShape result) is to the model.
enum class Role { Parameter, Buffer, Constant };

class GraphImporter {
public:
  GraphImporter(onnx::ModelProto &model, TensorReader &reader,
                const ImportOptions &options, ImportReport &report, Emitter &emitter,
                mlir::Block *symbols);

  /// Adds the graph's initializers to the scope and emits its nodes.
  bool importGraph(onnx::GraphProto &graph, Scope &scope);
  /// Emits a function's nodes; `scope` holds its inputs.
  bool importFunction(const onnx::FunctionProto &function, const onnx::NodeProto &call,
                      Scope &scope);
  const onnx::FunctionProto *findFunction(const onnx::NodeProto &node) const;

  // Initializers.cpp
  /// The value of `name` as read by one operand; null if poisoned or unknown.
  Value read(Scope &scope, const std::string &name, Use use);
  std::optional<graph::HostTensor> constantOf(Scope &scope, const std::string &name);
  Role roleOf(const Scope &scope, const std::string &name, int64_t rank) const;
  /// True if the ConstantOfShape result `name` takes the place of a weight.
  bool isWeight(const Scope &scope, const std::string &name) const;
  Value parameter(const Scope &scope, const std::string &name,
                  mlir::RankedTensorType type, Role role, mlir::ElementsAttr init,
                  double fill);
  /// Whether `promote` makes the result of a Constant node a parameter, and that
  /// parameter.
  bool isPromoted(const std::string &name);
  Value promoted(const Scope &scope, const std::string &name,
                 const onnx::TensorProto &tensor, mlir::ElementsAttr init);
  /// An error for each pattern of `promote` that no Constant node has met.
  void checkPromoted();
  /// A scalar the runtime writes before each program: "control/seed", ...
  Value control(llvm::StringRef name);
  /// The ONNX element type of a name; 0 where it is not known.
  int32_t typeOf(Scope &scope, const std::string &name);
  void checkTies(Scope &scope);
  /// Notes weights read by several nodes and weights with equal values (Sharing.cpp).
  void noteSharing(onnx::GraphProto &graph, const UseMap &uses);
  // What exporters lose (Traps.cpp).
  void noteNames(const onnx::GraphProto &graph, const UseMap &uses);
  void noteFoldedNorms(const onnx::GraphProto &graph);
  void noteCopies(onnx::GraphProto &graph, const UseMap &uses);
  /// Whether `tie` makes the slices of a weight one parameter.
  bool copiesOf(const std::string &name) const;

  void note(const std::string &topic, const std::string &text);
  void unsupported(const onnx::NodeProto &node, const std::string &reason);
  /// A stable number for each random operation.
  /// A pattern of `promote` that has named something.
  void markPromoted(llvm::StringRef pattern) { promotions.insert(pattern); }
  int64_t nextRandomId() { return randomIds++; }

  onnx::ModelProto &model;
  TensorReader &reader;
  const ImportOptions &options;
  ImportReport &report;
  Emitter &e;
  int64_t rebatch = 0; // the batch asked for where the model says 1
  std::vector<std::string> functionStack;
  /// By quantised tensor: the same numbers as reals, with a straight-through gradient.
  llvm::DenseMap<Value, Value> unrounded;

private:
  bool importNodes(google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                   Scope &scope, const llvm::StringMap<int64_t> &opsets,
                   const llvm::StringSet<> *needed);
  bool importNode(onnx::NodeProto &node, Scope &scope,
                  const llvm::StringMap<int64_t> &opsets);
  Value materialise(Scope &scope, const std::string &name, Entry &entry);
  Value emitInitializer(Scope &scope, const std::string &name, onnx::TensorProto &tensor,
                        const std::string &as);
  Value emitCopies(Scope &scope, const std::string &name, onnx::TensorProto &tensor,
                   const std::string &as);
  bool isMask(const Scope &scope, const std::string &name, onnx::TensorProto &tensor);
  Value mergedStatistic(Scope &scope, const std::string &name, Entry &entry, Use use);
  Value untiedRead(Scope &scope, const std::string &name, Entry &entry, Use use);
  std::string symbolName(const Scope &scope, const std::string &name);

  mlir::Block *symbols;
  llvm::StringMap<int64_t> opsets;
  llvm::StringSet<> symbolNames;
  llvm::StringMap<onnx::TensorProto *> symbolTensors; // initial values by symbol
  std::vector<std::unique_ptr<onnx::GraphProto>>
      functionBodies; // tensors are cached by address
  llvm::DenseMap<const onnx::TensorProto *, Value> reads;
  std::map<std::string, std::vector<std::pair<Use, Value>>> untied;
  llvm::StringSet<> noted;
  llvm::StringSet<> promotions; // patterns that matched
  int64_t randomIds = 0;
};

/// The name to show: the node's own, or "<op>_<first output>".
std::string nodeName(const onnx::NodeProto &node);
std::string operatorName(const onnx::NodeProto &node);
/// True if an operator table or a function of the model has the node's operator.
bool isKnown(const onnx::ModelProto &model, const onnx::NodeProto &node);
UseMap collectUses(const onnx::GraphProto &graph);
/// A mean or variance that batch normalisation keeps.
bool isRunningStatistic(Use use);

} // namespace sluice::frontend
