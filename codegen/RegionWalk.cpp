#include "codegen/RegionWalk.h"

#include "codegen/Interleave.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace sluice;

namespace {
constexpr int64_t vectorLanes = LaneBuilder::lanes;
/// A reduction along the last dimension has this many accumulators, taken in turn.
constexpr int64_t turns = 4;
/// Vectors of a long body whose instructions alternate.
constexpr int64_t alternating = 2;

} // namespace

Combine RegionWalk::combineOf(Operation *reduction) {
  StringRef kind = cast<graph::ReduceOp>(reduction).getKind();
  return kind == "sum"   ? Combine::Sum
         : kind == "max" ? Combine::Max
         : kind == "min" ? Combine::Min
                         : Combine::Product;
}

Type RegionWalk::elementOf(Operation *reduction) {
  return graph::tensorType(reduction->getOperand(0)).getElementType();
}

RegionWalk::RegionWalk(LaneBuilder &lanes, const RegionDomain &domain,
                       ArrayRef<Operation *> ops, ValueEmitter &values, Value scratch)
    : lanes(lanes), b(lanes.b), domain(domain), ops(ops), values(values),
      scratch(scratch) {
  for (int pass = 0; pass < domain.passes; ++pass)
    passes.push_back(passTargets(ops, domain, pass));
}

void RegionWalk::emit(Value begin, Value end) {
  values.enterKernel();
  if (domain.kind == WalkKind::Flat)
    emitFlat(begin, end);
  else if (domain.sweepUnits > 0)
    emitSweeps(begin, end);
  else
    emitUnits(begin, end);
}

void RegionWalk::loop(Value from, Value to, int64_t step, Accumulators &carried,
                      LoopBody body) {
  lanes.loop(from, to, step, carried, body);
}

void RegionWalk::emitUnits(Value begin, Value end) {
  Accumulators none;
  loop(begin, end, 1, none, [&](Value unit, Accumulators &) {
    if (domain.kind == WalkKind::Columns)
      return emitStrips(unit, [&] { emitPasses(); });
    stripColumns.assign(1, Value());
    stripLanes.assign(1, vectorLanes);
    values.enterUnit(unit, stripColumns, stripLanes);
    emitPasses();
  });
}

// The last strip of a row may be narrower: it has code of its own.
void RegionWalk::emitStrips(Value unit, llvm::function_ref<void()> body) {
  constexpr int64_t width = RegionDomain::stripColumns;
  int64_t columns = domain.columns(), fullStrips = columns / width,
          rest = columns % width;
  Value strips = lanes.constant(llvm::divideCeil(columns, width));
  Value strip = b.create<arith::RemUIOp>(unit, strips);
  Value first = b.create<arith::MulIOp>(strip, lanes.constant(width));
  auto emitStrip = [&](int64_t count) {
    stripColumns.clear();
    stripLanes.clear();
    for (int64_t offset = 0; offset < count; offset += vectorLanes) {
      stripColumns.push_back(b.create<arith::AddIOp>(first, lanes.constant(offset)));
      stripLanes.push_back(std::min(vectorLanes, count - offset));
    }
    values.enterUnit(unit, stripColumns, stripLanes);
    body();
  };
  if (rest == 0)
    return emitStrip(width);
  if (fullStrips == 0)
    return emitStrip(rest);
  Value isFull = b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, strip,
                                         lanes.constant(fullStrips));
  auto choice = b.create<scf::IfOp>(isFull, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(choice.thenBlock()->getTerminator());
  emitStrip(width);
  b.setInsertionPoint(choice.elseBlock()->getTerminator());
  emitStrip(rest);
}

void RegionWalk::emitPasses() {
  for (currentPass = 0; currentPass < domain.passes; ++currentPass) {
    const Pass &pass = passes[currentPass];
    values.setPass(currentPass);
    if (!pass.reductions.empty() || !pass.outputs.empty()) {
      if (domain.kind == WalkKind::Columns)
        emitColumnPass(pass);
      else
        emitRowPass(pass);
    }
    values.finishPass(currentPass);
  }
  values.storeUnitOutputs();
}

