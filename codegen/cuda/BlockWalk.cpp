#include "codegen/cuda/BlockWalk.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::cuda;

namespace {
constexpr int64_t warp = BlockLayout::warp;
constexpr int64_t allLanes = 0xffffffff;

Combine combineOf(Operation *reduction) {
  StringRef kind = cast<graph::ReduceOp>(reduction).getKind();
  return kind == "sum"   ? Combine::Sum
         : kind == "max" ? Combine::Max
         : kind == "min" ? Combine::Min
                         : Combine::Product;
}

template <typename Register> Value readRegister(ImplicitLocOpBuilder &b) {
  Value narrow = b.create<Register>(b.getI32Type());
  return b.create<arith::ExtUIOp>(b.getI64Type(), narrow);
}
} // namespace

BlockWalk::BlockWalk(const RegionDomain &domain, const BlockLayout &layout,
                     ArrayRef<Operation *> ops, ValueEmitter &values, ValueEmitter &tail,
                     LaneBuilder &lanes, LaneBuilder &single, Value shared)
    : domain(domain), layout(layout), ops(ops), values(values), tail(tail), lanes(lanes),
      single(single), b(lanes.b), shared(shared) {}

Value BlockWalk::less(Value x, Value y) {
  return b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, x, y);
}
Value BlockWalk::add(Value x, Value y) { return b.create<arith::AddIOp>(x, y); }
Value BlockWalk::mul(Value x, int64_t y) {
  return b.create<arith::MulIOp>(x, constant(y));
}
Value BlockWalk::div(Value x, int64_t y) {
  return b.create<arith::DivUIOp>(x, constant(y));
}
Value BlockWalk::rem(Value x, int64_t y) {
  return b.create<arith::RemUIOp>(x, constant(y));
}

void BlockWalk::when(Value condition, llvm::function_ref<void()> body) {
  auto choice = b.create<scf::IfOp>(condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(choice.thenBlock()->getTerminator());
  body();
}

void BlockWalk::loop(Value from, Value to, int64_t step, Accumulators &carried,
                     llvm::function_ref<void(Value, Accumulators &)> body) {
  lanes.loop(from, to, step, carried, body);
}

void BlockWalk::barrier() {
  if (layout.warps() > 1)
    b.create<NVVM::Barrier0Op>();
  else
    b.create<NVVM::SyncWarpOp>(
        b.create<arith::ConstantIntOp>(static_cast<int32_t>(allLanes), 32));
}

Value BlockWalk::keptBase(LaneBuilder &lanes, const BlockLayout &layout, Value shared) {
  if (layout.unitsPerBlock == 1)
    return shared;
  ImplicitLocOpBuilder &b = lanes.b;
  Value thread = readRegister<NVVM::ThreadIdXOp>(b);
  Value unit = b.create<arith::DivUIOp>(thread, lanes.constant(layout.threads));
  Value offset = b.create<arith::MulIOp>(unit, lanes.constant(layout.unitBytes()));
  return lanes.address(shared, offset, b.getI8Type());
}

void BlockWalk::emit() {
  thread = readRegister<NVVM::ThreadIdXOp>(b);
  block = readRegister<NVVM::BlockIdXOp>(b);
  if (domain.kind == WalkKind::Flat)
    return emitFlat();
  Value unit = block;
  inUnit = thread;
  if (layout.unitsPerBlock > 1) {
    unit = add(mul(block, layout.unitsPerBlock), div(thread, layout.threads));
    inUnit = rem(thread, layout.threads);
  }
  values.enterKernel();
  if (domain.units % layout.unitsPerBlock == 0)
    return emitUnit(unit);
  when(less(unit, constant(domain.units)), [&] { emitUnit(unit); });
}

// One vector for each thread; the elements that are no whole vector have one each.
void BlockWalk::emitFlat() {
  PassTargets pass = passTargets(ops, domain, 0);
  int64_t size = domain.columns(), vectors = size / layout.width,
          rest = size % layout.width;
  Value index = add(mul(block, layout.threads), thread);
  auto emitOne = [&](ValueEmitter &emitter, LaneBuilder &builder, Value column) {
    emitter.enterKernel();
    Point point{Value(), column, builder.width};
    emitter.store(pass.outputs, point);
  };
  if (vectors > 0)
    when(less(index, constant(vectors)),
         [&] { emitOne(values, lanes, mul(index, layout.width)); });
  if (rest == 0)
    return;
  Value behind = b.create<arith::SubIOp>(index, constant(vectors));
  Value isTail =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::ult, behind, constant(rest));
  when(isTail,
       [&] { emitOne(tail, single, add(behind, constant(vectors * layout.width))); });
}

