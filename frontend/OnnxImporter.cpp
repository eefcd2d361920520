#include "frontend/OnnxImporter.h"
#include "frontend/ProveBatch.h"
#include "frontend/RecognizeComposites.h"
#include "frontend/onnx/GraphImporter.h"
#include "frontend/onnx/InputParameters.h"
#include "frontend/onnx/Inputs.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/ModelFile.h"
#include "frontend/onnx/OpTable.h"

#include "mlir/IR/Verifier.h"

#include <filesystem>

namespace sluice {

using namespace mlir;
using namespace sluice::frontend;

ImportOptions ImportOptions::from(const TrainingSpec &spec, const ShapeBucket *bucket) {
  ImportOptions options;
  options.shapes = bucket ? bucket->shapes : spec.shapes;
  options.dimensions = bucket ? bucket->dimensions : spec.dimensions;
  options.values = spec.values;
  options.tie = spec.tie;
  options.untie = spec.untie;
  options.promote = spec.promote;
  options.singleOnly = true;
  return options;
}

std::vector<std::string> ImportReport::problems() const {
  std::vector<std::string> lines = errors;
  for (const UnsupportedOp &op : unsupported)
    lines.push_back("'" + op.op + "' (node '" + op.node + "'): " + op.reason);
  return lines;
}

namespace {

void countOps(const onnx::GraphProto &graph, ImportReport &report, int depth) {
  for (const auto &node : graph.node()) {
    ++report.ops[operatorName(node)];
    if (depth < maxNesting)
      for (const auto &attribute : node.attribute())
        if (attribute.has_g())
          countOps(attribute.g(), report, depth + 1);
  }
}

ImportedTensor describe(const std::string &name, Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return {name, typeText(tensor.getElementType()), tensor.getShape().vec(), {}};
}

/// Names of the dimensions of an input.
std::vector<std::string> symbolsOf(const onnx::GraphProto &graph,
                                   const std::string &name) {
  std::vector<std::string> symbols;
  for (const auto &input : graph.input())
    if (input.name() == name)
      for (const auto &dim : input.type().tensor_type().shape().dim())
        symbols.push_back(dim.dim_param());
  return symbols;
}

class ModelImport {
public:
  ModelImport(MLIRContext &context, ModelFile &file, const ImportOptions &options,
              ImportReport &report)
      : context(context), file(file), options(options), report(report),
        reader(&context, file.folder) {}

  FailureOr<OwningOpRef<ModuleOp>> run() {
    onnx::GraphProto &graph = *file.proto->mutable_graph();
    inputParameters = addInputParameters(file, options, report);
    BoundInputs bound = bindInputs(graph, &context, options, report);
    OpBuilder builder(&context);
    OwningOpRef<ModuleOp> module =
        ModuleOp::create(NameLoc::get(builder.getStringAttr(file.path)));
    std::string name = std::filesystem::path(file.path).stem().string();
    (*module)->setAttr("graph.model_name", builder.getStringAttr(name));
    (*module)->setAttr("graph.model_hash", builder.getStringAttr(file.hash));
    report.modelHash = file.hash;
    if (!report.errors.empty()) { // without shapes nothing more can be said about nodes
      listUnknown(graph);
      return failure();
    }
    builder.setInsertionPointToStart(module->getBody());
    auto function = builder.create<func::FuncOp>(module->getLoc(), "forward",
                                                 builder.getFunctionType({}, {}));
    fill(function, graph, bound, *module);
    if (!report.errors.empty() || !report.unsupported.empty())
      return failure();
    proveBatch(function, bound);
    if (!report.errors.empty())
      return failure();
    if (options.recognizeComposites)
      for (auto &[name, count] : recognizeComposites(function))
        report.notes.push_back("composites: " + std::to_string(count) + " " + name +
                               " found in decomposed form");
    dropDeadCode(*module, function);
    if (options.singleOnly)
      checkTypes(*module, function);
    if (!report.unsupported.empty())
      return failure();
    checkUse();
    return verified(std::move(module));
  }

private:
  void listUnknown(const onnx::GraphProto &graph);
  void fill(func::FuncOp function, onnx::GraphProto &graph, const BoundInputs &bound,
            ModuleOp module);
  void noteShape(const onnx::ValueInfoProto &output, Value value);
  void addOutputs(func::FuncOp function, onnx::GraphProto &graph, GraphImporter &importer,
                  Scope &scope);
  void proveBatch(func::FuncOp function, const BoundInputs &bound);
  void dropDeadCode(ModuleOp module, func::FuncOp function);
  void checkTypes(ModuleOp module, func::FuncOp function);
  void checkUse();