RegionWalk::Accumulators RegionWalk::neutral(const Pass &pass, int64_t copies) {
  Accumulators result;
  for (Operation *reduction : pass.reductions)
    result.append(copies, lanes.neutral(combineOf(reduction), elementOf(reduction)));
  return result;
}

// Everything a point reads is read before it writes: an output may have an input's
// address.
void RegionWalk::emitPoint(const Pass &pass, Point &point,
                           MutableArrayRef<Value> accumulators) {
  for (auto [reduction, accumulator] : llvm::zip_equal(pass.reductions, accumulators)) {
    Combine kind = combineOf(reduction);
    Value value = values.operand(reduction->getOpOperand(0), point);
    if (point.lanes < vectorLanes)
      value = b.create<arith::SelectOp>(lanes.mask(point.lanes), value,
                                        lanes.neutral(kind, elementOf(reduction)));
    accumulator = lanes.combine(kind, accumulator, value);
  }
  values.store(pass.outputs, point);
}

/// Vectors per turn of the loop: short bodies are repeated; of longer ones two alternate,
/// which are independent where one is a chain; random numbers have parallelism of their
/// own.
int64_t RegionWalk::unrolling() const {
  int64_t cost = 0;
  for (Operation *op : ops)
    if (domain.values.find(op->getResult(0))->second.inner)
      cost += isa<graph::RandomUniformOp>(op) ? 100 : isExpensive(op) ? 8 : 1;
  return cost <= 12 ? turns : cost < 100 ? alternating : 1;
}

/// The vectors [0, count) of one turn.
void RegionWalk::repeat(int64_t count, llvm::function_ref<void(int64_t)> emitVector) {
  InterleavedCopies copies(b);
  for (int64_t i = 0; i < count; ++i) {
    copies.begin();
    emitVector(i);
  }
  if (count <= alternating)
    copies.finish();
}

// Rows and Channels: vector j of a row goes to accumulator j mod 4; each row of a channel
// starts at 0 again.
void RegionWalk::emitRowPass(const Pass &pass) {
  Accumulators accumulators = neutral(pass, turns);
  if (domain.kind == WalkKind::Channels) {
    loop(lanes.constant(0), lanes.constant(domain.dims[domain.rowDim]), 1, accumulators,
         [&](Value row, Accumulators &carried) { walkColumns(pass, row, carried); });
  } else {
    walkColumns(pass, Value(), accumulators);
  }
  for (auto [i, reduction] : llvm::enumerate(pass.reductions)) {
    auto own = ArrayRef<Value>(accumulators).slice(i * turns, turns);
    values.setReduced(reduction->getResult(0),
                      lanes.combineAll(combineOf(reduction), own));
  }
}

void RegionWalk::walkColumns(const Pass &pass, Value row, Accumulators &accumulators) {
  size_t reductions = pass.reductions.size();
  bool prefetches =
      domain.kind == WalkKind::Rows && domain.passes > 1 && currentPass == 1;
  auto emitVector = [&](Value column, int64_t count, int64_t turn, Accumulators &all) {
    Point point{row, column, count};
    if (prefetches)
      values.prefetch(point, domain.columns());
    Accumulators own;
    for (size_t i = 0; i < reductions; ++i)
      own.push_back(all[i * turns + turn]);
    emitPoint(pass, point, own);
    for (size_t i = 0; i < reductions; ++i)
      all[i * turns + turn] = own[i];
  };
  int64_t columns = domain.columns(), unroll = unrolling();
  int64_t step = unroll * vectorLanes, main = columns / step * step;
  auto rotate = [&](Accumulators &all, int64_t by) {
    for (size_t i = 0; i < reductions; ++i) {
      auto own = all.begin() + i * turns;
      std::rotate(own, own + by, own + turns);
    }
  };
  if (main > 0)
    loop(lanes.constant(0), lanes.constant(main), step, accumulators,
         [&](Value column, Accumulators &carried) {
           repeat(unroll, [&](int64_t i) {
             emitVector(b.create<arith::AddIOp>(column, lanes.constant(i * vectorLanes)),
                        vectorLanes, i, carried);
           });
           rotate(carried, unroll % turns); // the next turn's accumulator comes first
         });
  rotate(accumulators, (turns - main / vectorLanes % turns) % turns);
  for (int64_t column = main; column < columns; column += vectorLanes)
    emitVector(lanes.constant(column), std::min(vectorLanes, columns - column),
               column / vectorLanes % turns, accumulators);
}

