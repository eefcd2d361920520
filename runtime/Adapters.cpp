#include "runtime/Adapters.h"

#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"

#include <cmath>
#include <cstring>
#include <unordered_map>

namespace sluice {

namespace {

struct AdapterShape {
  uint64_t rank = 0, in = 0, out = 0;
};

const flatbuffers::Vector<int64_t> *valueShape(const fbs::StateTensor &tensor) {
  return codedFormat(tensor) ? tensor.value_shape() : tensor.shape();
}

uint64_t elementsOf(const fbs::StateTensor &tensor) {
  if (codedFormat(tensor))
    return static_cast<uint64_t>(matrixOf(valueShapeOf(tensor)).count());
  return tensor.size() / dtypeSize(static_cast<DType>(tensor.dtype()));
}

/// From the shapes of a [rank, in...] and b [out, rank, 1...].
AdapterShape shapeOf(const fbs::StateTensor &a, const fbs::StateTensor &b) {
  AdapterShape shape;
  shape.rank = static_cast<uint64_t>(valueShape(a)->Get(0));
  shape.in = shape.rank > 0 ? elementsOf(a) / shape.rank : 0;
  shape.out = static_cast<uint64_t>(valueShape(b)->Get(0));
  return shape;
}

bool fits(const fbs::StateTensor &base, const fbs::StateTensor &a,
          const fbs::StateTensor &b) {
  for (const fbs::StateTensor *tensor : {&base, &a, &b})
    if ((!codedFormat(*tensor) && !hasForms(static_cast<DType>(tensor->dtype()))) ||
        sizeOf(valueShape(*tensor)) < 2)
      return false;
  AdapterShape shape = shapeOf(a, b);
  // Sizes of state tensors are below 2^46 bytes.
  auto product = [](uint64_t x, uint64_t y) {
    return static_cast<unsigned __int128>(x) * y;
  };
  return product(shape.in, shape.out) == elementsOf(base) &&
         product(shape.out, shape.rank) == elementsOf(b);
}

} // namespace

Status checkAdapters(const fbs::Plan &plan, VisitBudget &budget) {
  if (sizeOf(plan.adapters()) == 0)
    return Status::success();
  std::unordered_map<std::string_view, const fbs::StateTensor *> state;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    state[viewOf(plan.state()->Get(i)->name())] = plan.state()->Get(i);
  std::unordered_map<std::string_view, int> used;
  auto broken = [](const std::string &what) {
    return Status::damaged("plan refused: " + what);
  };
  if (!budget.take(sizeOf(plan.adapters())))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(plan.adapters()); ++i) {
    const fbs::Adapter *adapter = plan.adapters()->Get(i);
    const fbs::StateTensor *tensors[3];
    int next = 0;
    for (const auto *name : {adapter->base(), adapter->a(), adapter->b()}) {
      auto found = state.find(viewOf(name));
      if (found == state.end())
        return broken("adapter " + std::to_string(i) +
                      " names a tensor the state does not have");
      if (used[viewOf(name)]++ > 0)
        return broken("a tensor belongs to two adapters");
      tensors[next++] = found->second;
    }
    if (!fits(*tensors[0], *tensors[1], *tensors[2]) || !std::isfinite(adapter->scale()))
      return broken("adapter " + std::to_string(i) + " does not fit its weight");
  }
  return Status::success();
}

std::vector<MergedWeight> mergeAdapters(const Session &session) {
  std::vector<MergedWeight> merged;
  const fbs::Plan &plan = session.plan().raw();
  for (uint32_t i = 0; i < sizeOf(plan.adapters()); ++i) {
    const fbs::Adapter &adapter = *plan.adapters()->Get(i);
    MergedWeight weight;
    weight.base = viewOf(adapter.base());
    weight.a = viewOf(adapter.a()), weight.b = viewOf(adapter.b());
    auto valuesOf = [&](const std::string &name) {
      const fbs::StateTensor &tensor = *session.plan().state(name);
      if (codedFormat(tensor))
        return decodeState(session, tensor);
      std::vector<float> values(elementsOf(tensor));
      readExact(storedTensor(session, tensor), 0, values);
      return values;
    };
    AdapterShape shape =
        shapeOf(*session.plan().state(weight.a), *session.plan().state(weight.b));
    std::vector<float> base = valuesOf(weight.base), a = valuesOf(weight.a),
                       b = valuesOf(weight.b);
    weight.values.resize(shape.in * shape.out);
    for (uint64_t o = 0; o < shape.out; ++o)
      for (uint64_t n = 0; n < shape.in; ++n) {
        double sum = 0;
        for (uint64_t r = 0; r < shape.rank; ++r)
          sum += double(b[o * shape.rank + r]) * double(a[r * shape.in + n]);
        uint64_t at = adapter.input_first() ? n * shape.out + o : o * shape.in + n;
        weight.values[at] = static_cast<float>(base[at] + adapter.scale() * sum);
      }
    merged.push_back(std::move(weight));
  }
  return merged;
}

} // namespace sluice
