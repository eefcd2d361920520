// Stores parameters, and what the backward part reads of the forward part, in formats of
// fewer bits than they are computed in. Readers decode; each does so for itself, since a
// decoded value that were kept from one reader to the next would take the bytes that the
// format saves.
//
// Behind the gradients, which are those of the values: a rounding has none of its own
// (straight through). Before AssignPrecision, which rounds decoded values as it does
// others.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/NamePatterns.h"
#include "passes/Passes.h"
#include "passes/SavedValues.h"
#include "passes/StorageTable.h"
#include "passes/StoredState.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_ASSIGNSTORAGE
#include "passes/Passes.h.inc"

namespace {

/// Blocks of a tensor stay in its rows, so that rows can be taken before they are
/// decoded. Bytes of two codes of 4 bits hold row i and row i + rows / 2.
bool hasRows(StoredFormat format, ArrayRef<int64_t> shape) {
  const FormatTraits &traits = traitsOf(format);
  if (shape.size() < 2 || (traits.bits < 8 && shape[0] % 2 != 0))
    return false;
  bool isWhole = traits.blockColumns == 0;
  return isWhole || (traits.blockRows == 1 && shape.back() % traits.blockColumns == 0);
}

/// Replaces the reads of a parameter in one entry.
class ReadRewriter {
public:
  ReadRewriter(func::FuncOp entry, graph::ParameterOp parameter, StateSymbols &state)
      : parameter(parameter), format(*storedFormatOf(parameter)) {
    for (auto read : entry.getBody().front().getOps<graph::ReadOp>())
      if (read.getSymbol() == parameter.getSymName())
        wide.push_back(read);
    if (wide.empty())
      return;
    builder.setInsertionPoint(wide.front());
    stored = {builder.create<graph::ReadOp>(parameter.getLoc(), parameter.getTensorType(),
                                            parameter.getSymName())};
    for (StringRef part : {"blocks", "tensor"})
      if (auto scale = state.lookup(
              ("scale/" + modelName(parameter.getSymName()) + "/" + part).str()))
        stored.push_back(builder.create<graph::ReadOp>(
            scale.getLoc(), scale.getTensorType(), scale.getSymName()));
  }

  void run() {
    for (graph::ReadOp read : wide) {
      giveOwnViews(read.getValue());
      SmallVector<Operation *> readers = readersOf(read.getValue());
      // Uses are listed last first.
      for (Operation *reader : llvm::reverse(readers))
        decodeFor(reader, read.getValue());
      read.erase();
    }
  }

private:
  static SmallVector<Operation *> readersOf(Value value) {
    SmallVector<Operation *> readers;
    for (Operation *user : value.getUsers())
      if (!llvm::is_contained(readers, user))
        readers.push_back(user);
    return readers;
  }

  /// A transposed weight that forward and backward read would be kept from one to the
  /// other: each gets a transpose of its own.
  void giveOwnViews(Value value) {
    for (Operation *view : readersOf(value)) {
      if (!isa<graph::TransposeOp, graph::ReshapeOp>(view))
        continue;
      SmallVector<Operation *> readers = readersOf(view->getResult(0));
      // Uses are listed last first: the first reader keeps it.
      for (Operation *reader : ArrayRef(readers).drop_back()) {
        builder.setInsertionPoint(reader);
        Value own = builder.clone(*view)->getResult(0);
        reader->replaceUsesOfWith(view->getResult(0), own);
      }
    }
    for (Operation *view : readersOf(value))
      if (isa<graph::TransposeOp, graph::ReshapeOp>(view))
        giveOwnViews(view->getResult(0));
  }

  /// Whether products alone read it, if transposed.
  static bool isForProducts(Operation *reader) {
    if (isa<graph::ContractOp>(reader))
      return true;
    return isa<graph::TransposeOp>(reader) &&
           llvm::all_of(reader->getUsers(), isForProducts);
  }

  void decodeFor(Operation *reader, Value value) {
    builder.setInsertionPoint(reader);
    auto gather = dyn_cast<graph::GatherOp>(reader);
    if (gather && gather.getAxis() == 0 && gather.getX() == value &&
        hasRows(format, graph::tensorType(value).getShape()))
      return decodeRows(gather);
    Value decoded = decodeStored(parameter, stored, site++, builder);
    if (isForProducts(reader) && traitsOf(format).scale == ScaleKind::power)
      decoded = throughBf16(decoded);
    reader->replaceUsesOfWith(value, decoded);
  }

  /// Codes under powers of two are bf16 values (but below 2^-126): products read these.
  Value throughBf16(Value decoded) {
    graph::GraphBuilder b(decoded.getLoc(), builder);
    return b.cast(b.cast(decoded, b.getBF16Type()), b.getF32Type());
  }

  /// Of an embedding: decodes the rows that are looked up, not the table.
  void decodeRows(graph::GatherOp gather) {
    graph::GraphBuilder b(gather.getLoc(), builder);
    RankedTensorType type = graph::tensorType(gather.getY());
    SmallVector<Value> rows = {
        traitsOf(format).bits == 4
            ? nibbleRows(b, gather.getIndices())
            : b.make<graph::GatherOp>(stored[0], gather.getIndices(), int64_t{0})};
    if (traitsOf(format).blockColumns == 0) {
      rows.append(stored.begin() + 1, stored.end());
    } else if (stored.size() > 1) {
      int64_t count = valueTypeOf(parameter).getShape()[0];
      int64_t blocks = graph::tensorType(stored[1]).getNumElements();
      Value table = b.reshape(stored[1], {count, blocks / count});
      Value taken = b.make<graph::GatherOp>(table, gather.getIndices(), int64_t{0});
      rows.push_back(b.reshape(taken, {graph::tensorType(taken).getNumElements()}));
      rows.append(stored.begin() + 2, stored.end());
    }
    Value decoded =
        b.make<graph::DequantizeOp>(rows, traitsOf(format).name, type.getShape(), site++);
    gather.getY().replaceAllUsesWith(decoded);
    gather.erase();
  }

