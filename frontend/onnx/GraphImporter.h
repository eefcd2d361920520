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
  /// A scalar the runtime writes before each program: "control/seed", ...
  Value control(llvm::StringRef name);
  void checkTies(Scope &scope);
  /// Notes weights read by several nodes and weights with equal values (Sharing.cpp).
  void noteSharing(onnx::GraphProto &graph, const UseMap &uses);

  void note(const std::string &topic, const std::string &text);
  void unsupported(const onnx::NodeProto &node, const std::string &reason);
  /// A stable number for each random operation.
  int64_t nextRandomId() { return randomIds++; }

  onnx::ModelProto &model;
  TensorReader &reader;
  const ImportOptions &options;
  ImportReport &report;
  Emitter &e;
  int64_t rebatch = 0; // the batch asked for where the model says 1
  std::vector<std::string> functionStack;

private:
  bool importNodes(google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                   Scope &scope, const llvm::StringMap<int64_t> &opsets,
                   const llvm::StringSet<> *needed);
  bool importNode(onnx::NodeProto &node, Scope &scope,
                  const llvm::StringMap<int64_t> &opsets);
  Value materialise(Scope &scope, const std::string &name, Entry &entry);
  Value emitInitializer(Scope &scope, const std::string &name, onnx::TensorProto &tensor,
                        const std::string &as);
  bool isMask(const Scope &scope, const std::string &name, onnx::TensorProto &tensor);
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
  int64_t randomIds = 0;
};

/// The name to show: the node's own, or "<op>_<first output>".
std::string nodeName(const onnx::NodeProto &node);
std::string operatorName(const onnx::NodeProto &node);
/// True if an operator table or a function of the model has the node's operator.
bool isKnown(const onnx::ModelProto &model, const onnx::NodeProto &node);
UseMap collectUses(const onnx::GraphProto &graph);

} // namespace sluice::frontend