void BlockWalk::emitUnit(Value unit) {
  if (domain.kind == WalkKind::Columns) {
    int64_t columns = domain.columns();
    int64_t strips = llvm::divideCeil(columns, RegionDomain::stripColumns);
    Value first = mul(rem(unit, strips), RegionDomain::stripColumns);
    Value offset = mul(rem(inUnit, layout.columnThreads), layout.width);
    Value wanted = add(first, offset);
    isActive = less(wanted, constant(columns));
    // Threads beside the tensor go along in the last column and write nothing.
    column = b.create<arith::MinSIOp>(wanted, constant(columns - layout.width));
    row = div(inUnit, layout.columnThreads);
    values.setStripOffset(offset);
    values.enterUnit(unit, {column}, {layout.width});
  } else {
    values.enterUnit(unit, {Value()}, {layout.width});
  }
  for (int number = 0; number < domain.passes; ++number) {
    PassTargets pass = passTargets(ops, domain, number);
    values.setPass(number);
    if (!pass.reductions.empty() || !pass.outputs.empty())
      emitPass(pass);
    values.finishPass(number);
  }
  storeUnitOutputs();
}

// Everything a point reads is read before it writes: an output may have an input's
// address.
void BlockWalk::emitPoint(const PassTargets &pass, Point &point,
                          MutableArrayRef<Value> accumulators) {
  for (auto [reduction, accumulator] : llvm::zip_equal(pass.reductions, accumulators))
    accumulator = lanes.combine(combineOf(reduction), accumulator,
                                values.operand(reduction->getOpOperand(0), point));
  values.store(pass.outputs, point);
}

void BlockWalk::walk(const PassTargets &pass, Accumulators &accumulators) {
  int64_t columns = domain.columns();
  if (domain.kind == WalkKind::Columns) {
    int64_t rows = domain.dims[domain.rowDim];
    Value to = b.create<arith::SelectOp>(isActive, constant(rows), constant(0));
    return loop(row, to, layout.rowThreads(), accumulators,
                [&](Value index, Accumulators &carried) {
                  Point point{index, column, layout.width};
                  emitPoint(pass, point, carried);
                });
  }
  bool hasRows = domain.kind == WalkKind::Channels;
  int64_t rows = hasRows ? domain.dims[domain.rowDim] : 1;
  int64_t vectors = columns / layout.width;
  loop(inUnit, constant(rows * vectors), layout.threads, accumulators,
       [&](Value index, Accumulators &carried) {
         Value own = hasRows ? rem(index, vectors) : index;
         Point point{hasRows ? div(index, vectors) : Value(), mul(own, layout.width),
                     layout.width};
         emitPoint(pass, point, carried);
       });
}

void BlockWalk::emitPass(const PassTargets &pass) {
  Accumulators accumulators;
  for (Operation *reduction : pass.reductions)
    accumulators.push_back(
        lanes.neutral(combineOf(reduction),
                      graph::tensorType(reduction->getOperand(0)).getElementType()));
  walk(pass, accumulators);
  for (auto [reduction, accumulator] : llvm::zip_equal(pass.reductions, accumulators)) {
    Combine kind = combineOf(reduction);
    if (domain.kind == WalkKind::Columns) {
      values.setReduced(reduction->getResult(0), {joinRows(kind, accumulator)});
      continue;
    }
    Value scalar =
        b.create<vector::ExtractOp>(lanes.combineLanes(kind, accumulator), int64_t{0});
    scalar = joinWarp(kind, scalar);
    if (layout.warps() > 1)
      scalar = joinWarps(kind, scalar);
    values.setReduced(reduction->getResult(0), {lanes.broadcast(scalar)});
  }
}

/// The value of the lane whose number differs in bit `distance`.
Value BlockWalk::moved(Value scalar, int64_t distance) {
  Type type = scalar.getType(), i32 = b.getI32Type();
  auto exchange = [&](Value word) -> Value {
    auto number = [&](int64_t value) -> Value {
      return b.create<arith::ConstantIntOp>(static_cast<int32_t>(value), 32);
    };
    return b.create<NVVM::ShflOp>(word.getType(), number(allLanes), word,
                                  number(distance), number(warp - 1),
                                  NVVM::ShflKind::bfly, UnitAttr());
  };
  if (type.isF32() || type == i32)
    return exchange(scalar);
  if (type.isInteger(1))
    return b.create<arith::TruncIOp>(type,
                                     exchange(b.create<arith::ExtUIOp>(i32, scalar)));
  if (type.isF64()) {
    Value bits = moved(b.create<arith::BitcastOp>(b.getI64Type(), scalar), distance);
    return b.create<arith::BitcastOp>(type, bits);
  }
  Value low = exchange(b.create<arith::TruncIOp>(i32, scalar));
  Value high = exchange(
      b.create<arith::TruncIOp>(i32, b.create<arith::ShRUIOp>(scalar, constant(32))));
  Value upper =
      b.create<arith::ShLIOp>(b.create<arith::ExtUIOp>(type, high), constant(32));
  return b.create<arith::OrIOp>(upper, b.create<arith::ExtUIOp>(type, low));
}

