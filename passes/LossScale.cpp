#include "passes/LossScale.h"

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"

#include <cmath>
#include <limits>
#include <sstream>

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

namespace {

/// "scale/..." is state of the plan's own: unlike "control/..." entries write it and
/// checkpoints hold it.
graph::ParameterOp scaleState(StringRef name, Type element, StateSymbols &state) {
  return state.declare(("scale/" + name).str(), RankedTensorType::get({}, element),
                       "control");
}

graph::ParameterOp scaleValue(const LossScaleSpec &spec, StateSymbols &state,
                              Builder &builder) {
  graph::ParameterOp value = scaleState("value", builder.getF32Type(), state);
  value.setFillAttr(builder.getF64FloatAttr(spec.init));
  return value;
}

/// The power of two nearest to 2^5 / norm (in the logarithm), between the limits; the
/// scale as it is where the norm is 0. Found by bisection of the exponent: exact.
Value adapted(const LossScaleSpec &spec, GraphBuilder &b, Value scale, Value norm) {
  Value wanted = b.div(b.splatLike(norm, 32 * std::sqrt(2.0)), norm);
  wanted = b.make<graph::MaxOp>(wanted, b.splatLike(norm, spec.min));
  wanted = b.make<graph::MinOp>(wanted, b.splatLike(norm, spec.max));
  Value power = b.splatLike(norm, spec.min);
  int range = std::ilogb(spec.max) - std::ilogb(spec.min);
  int bit = 1;
  while (2 * bit <= range)
    bit *= 2;
  for (; range > 0 && bit > 0; bit /= 2) {
    Value larger = b.scale(power, std::ldexp(1.0, bit));
    power = b.select(b.compare(larger, "le", wanted), larger, power);
  }
  return b.select(b.compare(norm, "gt", b.splatLike(norm, 0)), power, scale);
}

/// Writes of buffers, such as running statistics.
std::vector<graph::WriteOp> bufferWrites(func::FuncOp entry) {
  std::vector<graph::WriteOp> writes;
  entry.walk([&](graph::WriteOp write) {
    auto target = SymbolTable::lookupNearestSymbolFrom<graph::ParameterOp>(
        write, write.getSymbolAttr());
    if (target && target.getRole() == "buffer")
      writes.push_back(write);
  });
  return writes;
}

} // namespace

Value readLossScale(const LossScaleSpec &spec, StateSymbols &state, EntryReads &reads,
                    Builder &builder) {
  return spec.isOn() ? reads.read(scaleValue(spec, state, builder)) : Value();
}

Value countNonFinite(GraphBuilder &b, Value gradient) {
  Value wide = b.cast(gradient, b.getF32Type());
  Value infinity = b.splatLike(wide, std::numeric_limits<double>::infinity());
  Value finite = b.compare(b.make<graph::AbsOp>(wide), "lt", infinity);
  return b.sumAll(b.select(finite, b.splatLike(wide, 0), b.splatLike(wide, 1)));
}

void updateLossScale(const LossScaleSpec &spec, StateSymbols &state, EntryReads &reads,
                     OpBuilder &builder, Value finite, Value norm) {
  GraphBuilder b(NameLoc::get(builder.getStringAttr("loss_scale")), builder);
  graph::ParameterOp value = scaleValue(spec, state, builder);
  graph::ParameterOp good = scaleState("good_steps", builder.getI64Type(), state);
  graph::ParameterOp skipped = scaleState("skipped", builder.getI64Type(), state);
  Value scale = reads.read(value), count = reads.read(good), skips = reads.read(skipped);
  Value zero = b.splatLike(count, 0), one = b.splatLike(count, 1);
  Value next = b.add(count, one), grown = scale, fallen = scale;
  if (spec.kind == "dynamic") {
    Value due = b.compare(next, "ge", b.splatLike(next, spec.growthInterval));
    Value doubled = b.make<graph::MinOp>(b.scale(scale, 2), b.splatLike(scale, spec.max));
    grown = b.select(due, doubled, scale);
    next = b.select(due, zero, next);
  }
  if (spec.kind == "adaptive")
    grown = adapted(spec, b, scale, norm);
  if (spec.kind != "static")
    fallen =
        b.make<graph::MaxOp>(b.scale(scale, spec.backoff), b.splatLike(scale, spec.min));
  auto write = [&](graph::ParameterOp target, Value wanted) {
    b.create<graph::WriteOp>(target.getSymName(), wanted);
  };
  write(value, b.select(finite, grown, fallen));
  write(good, b.select(finite, next, zero));
  write(skipped, b.select(finite, skips, b.add(skips, one)));
}

std::string lossScaleText(const LossScaleSpec &spec) {
  std::ostringstream text;
  text.precision(17);
  text << spec.kind << ", " << spec.init;
  if (spec.kind == "dynamic")
    text << " at first, doubled up to " << spec.max << " after " << spec.growthInterval
         << " finite updates in a row";
  if (spec.kind == "adaptive")
    text << " at first, then the power of two nearest to 32 / the largest norm of a "
            "tensor's gradient, from "
         << spec.min << " to " << spec.max;
  text << "; an update with a gradient that is not finite changes no parameter, moment "
          "or statistic";
  if (spec.kind == "static")
    text << " and ends training";
  else
    text << ", multiplies the scale by " << spec.backoff << " and ends training at "
         << spec.min;
  return text.str();
}

void keepBuffers(func::FuncOp entry, EntryReads &reads, OpBuilder &builder,
                 Value finite) {
  StateSymbols state(entry->getParentOfType<ModuleOp>());
  for (graph::WriteOp write : bufferWrites(entry)) {
    GraphBuilder b(write.getLoc(), builder);
    Value old = reads.read(state.lookup(write.getSymbol()));
    Value wanted = write.getValue();
    Value kept = b.select(b.broadcastLike(finite, wanted), wanted, old);
    b.create<graph::WriteOp>(write.getSymbol(), kept);
    write.erase();
  }
}

static graph::ParameterOp restoreOf(graph::ParameterOp buffer, StateSymbols &state) {
  return state.declare(("restore/" + modelName(buffer.getSymName())).str(),
                       buffer.getTensorType(), "accumulator");
}

std::vector<graph::ParameterOp> saveBuffers(func::FuncOp micro, StateSymbols &state,
                                            OpBuilder &builder) {
  EntryReads reads(micro, state);
  std::vector<graph::ParameterOp> buffers;
  for (graph::WriteOp write : bufferWrites(micro)) {
    graph::ParameterOp buffer = state.lookup(write.getSymbol());
    graph::ParameterOp saved = restoreOf(buffer, state);
    GraphBuilder b(write.getLoc(), builder);
    Value done = reads.control("control/pending", builder.getI64Type());
    Value old = reads.read(buffer);
    Value first = b.broadcastLike(b.compare(done, "eq", b.splatLike(done, 0)), old);
    b.create<graph::WriteOp>(saved.getSymName(), b.select(first, old, reads.read(saved)));
    buffers.push_back(buffer);
  }
  return buffers;
}

void restoreBuffers(ArrayRef<graph::ParameterOp> buffers, StateSymbols &state,
                    EntryReads &reads, OpBuilder &builder, Value finite) {
  for (graph::ParameterOp buffer : buffers) {
    GraphBuilder b(buffer.getLoc(), builder);
    Value now = reads.read(buffer), before = reads.read(restoreOf(buffer, state));
    b.create<graph::WriteOp>(buffer.getSymName(),
                             b.select(b.broadcastLike(finite, now), now, before));
  }
}

} // namespace sluice
