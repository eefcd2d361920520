#include "passes/AddProduct.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral kernelName = "add_product";

Value createAddProduct(graph::GraphBuilder &b, Value lhs, Value rhs, Value sum) {
  Value inputs[] = {lhs, rhs, sum};
  auto region = b.create<graph::RegionOp>(TypeRange(sum.getType()), ValueRange(inputs),
                                          b.getStringAttr(kernelName));
  Block &body = region.getBody().emplaceBlock();
  for (Value input : inputs)
    body.addArgument(input.getType(), b.getLoc());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(&body);
  int64_t rows[] = {0};
  Value product = b.make<graph::ContractOp>(
      body.getArgument(0), body.getArgument(1), ArrayRef<int64_t>(), ArrayRef<int64_t>(),
      ArrayRef<int64_t>(rows), ArrayRef<int64_t>(rows));
  b.create<graph::YieldOp>(ValueRange(b.add(body.getArgument(2), product)));
  return region.getResult(0);
}

graph::ContractOp addedProduct(Operation *op) {
  auto region = dyn_cast<graph::RegionOp>(op);
  if (!region || region.getKernel() != kernelName)
    return nullptr;
  return *region.getBody().front().getOps<graph::ContractOp>().begin();
}

} // namespace sluice
