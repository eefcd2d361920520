// Fused attention and its gradient. Splits into heads and parts of a joint projection are
// strides.

#include "ir/graph/Attention.h"
#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/lowering/Lowerings.h"
#include "passes/lowering/StridedView.h"

using namespace mlir;

namespace sluice {
namespace {

bool hasUnitRows(Value value, const StridedView &view) {
  return view.strides[3] == 1 || graph::tensorType(value).getDimSize(3) == 1;
}

StridedView readRows(Value value, const ProgramBuilder &builder) {
  StridedView view = readView(value, builder);
  return hasUnitRows(value, view) ? view : contiguousView(value);
}
StridedView writeRows(Value value, const ProgramBuilder &builder,
                      Operation *user = nullptr) {
  StridedView view = writeView(value, builder, user);
  return hasUnitRows(value, view) ? view : contiguousView(value);
}

/// The one use of an output beside those of its gradients; null where there are more.
Operation *useBesideGradients(Value out) {
  Operation *found = nullptr;
  for (OpOperand &use : out.getUses()) {
    auto grad = dyn_cast<graph::AttentionGradOp>(use.getOwner());
    if (grad && use.get() == grad.getOut() && grad.getDout() != out)
      continue;
    if (found)
      return nullptr;
    found = use.getOwner();
  }
  return found;
}

int64_t bitsOf(double x) {
  return int64_t(llvm::bit_cast<uint32_t>(static_cast<float>(x)));
}

/// The same of both operations, views of q, k, v and out apart.
template <class Op> AttentionParams paramsOf(Op op) {
  graph::AttentionSizes s(op);
  AttentionParams p;
  p.batch = s.batch, p.heads = s.heads, p.kvHeads = s.kvHeads;
  p.queries = s.queries, p.keys = s.keys;
  p.depth = s.depth, p.valueDepth = s.valueDepth;
  p.causal = op.getCausal().has_value(), p.offset = op.getCausal().value_or(0);
  p.scaleBits = bitsOf(op.getScale().convertToDouble());
  p.masked = bool(op.getMask());
  p.dropout = !op.getRandom().empty();
  p.ratioBits = bitsOf(op.getRatio().convertToDouble());
  p.id = op.getId(), p.samples = op.getSamples();
  p.type = *formatOf(graph::tensorType(op.getQ()).getElementType());
  p.outType = *formatOf(graph::tensorType(op.getOut()).getElementType());
  return p;
}

/// Batch, head and row.
void setStrides(const StridedView &view, int64_t &batch, int64_t &head, int64_t &row) {
  batch = view.strides[0], head = view.strides[1], row = view.strides[2];
}

class AttentionLowering {
public:
  AttentionLowering(Operation *op, ProgramBuilder &builder) : op(op), builder(builder) {}

  Value read(Value value, int64_t &batch, int64_t &head, int64_t &row) {
    StridedView view = readRows(value, builder);
    setStrides(view, batch, head, row);
    sources.push_back(view);
    return bytesFrom(view, builder.bufferOf(view.root), builder);
  }
  /// Results are placed before any of them is bound: two may lie in one concatenation.
  void write(ValueRange results) {
    for (Value result : results)
      views.push_back(writeRows(result, builder));
    for (auto [result, view] : llvm::zip_equal(results, views)) {
      outs.push_back(bytesFrom(view, builder.destination(view.root), builder));
      if (view.root != result)
        builder.markWritten(result);
    }
  }
  /// Heads that are joined are written side by side, where the gradient reads them too.
  void writeOutput(Value out) {
    Operation *user = useBesideGradients(out);
    StridedView view = user ? writeRows(out, builder, user) : contiguousView(out);
    views.push_back(view);
    outs.push_back(bytesFrom(view, builder.destination(view.root), builder));
    if (view.root == out)
      return;
    builder.markWritten(out);
    builder.place(out, view);
  }
  /// The mask and the random key, as far as there are any.
  template <class Op> void readRest(Op attention, AttentionParams &p) {
    if (Value mask = attention.getMask()) {
      SmallVector<int64_t> strides = contiguousView(mask).strides;
      for (int64_t d = 0; d < 4; ++d)
        if (graph::tensorType(mask).getDimSize(d) == 1)
          strides[d] = 0;
      p.maskBatch = strides[0], p.maskHead = strides[1];
      p.maskRow = strides[2], p.maskCol = strides[3];
      ins.push_back(builder.bufferOf(mask));
    }
    for (Value number : attention.getRandom())
      ins.push_back(builder.bufferOf(number));
  }
  /// The kernels read a block of queries, and keys and values of a head, before they
  /// write the block or the head: a result of the same places may take the bytes.
  void mayReplace(int64_t in, int64_t out) {
    const StridedView &from = sources[in], &to = views[out];
    auto source = graph::tensorType(from.root), result = graph::tensorType(to.root);
    if (from.offset == to.offset && from.strides == to.strides &&
        source.getElementType() == result.getElementType())
      inPlace.append({in, out});
  }
  void launch(StringRef kernel, int64_t units, int64_t scratch,
              std::vector<int64_t> params) {
    LaunchSpec spec{op->getName().stripDialect().str(), units, 1,
                    cast<graph::Costed>(op).flops()};
    builder.launch(op, spec,
                   StageSpec{builder.symbols.builtin(kernel), ins, outs, scratch,
                             std::move(params), inPlace});
  }

