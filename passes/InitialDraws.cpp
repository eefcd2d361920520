#include "passes/InitialDraws.h"
#include "passes/StateSymbols.h"

#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;

namespace sluice {

void setInitialValues(graph::ParameterOp parameter, const std::vector<float> &values) {
  constexpr size_t inlined = 256;
  RankedTensorType type = parameter.getTensorType();
  if (values.size() <= inlined)
    return parameter.setInitAttr(DenseElementsAttr::get(type, ArrayRef<float>(values)));
  parameter.setInitAttr(DenseResourceElementsAttr::get(
      type, modelName(parameter.getSymName()),
      HeapAsmResourceBlob::allocateAndCopyInferAlign(ArrayRef<float>(values))));
}

} // namespace sluice
