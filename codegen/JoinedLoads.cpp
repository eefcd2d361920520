// A concatenation is read from its parts: once per unit a search through the parts' ends
// finds the one that holds the unit's index, and the loops read that one tensor.

#include "codegen/ValueEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace sluice;

void ValueEmitter::choosePieces() {
  joined.clear();
  for (Operation *op : ops) {
    auto concat = dyn_cast<graph::ConcatOp>(op);
    if (!concat)
      continue;
    int dim = domain.leaves.find(&op->getOpOperand(0))->second.window.dim;
    Value index = unitIndex(static_cast<unsigned>(dim));
    SmallVector<Value, 3> piece = choosePiece(op, 0, op->getNumOperands(), index);
    joined[op] = {piece[0], piece[1], piece[2]};
  }
}

/// Buffer, base and row stride of the part among operands [from, to) that holds `index`.
SmallVector<Value, 3> ValueEmitter::choosePiece(Operation *concat, unsigned from,
                                                unsigned to, Value index) {
  const RegionValue &leaf = domain.leaves.find(&concat->getOpOperand(from))->second;
  if (to - from == 1) {
    Access access{leaf.shape, leaf.window};
    int64_t rowStride =
        domain.rowDim < 0 ? 0 : stride(access, static_cast<unsigned>(domain.rowDim));
    unsigned number = inputNumber.find(concat->getOperand(from))->second;
    return {buffers[number], emitUnitBase(access), lanes.constant(rowStride)};
  }
  unsigned middle = (from + to) / 2;
  const DimWindow &second =
      domain.leaves.find(&concat->getOpOperand(middle))->second.window;
  Value isFirst = b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, index,
                                          lanes.constant(-second.start));
  Type types[] = {LLVM::LLVMPointerType::get(b.getContext()), b.getI64Type(),
                  b.getI64Type()};
  auto choice = b.create<scf::IfOp>(TypeRange(types), isFirst, /*addThenBlock=*/true,
                                    /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(choice.thenBlock());
  b.create<scf::YieldOp>(choosePiece(concat, from, middle, index));
  b.setInsertionPointToEnd(choice.elseBlock());
  b.create<scf::YieldOp>(choosePiece(concat, middle, to, index));
  return {choice.getResult(0), choice.getResult(1), choice.getResult(2)};
}

Value ValueEmitter::loadJoined(Operation *concat, Point &point) {
  const Joined &piece = joined.find(concat)->second;
  DimMask shape = domain.leaves.find(&concat->getOpOperand(0))->second.shape;
  Value index = piece.base;
  if (domain.rowDim >= 0 && (shape >> domain.rowDim & 1))
    index = b.create<arith::AddIOp>(index,
                                    b.create<arith::MulIOp>(point.row, piece.rowStride));
  if (shape & domain.lastDim())
    index = b.create<arith::AddIOp>(index, point.column);
  Type element = graph::tensorType(concat->getResult(0)).getElementType();
  return loadElements(lanes.address(piece.buffer, index, element), concat->getResult(0),
                      shape, point);
}