// Blocks of rows are added up on their own, then to the total in order.
void RegionWalk::emitColumnPass(const Pass &pass) {
  int64_t rows = domain.dims[domain.rowDim];
  Accumulators totals = neutral(pass, values.vectorsPerUnit());
  if (pass.reductions.empty()) {
    walkRows(pass, lanes.constant(0), lanes.constant(rows), totals);
    return;
  }
  loop(lanes.constant(0), lanes.constant(rows), RegionDomain::blockRows, totals,
       [&](Value from, Accumulators &carried) {
         Value to = b.create<arith::MinSIOp>(
             b.create<arith::AddIOp>(from, lanes.constant(RegionDomain::blockRows)),
             lanes.constant(rows));
         Accumulators block = neutral(pass, values.vectorsPerUnit());
         walkRows(pass, from, to, block);
         for (auto [i, value] : llvm::enumerate(block)) {
           Operation *reduction = pass.reductions[i / values.vectorsPerUnit()];
           carried[i] = lanes.combine(combineOf(reduction), carried[i], value);
         }
       });
  for (auto [i, reduction] : llvm::enumerate(pass.reductions))
    values.setReduced(reduction->getResult(0),
                      ArrayRef<Value>(totals).slice(i * values.vectorsPerUnit(),
                                                    values.vectorsPerUnit()));
}

void RegionWalk::walkRows(const Pass &pass, Value from, Value to,
                          Accumulators &accumulators) {
  int vectors = values.vectorsPerUnit();
  int64_t unroll = unrolling();
  size_t reductions = pass.reductions.size();
  loop(from, to, 1, accumulators, [&](Value row, Accumulators &carried) {
    auto emitVector = [&](int vector) {
      Point point{row, stripColumns[vector], stripLanes[vector], vector};
      Accumulators own;
      for (size_t i = 0; i < reductions; ++i)
        own.push_back(carried[i * vectors + vector]);
      emitPoint(pass, point, own);
      for (size_t i = 0; i < reductions; ++i)
        carried[i * vectors + vector] = own[i];
    };
    int together = static_cast<int>(std::min<int64_t>(unroll, vectors));
    for (int first = 0; first < vectors; first += together)
      repeat(std::min(together, vectors - first),
             [&](int64_t i) { emitVector(first + i); });
  });
}

// One loop through all units of the chunk; what is left of the last one is unrolled.
void RegionWalk::emitFlat(Value begin, Value end) {
  const Pass &pass = passes.front();
  int64_t size = domain.columns(), unroll = unrolling();
  int64_t step = unroll * vectorLanes, main = size / step * step;
  Value unitSize = lanes.constant(RegionDomain::flatUnit);
  Value from = b.create<arith::MulIOp>(begin, unitSize);
  Value to = b.create<arith::MulIOp>(end, unitSize);
  auto emitVector = [&](Value column, int64_t count) {
    Point point{Value(), column, count};
    emitPoint(pass, point, {});
  };
  Accumulators none;
  Value mainEnd = b.create<arith::MinSIOp>(to, lanes.constant(main));
  loop(from, mainEnd, step, none, [&](Value column, Accumulators &) {
    repeat(unroll, [&](int64_t i) {
      emitVector(b.create<arith::AddIOp>(column, lanes.constant(i * vectorLanes)),
                 vectorLanes);
    });
  });
  if (main == size)
    return;
  Value isLast =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::sge, to, lanes.constant(size));
  auto tail = b.create<scf::IfOp>(isLast, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(tail.thenBlock()->getTerminator());
  for (int64_t column = main; column < size; column += vectorLanes)
    emitVector(lanes.constant(column), std::min(vectorLanes, size - column));
}