  SmallVector<Value> ins, outs;
  SmallVector<StridedView> sources, views; // of q, k, v and more; of results
  SmallVector<int64_t> inPlace;

private:
  Operation *op;
  ProgramBuilder &builder;
};

/// The mask is f32 always, the random key i64.
LogicalResult checkFormats(Operation *op, Value mask, Value stats, unsigned formats) {
  for (ValueRange values :
       {ValueRange(op->getOperands().take_front(formats)), ValueRange(op->getResults())})
    for (Value value : values)
      if (!formatOf(graph::tensorType(value).getElementType()))
        return op->emitError("element type ")
               << graph::tensorType(value).getElementType() << " of '" << op->getName()
               << "' has no kernel yet; use f32, bf16 or f16";
  if (failed(expectF32(op, stats)))
    return failure();
  return mask ? expectF32(op, mask) : success();
}

} // namespace

std::optional<KernelWork> attentionWork(Operation *op) {
  if (auto attention = dyn_cast<graph::AttentionOp>(op))
    return attentionWork(paramsOf(attention), 2);
  if (auto grad = dyn_cast<graph::AttentionGradOp>(op))
    return attentionWork(paramsOf(grad), 5);
  return std::nullopt;
}

LogicalResult lowerAttention(graph::AttentionOp op, ProgramBuilder &builder) {
  if (failed(checkFormats(op, op.getMask(), op.getStats(), 3)))
    return failure();
  AttentionParams p = paramsOf(op);
  AttentionLowering lowering(op, builder);
  lowering.ins = {lowering.read(op.getQ(), p.qBatch, p.qHead, p.qRow),
                  lowering.read(op.getK(), p.kBatch, p.kHead, p.kRow),
                  lowering.read(op.getV(), p.vBatch, p.vHead, p.vRow)};
  lowering.readRest(op, p);
  lowering.writeOutput(op.getOut());
  setStrides(lowering.views[0], p.outBatch, p.outHead, p.outRow);
  lowering.mayReplace(0, 0);
  lowering.outs.push_back(builder.destination(op.getStats()));
  if (graph::tensorType(op.getOut()).getNumElements() > 0)
    lowering.launch("attention_f32", attentionUnits(p), attentionWorkspace(p),
                    packParams(p));
  return success();
}

LogicalResult lowerAttentionGrad(graph::AttentionGradOp op, ProgramBuilder &builder) {
  if (failed(checkFormats(op, op.getMask(), op.getStats(), 5)))
    return failure();
  AttentionGradParams g;
  AttentionParams &p = g.of = paramsOf(op);
  AttentionLowering lowering(op, builder);
  lowering.ins = {lowering.read(op.getQ(), p.qBatch, p.qHead, p.qRow),
                  lowering.read(op.getK(), p.kBatch, p.kHead, p.kRow),
                  lowering.read(op.getV(), p.vBatch, p.vHead, p.vRow),
                  lowering.read(op.getDout(), g.doBatch, g.doHead, g.doRow),
                  lowering.read(op.getOut(), p.outBatch, p.outHead, p.outRow),
                  builder.bufferOf(op.getStats())};
  lowering.readRest(op, p);
  lowering.write(op.getResults());
  setStrides(lowering.views[0], g.dqBatch, g.dqHead, g.dqRow);
  setStrides(lowering.views[1], g.dkBatch, g.dkHead, g.dkRow);
  setStrides(lowering.views[2], g.dvBatch, g.dvHead, g.dvRow);
  for (int64_t i = 0; i < 3; ++i)
    lowering.mayReplace(i, i);
  g.doType = *formatOf(graph::tensorType(op.getDout()).getElementType());
  g.gradType = *formatOf(graph::tensorType(op.getDq()).getElementType());
  if (graph::tensorType(op.getK()).getNumElements() > 0)
    lowering.launch("attention_grad_f32", attentionGradUnits(g),
                    attentionGradWorkspace(g), packParams(g));
  return success();
}

} // namespace sluice
