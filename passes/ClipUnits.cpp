#include "passes/ClipUnits.h"

#include "passes/ClipGradients.h"

#include "llvm/Support/GlobPattern.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral unitAxesAttr = "graph.unit_axes";

/// Of a product the dimensions it sums over, which lie in `order` as the product sees
/// them.
static std::optional<SmallVector<int64_t>> axesOfUse(OpOperand &use,
                                                     ArrayRef<int64_t> order) {
  if (isa<graph::ConvInputGradOp>(use.getOwner())) { // [in, out, kernel...]
    SmallVector<int64_t> axes{order[0]};
    axes.append(order.begin() + 2, order.end());
    return axes;
  }
  auto product = dyn_cast<graph::ContractOp>(use.getOwner());
  if (!product)
    return std::nullopt;
  SmallVector<int64_t> axes;
  for (int64_t position :
       use.getOperandNumber() == 0 ? product.getLhsContract() : product.getRhsContract())
    axes.push_back(order[position]);
  return axes;
}

/// Vectors are one unit; of all else but products the first dimension counts the units,
/// as the rows of a table do.
static SmallVector<int64_t> axesOf(graph::ParameterOp parameter, func::FuncOp forward) {
  int64_t rank = parameter.getTensorType().getRank();
  auto straight = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (rank < 2)
    return straight;
  std::optional<SmallVector<int64_t>> found;
  auto visit = [&](Value value, ArrayRef<int64_t> order) {
    for (OpOperand &use : value.getUses())
      if (!found)
        found = axesOfUse(use, order);
  };
  forward.walk([&](graph::ReadOp read) {
    if (read.getSymbol() != parameter.getSymName())
      return;
    visit(read.getValue(), straight);
    for (Operation *user : read.getValue().getUsers())
      if (auto transpose = dyn_cast<graph::TransposeOp>(user))
        visit(transpose.getResult(), transpose.getPermutation());
  });
  if (!found)
    found = llvm::to_vector(llvm::seq<int64_t>(1, rank));
  llvm::sort(*found);
  return *found;
}

LogicalResult markClipUnits(ModuleOp module, const ClipSpec &clip) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  if (clip.kind != "agc" || !forward)
    return success();
  std::vector<llvm::GlobPattern> excluded;
  for (const std::string &text : clip.exclude) {
    auto glob = llvm::GlobPattern::create(text);
    if (!glob)
      return emitError(UnknownLoc::get(module.getContext()))
             << "pattern '" << text
             << "' of 'clip.exclude' is no glob: " << llvm::toString(glob.takeError());
    excluded.push_back(std::move(*glob));
  }
  std::vector<bool> used(excluded.size(), false);
  for (graph::ParameterOp parameter : StateSymbols(module).parameters()) {
    bool isExcluded = false;
    for (auto [i, pattern] : llvm::enumerate(excluded))
      if (pattern.match(modelName(parameter.getSymName())))
        used[i] = isExcluded = true;
    if (!isExcluded)
      parameter->setAttr(
          unitAxesAttr,
          Builder(module.getContext()).getDenseI64ArrayAttr(axesOf(parameter, forward)));
  }
  for (auto [i, pattern] : llvm::enumerate(clip.exclude))
    if (!used[i])
      return emitError(UnknownLoc::get(module.getContext()))
             << "pattern '" << pattern << "' of 'clip.exclude' matches no parameter";
  return success();
}

std::optional<SmallVector<int64_t>> clipUnitAxes(graph::ParameterOp parameter) {
  auto axes = parameter->getAttrOfType<DenseI64ArrayAttr>(unitAxesAttr);
  if (!axes)
    return std::nullopt;
  return SmallVector<int64_t>(axes.asArrayRef());
}

} // namespace sluice
