// Regions made at random: whatever the analysis accepts must compute what the interpreter
// does.
#include "passes/RegionDomain.h"
#include "tests/codegen/RegionCase.h"

#include <random>

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
/// Grows a region over one domain: broadcasts, bounded arithmetic, reductions of one set
/// of dimensions.
class RegionMaker {
public:
  explicit RegionMaker(unsigned seed) : random(seed) {
    static constexpr int64_t sizes[] = {1, 2, 3, 5, 16, 17, 33, 64, 70};
    int64_t elements = 1;
    for (int64_t rank = 1 + pick(4); rank > 0; --rank) {
      int64_t size = sizes[pick(std::size(sizes))];
      if (elements * size > 20000)
        size = 2;
      elements *= size;
      shape.push_back(size);
    }
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (pick(2))
        axes.push_back(axis);
    for (int64_t count = 1 + pick(4); count > 0; --count)
      inputs.push_back(uniform(someShape(), static_cast<unsigned>(random())));
  }

  Values build(GraphBuilder &b, ArrayRef<Value> arguments) {
    Values pool(arguments);
    // One value has the whole domain.
    pool.push_back(b.broadcast(pool[0], shape));
    for (int64_t steps = 2 + pick(10); steps > 0; --steps)
      pool.push_back(step(b, pool));
    Values outputs;
    for (Value value : pool)
      if (value.use_empty() && !isa<BlockArgument>(value))
        outputs.push_back(value);
    return outputs;
  }

  std::vector<HostTensor> inputs;

private:
  size_t pick(size_t count) { return random() % count; }

  Shape someShape() {
    Shape result = shape;
    for (int64_t &size : result)
      if (pick(3) == 0)
        size = 1;
    return result;
  }

  Value step(GraphBuilder &b, Values &pool) {
    Value x = pool[pick(pool.size())];
    switch (pick(8)) {
    case 0:
      return b.make<graph::TanhOp>(x);
    case 1:
      return b.make<graph::ReluOp>(b.neg(x));
    case 2:
      return b.scale(b.exp(b.scale(b.make<graph::TanhOp>(x), 0.5)), 0.5);
    case 3:
      if (!axes.empty()) {
        const char *kinds[] = {"sum", "max", "min"};
        StringRef kind = kinds[pick(3)];
        Value y = b.reduce(b.broadcast(x, shape), kind, axes, /*keep=*/true);
        return kind == "sum" ? b.make<graph::TanhOp>(b.scale(y, 0.01)) : y;
      }
      return b.broadcast(x, shape);
    case 4:
      return b.broadcast(x, shape);
    case 5: {
      Value row = b.cast(b.make<graph::IotaOp>(ArrayRef<int64_t>(shape),
                                               static_cast<int64_t>(pick(shape.size()))),
                         b.getF32Type());
      return b.mul(b.scale(row, 0.01), b.broadcast(x, shape));
    }
    default: {
      Value y = pool[pick(pool.size())];
      Shape common(shape.size());
      for (size_t i = 0; i < common.size(); ++i)
        common[i] = std::max(graph::tensorType(x).getDimSize(i),
                             graph::tensorType(y).getDimSize(i));
      Value a = b.broadcast(x, common), c = b.broadcast(y, common);
      return b.scale(pick(2) ? b.add(a, c) : b.mul(a, c), 0.5);
    }
    }
  }

  std::mt19937 random;
  Shape shape, axes;
};
} // namespace

TEST(RandomRegion, ComputesWhatTheInterpreterDoes) {
  int accepted = 0;
  std::map<WalkKind, int> kinds;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RegionMaker maker(seed);
    RegionCase region([&](GraphBuilder &b, auto x) { return maker.build(b, x); },
                      maker.inputs);
    FailureOr<RegionDomain> domain = analyseRegion(region.region());
    if (failed(domain))
      continue;
    ++accepted;
    if (kinds[domain->kind]++ >= 25)
      continue;
    checkRegion(region, 1e-4);
    if (HasFailure()) {
      region.module->dump();
      return;
    }
  }
  EXPECT_GT(accepted, 150);
  for (WalkKind kind :
       {WalkKind::Flat, WalkKind::Rows, WalkKind::Columns, WalkKind::Channels})
    EXPECT_GT(kinds[kind], 8);
}
