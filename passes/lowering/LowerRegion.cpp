// Regions become generated kernels; equal ones are generated once. New values of state
// that are computed element by element share a kernel whatever their shapes.

#include "passes/AddProduct.h"
#include "passes/CodedProducts.h"
#include "passes/LaunchCosts.h"
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
             graph::ConcatOp, graph::SliceOp, graph::CastOp>(op))
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

/// "param/NAME" is NAME's, "opt/NAME/m" and "master/NAME/low" too.
struct StateName {
  StringRef kind, tensor, moment;
};
StateName nameOf(plan::StateBufferOp state) {
  auto [kind, tensor] = state.getSymbol().split('/');
  StringRef moment;
  if (kind == "opt" || (kind == "master" && tensor.ends_with("/low")))
    std::tie(tensor, moment) = tensor.rsplit('/');
  return {kind, tensor, moment};
}

/// Where each result goes, if all of them are state.
SmallVector<StateName> updatedState(graph::RegionOp op, ProgramBuilder &builder) {
  SmallVector<StateName> names;
  for (Value output : op.getOutputs()) {
    Value target = builder.find(output);
    auto state = target ? target.getDefiningOp<plan::StateBufferOp>() : nullptr;
    if (!state)
      return {};
    names.push_back(nameOf(state));
  }
  return names;
}

/// The parameter before its moments, and those in the order of their names: the same for
/// all tensors of an optimizer.
SmallVector<unsigned> outputOrder(ArrayRef<StateName> names) {
  auto order = llvm::to_vector(llvm::seq<unsigned>(0, names.size()));
  llvm::sort(order, [&](unsigned a, unsigned b) {
    return std::tuple(names[b].kind, names[a].moment, a) <
           std::tuple(names[a].kind, names[b].moment, b);
  });
  return order;
}

std::string tensorNames(ArrayRef<StateName> names) {
  llvm::SetVector<StringRef> tensors;
  for (const StateName &name : names)
    tensors.insert(name.tensor);
  return llvm::join(tensors, "+");
}

/// The launch of a kernel that does not depend on the tensor's shape.
void lowerUpdate(graph::RegionOp op, ArrayRef<StateName> names, int64_t elements,
                 ProgramBuilder &builder) {
  ElasticForm form;
  StageSpec stage;
  stage.kernel = builder.symbols.elastic(op, outputOrder(names), form);
  for (unsigned input : form.inputs)
    stage.ins.push_back(builder.bufferOf(op.getInputs()[input]));
  for (unsigned output : form.outputs)
    stage.outs.push_back(builder.destination(op.getResult(output)));
  stage.params = {elements};
  int64_t units = elasticUnits(elements);
  builder.launch(op,
                 {regionLabel(op), units, elasticChunk(elements, units), regionFlops(op),
                  tensorNames(names)},
                 stage);
}

} // namespace

LogicalResult lowerRegion(graph::RegionOp op, ProgramBuilder &builder) {
  if (addedProduct(op))
    return lowerAddProduct(op, builder);
  if (codedProduct(op))
    return lowerCodedProduct(op, builder);
  SmallVector<StateName> names = updatedState(op, builder);
  if (std::optional<int64_t> elements =
          names.empty() ? std::nullopt : elasticElements(op)) {
    lowerUpdate(op, names, *elements, builder);
    return success();
  }
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
  builder.launch(op,
                 {regionLabel(op),
                  domain->units,
                  domain->chunk,
                  regionFlops(op),
                  {},
                  untouchedBytes(op)},
                 stage);
  return success();
}

} // namespace sluice