  /// Codes of 4 bits of some rows, two in a byte as those of a tensor.
  Value nibbleRows(graph::GraphBuilder &b, Value indices) {
    ArrayRef<int64_t> shape = valueTypeOf(parameter).getShape();
    int64_t half = shape[0] / 2;
    int64_t columns = valueTypeOf(parameter).getNumElements() / shape[0];
    Value isNegative = b.compare(indices, "lt", b.splatLike(indices, 0));
    Value row = b.select(isNegative, b.shift(indices, double(shape[0])), indices);
    Value isUpper = b.compare(row, "ge", b.splatLike(row, double(half)));
    row = b.select(isUpper, b.shift(row, double(-half)), row);
    Value bytes =
        b.make<graph::GatherOp>(b.reshape(stored[0], {half, columns}), row, int64_t{0});
    SmallVector<int64_t> each = llvm::to_vector(graph::tensorType(isUpper).getShape());
    each.push_back(1);
    isUpper = b.broadcastLike(b.reshape(isUpper, each), bytes);
    Value codes = b.select(isUpper, b.make<graph::UnpackNibbleOp>(bytes, true),
                           b.make<graph::UnpackNibbleOp>(bytes, false));
    int64_t count = graph::tensorType(codes).getNumElements() / 2;
    codes = b.reshape(codes, {2 * count});
    auto part = [&](int64_t first) -> Value {
      return b.make<graph::SliceOp>(codes, ArrayRef<int64_t>{first},
                                    ArrayRef<int64_t>{count}, ArrayRef<int64_t>{1});
    };
    return b.make<graph::PackNibblesOp>(part(0), part(count));
  }

  graph::ParameterOp parameter;
  StoredFormat format;
  SmallVector<graph::ReadOp> wide;
  SmallVector<Value> stored;
  OpBuilder builder{parameter.getContext()};
  int64_t site = 0;
};

class AssignStorage : public impl::AssignStorageBase<AssignStorage> {
public:
  explicit AssignStorage(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    auto choices = resolveStorage(getOperation(), spec);
    if (failed(choices))
      return signalPassFailure();
    StateSymbols state(getOperation());
    for (graph::ParameterOp parameter : state.parameters()) {
      auto found = choices->find(parameter.getSymName());
      if (found != choices->end())
        store(parameter, found->second, state);
    }
    bool saves = llvm::any_of(spec.precision.rules, [](const StorageRule &rule) {
      return !rule.saved.empty();
    });
    for (StringRef name : {"step", "micro"})
      if (auto entry = getOperation().lookupSymbol<func::FuncOp>(name); entry && saves)
        if (failed(storeSavedValues(entry, spec, state)))
          return signalPassFailure();
    if (stored > 0)
      report(getOperation(),
             "storage: " + std::to_string(stored) + " parameters are stored in " +
                 std::to_string(storedTotal) + " bytes, scales included, instead of " +
                 std::to_string(wideTotal) + "; numbers change");
  }

private:
  void store(graph::ParameterOp parameter, const StorageChoice &choice,
             StateSymbols &state) {
    Builder b(&getContext());
    StringRef name = modelName(parameter.getSymName());
    bool trains = parameter.getTrainable() && llvm::is_contained(spec.entries, "step");
    if (!choice.moments.empty() && trains) {
      parameter->setAttr(momentsAttr, b.getStringAttr(choice.moments));
      decide(getOperation(), name,
             "precision: moments in " + choice.moments + ", as a rule says");
    }
    if (choice.why.empty())
      return;
    if (choice.format == StoredFormat::fp32)
      return decide(getOperation(), name, "precision: stored in f32: " + choice.why);
    ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
    std::span<const int64_t> sizes(shape.data(), shape.size());
    int64_t bytes = storedBytes(choice.format, sizes);
    int64_t wideBytes = storedBytes(StoredFormat::fp32, sizes);
    bool keepsMaster = choice.keepsMaster && trains;
    storeAs(parameter, choice.format, keepsMaster, choice.isDelayed && trains, state);
    for (auto entry : getOperation().getOps<func::FuncOp>())
      ReadRewriter(entry, parameter, state).run();
    std::string how = keepsMaster
                          ? ", with an f32 master: forward and backward read the codes"
                      : trains ? ", without a master: updates round stochastically"
                               : "";
    decide(getOperation(), name,
           "precision: stored as " + std::string(traitsOf(choice.format).name) + " in " +
               std::to_string(bytes) + " bytes instead of " + std::to_string(wideBytes) +
               how + ": " + choice.why);
    stored += 1;
    storedTotal += bytes;
    wideTotal += wideBytes;
  }

  const TrainingSpec &spec;
  int64_t stored = 0, storedTotal = 0, wideTotal = 0;
};

} // namespace

std::unique_ptr<Pass> createAssignStorage(const TrainingSpec &spec) {
  return std::make_unique<AssignStorage>(spec);
}

} // namespace sluice
