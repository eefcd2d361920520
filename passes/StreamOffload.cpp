// StreamOffload: copies between the device and the host for what lies in the host's
// memory, in a queue of their own, and the waits between both queues. Behind ordering,
// since when a tensor is idle follows from the order; before memory is planned, since
// copies make the live ranges.

#include "passes/LiveRanges.h"
#include "passes/OffloadStep.h"
#include "passes/Passes.h"
#include "passes/planning/CopyScheduleChecker.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_STREAMOFFLOAD
#include "passes/Passes.h.inc"
namespace {

class ProgramStreamer {
public:
  explicit ProgramStreamer(plan::ProgramOp program)
      : program(program), tensors(streamOf(program)),
        schedule(scheduleCopies(tensors.stream)), launches(launchesOf(program)),
        storage(program.queue()) {}

  LogicalResult run() {
    if (schedule.copies.empty())
      return success();
    if (std::string wrong = checkCopySchedule(tensors.stream, schedule); !wrong.empty())
      return program.emitError("the schedule of copies is wrong: ") << wrong;
    for (size_t t = 0; t < tensors.roots.size(); ++t)
      createHostSide(t);
    for (const StreamSchedule::Part &part : schedule.parts)
      createPart(part);
    createQueue();
    createWaits();
    for (Operation *root : tensors.roots)
      eraseIfUnused(root);
    for (auto state : llvm::make_early_inc_range(
             program.getBody().front().getOps<plan::StateBufferOp>()))
      eraseIfUnused(state);
    program.setPredictedUs(APFloat(schedule.timeUs));
    return success();
  }

private:
  Type bufferType() { return plan::BufferType::get(program.getContext()); }

  Value createBuffer(StringRef label, StringRef category, int64_t bytes, bool onHost) {
    return storage.create<plan::BufferOp>(
        program.getLoc(), bufferType(), storage.getStringAttr(label),
        storage.getStringAttr(category), storage.getI64IntegerAttr(bytes), IntegerAttr(),
        IntegerAttr(), IntegerAttr(),
        onHost ? storage.getStringAttr("host") : StringAttr(), UnitAttr(),
        onHost ? UnitAttr() : storage.getUnitAttr());
  }

  StringRef labelOf(size_t tensor) {
    if (auto root = tensors.roots[tensor])
      return cast<plan::BufferOp>(root).getLabel();
    return tensors.symbols[tensor].getValue();
  }

  /// Where a tensor lies while it is not on the device.
  void createHostSide(size_t tensor) {
    Value side;
    if (Operation *root = tensors.roots[tensor]) {
      auto buffer = cast<plan::BufferOp>(root);
      bool copied = llvm::any_of(schedule.copies, [&](auto &copy) {
        return size_t(schedule.parts[copy.part].tensor) == tensor;
      });
      if (copied)
        side =
            createBuffer(buffer.getLabel(), buffer.getCategory(), buffer.getSize(), true);
    } else if (tensors.stream.tensors[tensor].offloaded) {
      side = plan::createStateBuffer(storage, program.getLoc(),
                                     FlatSymbolRefAttr::get(tensors.symbols[tensor]));
    }
    hostSides.push_back(side);
  }

  StringRef categoryOf(size_t tensor) {
    if (auto root = tensors.roots[tensor])
      return cast<plan::BufferOp>(root).getCategory();
    auto state = SymbolTable::lookupNearestSymbolFrom<plan::StateOp>(
        program->getParentOp(), tensors.symbols[tensor]);
    return stateCategory(state.getRole());
  }

  bool isTensor(Value root, size_t tensor) {
    if (Operation *owned = tensors.roots[tensor])
      return root.getDefiningOp() == owned;
    auto state = root.getDefiningOp<plan::StateBufferOp>();
    return state && state.getSymbol() == tensors.symbols[tensor];
  }

