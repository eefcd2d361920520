// What the tensors of a model are: parameters, buffers (running statistics) or constants.
// ONNX does not say; the operands that read them do.
#include "frontend/onnx/GraphImporter.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/NarrowFloat.h"

#include <cmath>
#include <cstring>

namespace sluice::frontend {

using namespace mlir;

namespace {

struct Operand {
  StringRef op;
  int first, last;
};

/// Operands that say how an operation works; never trained.
constexpr Operand staticOperands[] = {{"Clip", 1, 2},
                                      {"Resize", 1, 3},
                                      {"Upsample", 1, 1},
                                      {"Pad", 1, 3},
                                      {"Dropout", 1, 2},
                                      {"OneHot", 1, 2},
                                      {"Range", 0, 2},
                                      {"Pow", 1, 1},
                                      {"Slice", 1, 4},
                                      {"Reshape", 1, 1},
                                      {"Expand", 1, 1},
                                      {"Tile", 1, 1},
                                      {"QuantizeLinear", 1, 2},
                                      {"DequantizeLinear", 1, 2},
                                      {"SoftmaxCrossEntropyLoss", 2, 2},
                                      {"NegativeLogLikelihoodLoss", 2, 2},
                                      {"STFT", 1, 3},
                                      {"RotaryEmbedding", 1, 3},
                                      {"GroupQueryAttention", 5, 8},
                                      {"RoiAlign", 1, 2},
                                      {"MaxRoiPool", 1, 1},
                                      {"NonMaxSuppression", 0, 4}};

/// Operands where a model has its weights.
constexpr Operand weightOperands[] = {{"Conv", 1, 2},
                                      {"ConvTranspose", 1, 2},
                                      {"Gemm", 1, 2},
                                      {"MatMul", 0, 1},
                                      {"BatchNormalization", 1, 4},
                                      {"InstanceNormalization", 1, 2},
                                      {"LSTM", 1, 3},
                                      {"LayerNormalization", 1, 2},
                                      {"GroupNormalization", 1, 2},
                                      {"GRU", 1, 3},
                                      {"RMSNormalization", 1, 1},
                                      {"RNN", 1, 3},
                                      {"PRelu", 1, 1},
                                      {"DeformConv", 1, 1},
                                      {"DeformConv", 3, 3},
                                      {"FusedConv", 1, 2},
                                      {"FusedGemm", 1, 2},
                                      {"FusedMatMul", 0, 1},
                                      {"SkipLayerNormalization", 2, 4},
                                      {"SkipSimplifiedLayerNormalization", 2, 3},
                                      {"EmbedLayerNormalization", 2, 6},
                                      {"Gather", 0, 0}};

bool contains(ArrayRef<Operand> operands, Use use) {
  return use.node && llvm::any_of(operands, [&](const Operand &operand) {
           return operand.op == use.node->op_type() && use.index >= operand.first &&
                  use.index <= operand.last;
         });
}

bool isView(StringRef op) {
  return op == "Unsqueeze" || op == "Squeeze" || op == "Reshape" || op == "Transpose" ||
         op == "Identity";
}

/// A scalar is a literal of the model's code (an epsilon, a factor) far more often than
/// it is trained; a learned temperature goes through Exp or carries a telling name.
bool looksLearned(StringRef name, ArrayRef<Use> uses) {
  StringRef leaf = name.rsplit('/').second.empty() ? name : name.rsplit('/').second;
  leaf = leaf.rsplit('.').second.empty() ? leaf : leaf.rsplit('.').second;
  for (StringRef word :
       {"scale", "alpha", "beta", "gamma", "weight", "bias", "temperature"})
    if (leaf.ends_with(word))
      return true;
  return llvm::any_of(uses,
                      [](Use use) { return use.node && use.node->op_type() == "Exp"; });
}

bool weighsThrough(const UseMap &uses, StringRef name, bool viewed, int depth) {
  auto found = uses.find(name);
  if (found == uses.end() || depth > 4)
    return false;
  return llvm::any_of(found->second, [&](Use use) {
    StringRef op = use.node->op_type();
    if (contains(weightOperands, use) || (viewed && (op == "Mul" || op == "Add")))
      return true;
    return isView(op) && use.index == 0 && use.node->output_size() > 0 &&
           weighsThrough(uses, use.node->output(0), viewed || op == "Unsqueeze",
                         depth + 1);
  });
}

} // namespace

bool isRunningStatistic(Use use) {
  return use.node && use.node->op_type() == "BatchNormalization" && use.index >= 3;
}

Role GraphImporter::roleOf(const Scope &scope, const std::string &name,
                           int64_t rank) const {
  if (!scope.uses || !scope.uses->contains(name))
    return Role::Parameter;
  ArrayRef<Use> uses = scope.uses->find(name)->second;
  if (llvm::all_of(uses, [](Use use) { return contains(staticOperands, use); }))
    return Role::Constant;
  if (llvm::any_of(uses, isRunningStatistic))
    return Role::Buffer;
  return rank == 0 && !looksLearned(name, uses) ? Role::Constant : Role::Parameter;
}

bool GraphImporter::isWeight(const Scope &scope, const std::string &name) const {
  return scope.uses && weighsThrough(*scope.uses, name, /*viewed=*/false, 0);
}

std::string GraphImporter::symbolName(const Scope &scope, const std::string &name) {
  std::string symbol = "param/" + name;
  if (symbolNames.contains(symbol)) {
    symbol = "param/" + scope.path + name;
    for (int copy = 2; symbolNames.contains(symbol); ++copy)
      symbol = "param/" + scope.path + name + "@" + std::to_string(copy);
    note("names",
         "'" + name + "' is used by several graphs; one of them is '" + symbol + "'");
  }
  symbolNames.insert(symbol);
  return symbol;
}

Value GraphImporter::parameter(const Scope &scope, const std::string &name,
                               RankedTensorType type, Role role, ElementsAttr init,
                               double fill) {
  OpBuilder builder(e.context());
  builder.setInsertionPointToEnd(symbols);
  Location loc = NameLoc::get(builder.getStringAttr(name));
  std::string symbol = symbolName(scope, name);
  bool trainable = role == Role::Parameter;
  builder.create<graph::ParameterOp>(
      loc, builder.getStringAttr(symbol), TypeAttr::get(type),
      builder.getStringAttr(trainable ? "parameter" : "buffer"),
      trainable ? builder.getUnitAttr() : UnitAttr(), init, builder.getF64FloatAttr(fill),
      StringAttr(), StringAttr());
  if (trainable) {
    ++report.parameters;
    report.parameterElements += type.getNumElements();
  }
  return e.builder.create<graph::ReadOp>(loc, type, symbol);
}

Value GraphImporter::control(StringRef name) {
  auto type = RankedTensorType::get({}, e.i64Type());
  std::string symbol = ("control/" + name).str();
  if (symbolNames.insert(symbol).second) {
    OpBuilder builder(e.context());
    builder.setInsertionPointToEnd(symbols);
    builder.create<graph::ParameterOp>(
        e.loc, builder.getStringAttr(symbol), TypeAttr::get(type),
        builder.getStringAttr("control"), UnitAttr(), ElementsAttr(),
        builder.getF64FloatAttr(0), StringAttr(), StringAttr());
  }
  return e.builder.create<graph::ReadOp>(e.loc, type, symbol);
}

/// A table of penalties, as causal masks are written: trained, it would only do harm.
bool GraphImporter::isMask(const Scope &scope, const std::string &name,
                           onnx::TensorProto &tensor) {
  auto uses = scope.uses ? scope.uses->find(name) : UseMap::const_iterator();
  if (!scope.uses || uses == scope.uses->end() ||
      tensor.data_type() != onnx::TensorProto::FLOAT)
    return false;
  for (Use use : uses->second) {
    StringRef op = use.node->op_type();
    if (op != "Add" && op != "Sub" && op != "Where" && op != "Slice" &&
        op != "Attention" && op != "MultiHeadAttention")
      return false;
  }
  std::string error;
  auto bytes = reader.bytes(tensor, error);
  int64_t count = bytes ? bytes->size / sizeof(float) : 0;
  for (int64_t i = 0; i < std::min(count, foldLarge); ++i) {
    float value;
    std::memcpy(&value, bytes->data + i * sizeof(float), sizeof(float));
    if (std::abs(value) >= 1e9f)
      return true;
  }
  return false;
}

Value GraphImporter::emitInitializer(Scope &scope, const std::string &name,
                                     onnx::TensorProto &tensor, const std::string &as) {
  std::string error;
  RankedTensorType type = reader.type(tensor, error);
  if (type && options.withoutWeights && isa<FloatType>(type.getElementType()) &&
      reader.isAbsent(tensor)) {
    note("weights", "the file of some is absent: planned without their values");
    Role role = roleOf(scope, name, type.getRank());
    return parameter(scope, as, type, role, {}, 0);
  }
  ElementsAttr init = type ? reader.attribute(tensor, error) : ElementsAttr();
  if (!init)
    return e.fail("initializer '" + name + "': " + error);
  if (copiesOf(name))
    return emitCopies(scope, name, tensor, as);
  Role role =
      Role::Constant; // also of floats in narrow formats, as quantised weights are
  if (isa<FloatType>(type.getElementType()) && !narrowFloat(tensor.data_type()))
    role = roleOf(scope, name, type.getRank());
  if (role == Role::Parameter && isMask(scope, name, tensor)) {
    note("constants", "'" + name +
                          "' holds infinities or numbers beyond 1e9 and is added or "
                          "selected: a mask, taken as a constant");
    role = Role::Constant;
  }
  if (role == Role::Constant) {
    if (type.getRank() == 0 && isa<FloatType>(type.getElementType()))
      note("constants", "the scalar initializer '" + name + "' is taken as a constant");
    return e.constant(init);
  }
  if (!type.getElementType().isF32())
    note("types", "'" + name + "' is of " + onnxTypeName(tensor.data_type()) +
                      "; training computes in float only");
  Value value = parameter(scope, as, type, role, init, 0);
  symbolTensors[value.getDefiningOp<graph::ReadOp>().getSymbol()] = &tensor;
  return value;
}

Value GraphImporter::materialise(Scope &scope, const std::string &name, Entry &entry) {
  Value &cached = reads[entry.initializer];
  if (cached)
    return cached;
  for (const TieSpec &tie : options.tie) {
    Entry *first = tie.second == name ? scope.find(tie.first) : nullptr;
    if (!first || !first->initializer || first == &entry || tie.copies)
      continue;
    Value shared = read(scope, tie.first, {nullptr, 0});
    if (shared && tie.transpose && rankOf(shared) == 2)
      shared = e.transpose(shared, {1, 0});
    note("tie",
         "'" + name + "' is '" + tie.first + "'" + (tie.transpose ? ", transposed" : ""));
    return reads[entry.initializer] = shared;
  }
  Value value = emitInitializer(scope, name, *entry.initializer, name);
  reads[entry.initializer] = value;
  return value;
}

Value GraphImporter::untiedRead(Scope &scope, const std::string &name, Entry &entry,
                                Use use) {
  auto &copies = untied[name];
  for (auto &[reader, value] : copies)
    if (reader.node == use.node && reader.index == use.index)
      return value;
  // Exporters that merge equal weights leave the lost names on Identity nodes.
  auto isNamed = [](Use use) { return use.node && use.node->op_type() == "Identity"; };
  auto number =
      1 + llvm::count_if(copies, [&](auto &copy) { return !isNamed(copy.first); });
  std::string as = isNamed(use)  ? use.node->output(0)
                   : number == 1 ? name
                                 : name + "@" + std::to_string(number);
  Value value = emitInitializer(scope, name, *entry.initializer, as);
  if (as != name && use.node)
    note("untie",
         "'" + name + "' as read by '" + nodeName(*use.node) + "' is '" + as + "'");
  copies.push_back({use, value});
  return value;
}

Value GraphImporter::read(Scope &scope, const std::string &name, Use use) {
  Scope *owner = &scope;
  while (owner && !owner->entries.contains(name))
    owner = owner->parent;
  if (!owner)
    return {};
  Entry &entry = owner->entries[name];
  if (entry.poisoned)
    return {};
  if (entry.initializer && use.node)
    if (Value statistic = mergedStatistic(*owner, name, entry, use))
      return statistic;
  if (!entry.value && entry.initializer) {
    if (llvm::is_contained(options.untie, name))
      return untiedRead(*owner, name, entry, use);
    Value value = materialise(*owner, name, entry);
    owner->entries[name].value = value;
    return value;
  }
  return entry.value;
}

std::optional<graph::HostTensor> GraphImporter::constantOf(Scope &scope,
                                                           const std::string &name) {
  Entry *entry = scope.find(name);
  if (!entry || entry->poisoned)
    return std::nullopt;
  onnx::TensorProto *tensor = entry->value ? nullptr : entry->initializer;
  if (entry->value) {
    if (auto read = entry->value.getDefiningOp<graph::ReadOp>())
      tensor = symbolTensors.lookup(read.getSymbol());
    if (!tensor)
      return e.known(entry->value);
  }
  std::string error;
  auto type = reader.type(*tensor, error);
  if (!type || type.getNumElements() > foldLarge)
    return std::nullopt;
  auto values = reader.host(*tensor, error);
  if (!values)
    e.fail("initializer '" + name + "': " + error);
  return values;
}

int32_t GraphImporter::typeOf(Scope &scope, const std::string &name) {
  Entry *entry = scope.find(name);
  if (!entry)
    return 0;
  return entry->initializer ? entry->initializer->data_type() : entry->onnxType;
}

} // namespace sluice::frontend