/// All lanes get the result. The lower lane's value comes first: which of two zeros is
/// the maximum is the same in all lanes.
Value BlockWalk::joinWarp(Combine kind, Value scalar) {
  for (int64_t distance = warp / 2; distance > 0; distance /= 2) {
    Value other = moved(scalar, distance), first = scalar, second = other;
    if (kind == Combine::Max || kind == Combine::Min) {
      Value bit = b.create<arith::AndIOp>(inUnit, constant(distance));
      Value isUpper = b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, bit, constant(0));
      first = b.create<arith::SelectOp>(isUpper, other, scalar);
      second = b.create<arith::SelectOp>(isUpper, scalar, other);
    }
    Value joined =
        single.combine(kind, single.broadcast(first), single.broadcast(second));
    scalar = b.create<vector::ExtractOp>(joined, int64_t{0});
  }
  return scalar;
}

/// Where value `index` of the unit's partial results lies.
Value BlockWalk::partial(int64_t index) {
  Value offset = constant(layout.keptBytes + index * 8);
  return lanes.address(shared, offset, b.getI8Type());
}

// Each reduction has places of its own, so one barrier is enough.
Value BlockWalk::joinWarps(Combine kind, Value scalar) {
  Type element = scalar.getType();
  int64_t first = reductionsDone++ * layout.warps();
  Value isFirst =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, rem(inUnit, warp), constant(0));
  when(isFirst, [&] {
    Value slot = lanes.address(partial(first), mul(div(inUnit, warp), 8), b.getI8Type());
    single.storeScalar(single.broadcast(scalar), slot, element);
  });
  barrier();
  SmallVector<Value> parts;
  for (int64_t i = 0; i < layout.warps(); ++i)
    parts.push_back(single.loadSplat(partial(first + i), element));
  while (parts.size() > 1) {
    for (size_t i = 0; i < parts.size() / 2; ++i)
      parts[i] = single.combine(kind, parts[2 * i], parts[2 * i + 1]);
    parts.resize(parts.size() / 2);
  }
  return b.create<vector::ExtractOp>(parts.front(), int64_t{0});
}

Value BlockWalk::joinRows(Combine kind, Value accumulator) {
  Type element = cast<VectorType>(accumulator.getType()).getElementType();
  int64_t vectorBytes = layout.width * LaneBuilder::elementBytes(element);
  int64_t rowBytes = layout.columnThreads * vectorBytes;
  int64_t alignment = std::min<int64_t>(16, vectorBytes);
  Value base = partial(0);
  Value ownColumn = mul(rem(inUnit, layout.columnThreads), vectorBytes);
  auto slot = [&](Value rowNumber) {
    return lanes.address(base, add(mul(rowNumber, rowBytes), ownColumn), b.getI8Type());
  };
  lanes.store(accumulator, slot(row), element, {}, alignment);
  for (int64_t rows = layout.rowThreads() / 2; rows > 0; rows /= 2) {
    barrier();
    when(less(row, constant(rows)), [&] {
      Value other = lanes.load(slot(add(row, constant(rows))), element, {}, alignment);
      Value own = lanes.load(slot(row), element, {}, alignment);
      lanes.store(lanes.combine(kind, own, other), slot(row), element, {}, alignment);
    });
  }
  barrier();
  Value result = lanes.load(slot(constant(0)), element, {}, alignment);
  barrier(); // before the next reduction writes here
  return result;
}

// Other threads may still read what these overwrite.
void BlockWalk::storeUnitOutputs() {
  auto isUnitOutput = [&](Value output) {
    return !(domain.values.find(output)->second.shape & domain.innerDims());
  };
  if (llvm::none_of(domain.outputs, isUnitOutput))
    return;
  barrier();
  Value writes =
      domain.kind == WalkKind::Columns
          ? b.create<arith::AndIOp>(
                 isActive,
                 b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, row, constant(0)))
                .getResult()
          : b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, inUnit, constant(0))
                .getResult();
  when(writes, [&] { values.storeUnitOutputs(); });
}