  /// The bytes of a part, which its launches use in place of the tensor's.
  void createPart(const StreamSchedule::Part &part) {
    size_t tensor = part.tensor;
    Value bytes = createBuffer(labelOf(tensor), categoryOf(tensor),
                               tensors.stream.tensors[tensor].sizeBytes, false);
    partBytes.push_back(bytes);
    llvm::DenseMap<Value, Value> views;
    std::function<Value(Value)> inPart = [&](Value value) -> Value {
      if (auto slice = value.getDefiningOp<plan::SliceOp>()) {
        Value source = inPart(slice.getSource());
        if (!source)
          return {};
        Value &view = views[value];
        if (!view)
          view =
              storage.create<plan::SliceOp>(slice.getLoc(), bufferType(), source,
                                            slice.getOffsetAttr(), slice.getSizeAttr());
        return view;
      }
      return isTensor(value, tensor) ? bytes : Value();
    };
    for (int32_t l = part.first; l <= part.last; ++l)
      for (auto stage : launches[l].getBody().front().getOps<plan::StageOp>())
        for (OpOperand &operand : stage->getOpOperands())
          if (Value other = inPart(operand.get()))
            operand.set(other);
  }

  /// The original bytes of a tensor, and slices of them that nothing uses any more.
  static void eraseIfUnused(Operation *root) {
    if (!root)
      return;
    for (Operation *user : llvm::make_early_inc_range(root->getUsers()))
      if (isa<plan::SliceOp>(user))
        eraseIfUnused(user);
    if (root->use_empty())
      root->erase();
  }

  void createQueue() {
    OperationState state(program.getLoc(), plan::QueueOp::getOperationName());
    state.addAttribute("sym_name", storage.getStringAttr("copy"));
    state.addRegion()->emplaceBlock();
    storage.setInsertionPointAfter(program.queue());
    auto queue = cast<plan::QueueOp>(storage.create(state));
    auto builder = OpBuilder::atBlockEnd(&queue.getBody().front());
    int32_t waited = 0;
    for (auto [c, copy] : llvm::enumerate(schedule.copies)) {
      if (copy.waitLaunches > waited) {
        waited = copy.waitLaunches;
        createWait(builder, "compute", waited);
      }
      int32_t tensor = schedule.parts[copy.part].tensor;
      Value host = hostSides[tensor], device = partBytes[copy.part];
      builder.create<plan::CopyOp>(
          program.getLoc(), builder.getStringAttr(labelOf(tensor)),
          copy.toHost ? device : host, copy.toHost ? host : device,
          builder.getF64FloatAttr(copy.us));
      bool awaited = llvm::any_of(schedule.waitCopies,
                                  [&](int32_t count) { return count == int32_t(c) + 1; });
      if (awaited)
        createSignal(builder, int64_t(c) + 1);
    }
  }

  void createWaits() {
    OpBuilder builder(program.getContext());
    int32_t waited = 0;
    for (auto [l, launch] : llvm::enumerate(launches)) {
      builder.setInsertionPoint(launch);
      if (schedule.waitCopies[l] > waited) {
        waited = schedule.waitCopies[l];
        createWait(builder, "copy", waited);
      }
      builder.setInsertionPointAfter(launch);
      bool awaited = llvm::any_of(schedule.copies, [&](auto &copy) {
        return copy.waitLaunches == int32_t(l) + 1;
      });
      if (awaited)
        createSignal(builder, int64_t(l) + 1);
    }
  }

  void createWait(OpBuilder &builder, StringRef queue, int64_t value) {
    builder.create<plan::WaitOp>(program.getLoc(),
                                 FlatSymbolRefAttr::get(builder.getContext(), queue),
                                 builder.getI64IntegerAttr(value));
  }
  void createSignal(OpBuilder &builder, int64_t value) {
    builder.create<plan::SignalOp>(program.getLoc(), builder.getI64IntegerAttr(value));
  }

  plan::ProgramOp program;
  ProgramStream tensors;
  StreamSchedule schedule;
  SmallVector<plan::LaunchOp> launches;
  OpBuilder storage;
  std::vector<Value> hostSides; // by tensor; null for what stays
  std::vector<Value> partBytes;
};

struct StreamOffload : impl::StreamOffloadBase<StreamOffload> {
  StreamOffload() = default;
  explicit StreamOffload(OffloadNames names) : names(std::move(names)) {}

  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      mergeInPlace(program);
    applyOffload(getOperation(), names);
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      if (failed(ProgramStreamer(program).run()))
        return signalPassFailure();
  }

  OffloadNames names;
};

} // namespace

std::unique_ptr<Pass> createStreamOffload() { return std::make_unique<StreamOffload>(); }
std::unique_ptr<Pass> createStreamOffload(OffloadNames names) {
  return std::make_unique<StreamOffload>(std::move(names));
}
} // namespace sluice
