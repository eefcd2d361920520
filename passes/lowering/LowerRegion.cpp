// Regions become generated kernels; equal ones are generated once.

#include "passes/RegionDomain.h"
#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// "add+relu+...": what the region computes, without what only shapes or converts.
std::string regionLabel(graph::RegionOp region) {
  llvm::SetVector<StringRef> names;
  for (Operation &op : region.getBody().front().without_terminator())
    if (!isa<graph::BroadcastOp, graph::ReshapeOp, graph::ConstantOp, graph::IotaOp,
             graph::CastOp>(op))
      names.insert(op.getName().stripDialect());
  if (names.empty())
    return "move";
  constexpr size_t shown = 5;
  std::string label = llvm::join(names.getArrayRef().take_front(shown), "+");
  return names.size() > shown ? label + "+..." : label;
}

double regionFlops(graph::RegionOp region) {
  double flops = 0;
  for (Operation &op : region.getBody().front().without_terminator())
    if (auto costed = dyn_cast<graph::Costed>(op))
      flops += costed.flops();
  return flops;
}

} // namespace

LogicalResult lowerRegion(graph::RegionOp op, ProgramBuilder &builder) {
  FailureOr<RegionDomain> domain = analyseRegion(op);
  if (failed(domain))
    return op.emitError("region cannot be one generated kernel");
  StageSpec stage;
  stage.kernel = builder.symbols.generated(op, domain->scratchBytes);
  stage.scratchBytes = domain->scratchBytes;
  for (Value input : op.getInputs())
    stage.ins.push_back(builder.bufferOf(input));
  for (Value output : op.getOutputs())
    stage.outs.push_back(builder.destination(output));
  Block &body = op.getBody().front();
  for (BlockArgument in : body.getArguments())
    for (OpOperand &out : body.getTerminator()->getOpOperands())
      if (canUpdateInPlace(*domain, in, out.get()))
        stage.inPlace.append({in.getArgNumber(), out.getOperandNumber()});
  builder.launch(op, {regionLabel(op), domain->units, domain->chunk, regionFlops(op)},
                 stage);
  return success();
}

} // namespace sluice
