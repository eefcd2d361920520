#pragma once
// Reads an ONNX file into a `graph` module: `graph.parameter` symbols and `func @forward`
// of static shapes. Everything that is wrong or not supported is reported at once.

#include "ir/TrainingSpec.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {

struct ImportOptions {
  std::map<std::string, std::vector<int64_t>> shapes; // by input name
  std::map<std::string, int64_t> dimensions;          // by symbolic dimension name
  /// Inputs that are fixed to a value and so are no inputs any more (sampling rates,
  /// conditions, shapes given as inputs): elements in row-major order.
  std::map<std::string, std::vector<double>> values;
  std::vector<TieSpec> tie;
  std::vector<std::string> untie;
  std::vector<std::string> promote; // globs over results of Constant nodes
  /// Recognise LayerNorm, Gelu, Softmax, ... in their decomposed forms.
  bool recognizeComposites = true;

  /// Report parameters, inputs and operations of other floating-point types than f32,
  /// which cannot be trained yet.
  bool singleOnly = false;

  /// For planning only: weights whose external data file is absent are parameters
  /// without values.
  bool withoutWeights = false;

  /// What the training spec says about the model, for training it. `bucket`: an element
  /// of the spec's list of shapes.
  static ImportOptions from(const TrainingSpec &spec,
                            const ShapeBucket *bucket = nullptr);
};

struct ImportedTensor {
  std::string name;
  std::string type; // "f32", "i64", ...
  std::vector<int64_t> shape;
  std::vector<std::string> symbols; // of an input's dimensions; "" where fixed
};

struct UnsupportedOp {
  std::string op, node, reason;
};

/// Filled as far as the import got, also where it fails.
struct ImportReport {
  std::vector<ImportedTensor> inputs, outputs;
  std::map<std::string, int64_t> ops; // nodes by operator, those of subgraphs included
  int64_t parameters = 0, parameterElements = 0;
  std::vector<UnsupportedOp> unsupported;
  std::vector<std::string> errors; // of the file, the inputs, the options
  std::vector<std::string> notes;  // "topic: text"
  int64_t irVersion = 0, opset = 0;
  std::string modelHash; // also where the import fails, if the file can be read
  /// Results of nodes whose names do not follow from the node's: tensor -> node.
  std::map<std::string, std::string> tensorNodes;

  /// All problems as lines of text; empty if the import succeeded.
  std::vector<std::string> problems() const;
};

/// The module holds attributes `graph.model_name` and `graph.model_hash`; arguments and
/// results of `@forward` have `graph.name`. The graph and func dialects are loaded.
/// Problems are in `report` only; nothing is printed.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importOnnx(mlir::MLIRContext &context, const std::string &path,
           const ImportOptions &options, ImportReport &report);

} // namespace sluice