  FailureOr<OwningOpRef<ModuleOp>> verified(OwningOpRef<ModuleOp> module) {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      report.errors.push_back("internal: the imported module is not valid: " +
                              diagnostic.str());
      return success();
    });
    if (failed(verify(*module)))
      return failure();
    return module;
  }

  MLIRContext &context;
  ModelFile &file;
  const ImportOptions &options;
  ImportReport &report;
  TensorReader reader;
  bool isRebatched = false;
  llvm::StringSet<> inputParameters; // patterns that named some
};

/// Operators that no table has, where the nodes themselves could not be visited.
void ModelImport::listUnknown(const onnx::GraphProto &graph) {
  for (const auto &node : graph.node())
    if (!isKnown(*file.proto, node))
      report.unsupported.push_back(
          {operatorName(node), nodeName(node), unknownReason(node)});
}

void ModelImport::fill(func::FuncOp function, onnx::GraphProto &graph,
                       const BoundInputs &bound, ModuleOp module) {
  Block *body = function.addEntryBlock();
  // Parameters are collected in a block of their own and put before the function.
  Block symbols;
  Emitter emitter(OpBuilder::atBlockEnd(body));
  GraphImporter importer(*file.proto, reader, options, report, emitter, &symbols);
  importer.rebatch = bound.rebatch;
  isRebatched = bound.rebatch != 0;
  for (const auto &pattern : inputParameters)
    importer.markPromoted(pattern.getKey());
  Scope scope;
  SmallVector<Type> types;
  SmallVector<DictionaryAttr> attributes;
  for (const BoundInput &input : bound.inputs) {
    Entry &entry = scope.entries[input.name];
    entry.onnxType = input.onnxType;
    Location loc = NameLoc::get(StringAttr::get(&context, input.name));
    emitter.begin(loc);
    if (input.value) {
      entry.value = emitter.constant(*input.value);
      continue;
    }
    entry.value = body->addArgument(input.type, loc);
    types.push_back(input.type);
    attributes.push_back(DictionaryAttr::get(
        &context, NamedAttribute(StringAttr::get(&context, "graph.name"),
                                 StringAttr::get(&context, input.name))));
    report.inputs.push_back(describe(input.name, input.type));
    report.inputs.back().symbols = symbolsOf(graph, input.name);
  }
  function.setFunctionType(FunctionType::get(&context, types, {}));
  function.setAllArgAttrs(attributes);
  if (importer.importGraph(graph, scope) && report.unsupported.empty())
    importer.checkPromoted();
  if (report.errors.empty())
    addOutputs(function, graph, importer, scope);
  module.getBody()->getOperations().splice(module.getBody()->begin(),
                                           symbols.getOperations());
}

/// Where a result has another shape than the model declares.
void ModelImport::noteShape(const onnx::ValueInfoProto &output, Value value) {
  const auto &type = output.type().tensor_type();
  if (!type.has_shape() || isRebatched)
    return;
  Ints declared;
  for (const auto &dim : type.shape().dim())
    declared.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  bool same = declared.size() == shapeOf(value).size();
  for (size_t i = 0; same && i < declared.size(); ++i)
    same = declared[i] < 0 || declared[i] == shapeOf(value)[i];
  if (same || llvm::any_of(declared, [](int64_t d) { return d < 0; }))
    return;
  report.notes.push_back("shapes: output '" + output.name() + "' is declared as " +
                         shapeText(declared) + " and has shape " +
                         shapeText(shapeOf(value)));
}

void ModelImport::addOutputs(func::FuncOp function, onnx::GraphProto &graph,
                             GraphImporter &importer, Scope &scope) {
  SmallVector<Value> values;
  SmallVector<Attribute> attributes;
  for (const auto &output : graph.output()) {
    Entry *entry = scope.find(output.name());
    if (!entry) {
      report.errors.push_back("output '" + output.name() + "' is computed by no node");
      continue;
    }
    if (entry->items)
      report.errors.push_back("output '" + output.name() +
                              "' is a sequence; give its tensors as outputs");
    if (!entry->value)
      continue; // poisoned: the cause has been reported
    values.push_back(entry->value);
    report.outputs.push_back(describe(output.name(), entry->value.getType()));
    attributes.push_back(DictionaryAttr::get(
        &context, NamedAttribute(StringAttr::get(&context, "graph.name"),
                                 StringAttr::get(&context, output.name()))));
    const auto &dims = output.type().tensor_type().shape().dim();
    noteShape(output, entry->value);
    bool batched = importer.rebatch && dims.size() > 0 && dims[0].dim_value() == 1;
    if (batched &&
        (rankOf(entry->value) == 0 || dimOf(entry->value, 0) != importer.rebatch))
      report.errors.push_back(
          "output '" + output.name() + "' has shape " + shapeText(shapeOf(entry->value)) +
          " with batch " + std::to_string(importer.rebatch) +
          ": the model holds its batch size of 1 inside; export it with "
          "a dynamic batch dimension");
  }
  if (graph.output_size() == 0)
    report.errors.push_back("the model has no outputs");
  OpBuilder builder = OpBuilder::atBlockEnd(&function.getBody().front());
  builder.create<func::ReturnOp>(function.getLoc(), values);
  function.setFunctionType(builder.getFunctionType(
      function.getArgumentTypes(), llvm::to_vector(ValueRange(values).getTypes())));
  function.setAllResultAttrs(attributes);
}