void RegionWalk::emitElastic(Value begin, Value end, Value elements) {
  values.enterKernel();
  Value unitSize = lanes.constant(RegionDomain::flatUnit);
  Value from = b.create<arith::MulIOp>(begin, unitSize);
  Value to = b.create<arith::MinSIOp>(b.create<arith::MulIOp>(end, unitSize), elements);
  emitRun(from, to);
}

void RegionWalk::emitTiles(Value begin, Value end, unsigned tiled,
                           ArrayRef<Value> params) {
  values.enterKernel();
  Value rows = params[1], cols = params[2], unitRows = params[3], unitCols = params[4];
  auto mul = [&](Value x, Value y) { return b.create<arith::MulIOp>(x, y).getResult(); };
  auto add = [&](Value x, Value y) { return b.create<arith::AddIOp>(x, y).getResult(); };
  auto least = [&](Value x, Value y) {
    return b.create<arith::MinSIOp>(x, y).getResult();
  };
  Value colBlocks = b.create<arith::DivSIOp>(
      b.create<arith::SubIOp>(add(cols, unitCols), lanes.constant(1)), unitCols);
  // Whole rows lie one behind the other: a tile of them is a single run.
  Value whole = b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, unitCols, cols);
  Accumulators none;
  loop(begin, end, 1, none, [&](Value unit, Accumulators &) {
    Value row = mul(b.create<arith::DivSIOp>(unit, colBlocks), unitRows);
    Value col = mul(b.create<arith::RemSIOp>(unit, colBlocks), unitCols);
    Value height = b.create<arith::SubIOp>(least(add(row, unitRows), rows), row);
    Value width = b.create<arith::SubIOp>(least(add(col, unitCols), cols), col);
    Value length = b.create<arith::SelectOp>(whole, mul(height, cols), width);
    Value runs = b.create<arith::SelectOp>(whole, lanes.constant(1), height);
    Value tile = mul(unit, mul(unitRows, unitCols));
    loop(lanes.constant(0), runs, 1, none, [&](Value run, Accumulators &) {
      Value from = add(mul(add(row, run), cols), col);
      Value inTile = add(tile, mul(run, unitCols));
      values.shiftInput(tiled, b.create<arith::SubIOp>(inTile, from));
      emitRun(from, add(from, length));
    });
  });
}

// What is left is less than a turn of the loop: whole vectors, then one whose lanes are
// known only when it runs.
void RegionWalk::emitRun(Value from, Value to) {
  const Pass &pass = passes.front();
  int64_t unroll = unrolling();
  auto emitVector = [&](Value column, Value mask) {
    Point point{Value(), column, vectorLanes};
    point.mask = mask;
    emitPoint(pass, point, {});
  };
  Value done = from;
  for (int64_t vectors = unroll;; vectors = 1) {
    Value step = lanes.constant(vectors * vectorLanes);
    Value left = b.create<arith::SubIOp>(to, done);
    Value stop = b.create<arith::AddIOp>(
        done, b.create<arith::MulIOp>(b.create<arith::DivSIOp>(left, step), step));
    Accumulators none;
    loop(done, stop, vectors * vectorLanes, none, [&](Value column, Accumulators &) {
      repeat(vectors, [&](int64_t i) {
        emitVector(b.create<arith::AddIOp>(column, lanes.constant(i * vectorLanes)), {});
      });
    });
    done = stop;
    if (vectors == 1)
      break;
  }
  Value left = b.create<arith::SubIOp>(to, done);
  Value some =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::sgt, left, lanes.constant(0));
  auto tail = b.create<scf::IfOp>(some, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(tail.thenBlock()->getTerminator());
  emitVector(done, lanes.mask(left));
}