/// Where the model's batch is 1 and another was asked for.
void ModelImport::proveBatch(func::FuncOp function, const BoundInputs &bound) {
  if (bound.rebatch == 0)
    return;
  llvm::SmallVector<bool> batched;
  std::string example;
  for (const BoundInput &input : bound.inputs) {
    if (input.value)
      continue;
    batched.push_back(input.rebatched);
    if (input.rebatched && example.empty())
      example = input.name;
  }
  auto problem = findMixing(function, batched, bound.rebatch);
  if (problem)
    report.errors.push_back(
        "input '" + example + "' has batch 1 in the model and " +
        std::to_string(bound.rebatch) + " in `shapes`, but " + *problem +
        " mixes samples or cannot be shown to keep them apart; keep batch 1 in `shapes` "
        "(and `accumulate: " +
        std::to_string(bound.rebatch) +
        "`), or export the model with a dynamic batch dimension");
}

void ModelImport::dropDeadCode(ModuleOp module, func::FuncOp function) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  llvm::DenseSet<Attribute> used;
  for (Operation &op : function.getBody().front())
    for (NamedAttribute attribute : op.getAttrs())
      if (auto symbol = dyn_cast<FlatSymbolRefAttr>(attribute.getValue()))
        used.insert(symbol.getAttr());
  for (auto parameter : llvm::make_early_inc_range(module.getOps<graph::ParameterOp>())) {
    if (used.contains(parameter.getSymNameAttr()))
      continue;
    if (parameter.getTrainable()) {
      --report.parameters;
      report.parameterElements -= parameter.getTensorType().getNumElements();
    }
    parameter.erase();
  }
}

/// What to do about a floating-point type that is not trained.
static std::string advice(RankedTensorType type) {
  if (type.getElementType().isF64())
    return " is not supported, only f32; export the model in float (model.float())";
  return " is not yet supported, only f32; export the model in float (model.float()): "
         "mixed precision is a choice of the spec, not of the file";
}

/// Other floating-point types than f32 are kept by the importer but not trained yet: all
/// of them in one report.
void ModelImport::checkTypes(ModuleOp module, func::FuncOp function) {
  auto check = [&](Type type, StringRef kind, StringRef name) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !isa<FloatType>(tensor.getElementType()) ||
        tensor.getElementType().isF32())
      return false;
    report.unsupported.push_back(
        {kind.str(), name.str(), typeText(tensor.getElementType()) + advice(tensor)});
    return true;
  };
  bool found = false;
  for (auto parameter : module.getOps<graph::ParameterOp>())
    found |= check(parameter.getType(), "parameter", parameter.getSymName());
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    found |= check(type, "input",
                   function.getArgAttrOfType<StringAttr>(i, "graph.name").getValue());
  if (found) // operations follow from them
    return;
  for (Operation &op : function.getBody().front())
    if (op.getNumResults() > 0)
      if (auto loc = dyn_cast<NameLoc>(op.getLoc()))
        check(op.getResult(0).getType(), op.getName().stripDialect(), loc.getName());
}

void ModelImport::checkUse() {
  if (report.parameters == 0)
    report.notes.push_back(
        "parameters: the model has none, so there is nothing to train");
  report.notes.push_back(
      "names: parameters are saved as 'param/NAME' with the names of the "
      "model");
}

} // namespace

FailureOr<OwningOpRef<ModuleOp>> importOnnx(MLIRContext &context, const std::string &path,
                                            const ImportOptions &options,
                                            ImportReport &report) {
  context.loadDialect<graph::GraphDialect, func::FuncDialect>();
  ModelFile file;
  if (auto problem = readModelFile(path, file)) {
    report.errors.push_back(*problem);
    return failure();
  }
  report.irVersion = file.proto->ir_version();
  report.opset = opsetOf(*file.proto, "");
  countOps(file.proto->graph(), report, 0);
  return ModelImport(context, file, options, report).run();
}

} // namespace sluice
