#include "passes/InitFormulas.h"

#include "ir/TrainingSpec.h"
#include "passes/InitialDraws.h"
#include "passes/StateSymbols.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace sluice {

static Fans fansOfShape(ArrayRef<int64_t> shape) {
  Fans fans{shape[1], shape[0]};
  for (int64_t size : shape.drop_front(2))
    fans.in *= size, fans.out *= size;
  return fans;
}

/// A product says itself which dimensions it sums over; `order` are the parameter's
/// dimensions as the product sees them.
static std::optional<Fans> fansOfProduct(OpOperand &use, ArrayRef<int64_t> shape,
                                         ArrayRef<int64_t> order) {
  auto product = dyn_cast<graph::ContractOp>(use.getOwner());
  if (!product)
    return std::nullopt;
  bool isLhs = use.getOperandNumber() == 0;
  ArrayRef<int64_t> summed = isLhs ? product.getLhsContract() : product.getRhsContract();
  ArrayRef<int64_t> batch = isLhs ? product.getLhsBatch() : product.getRhsBatch();
  Fans fans;
  for (auto [position, dimension] : llvm::enumerate(order)) {
    if (llvm::is_contained(summed, position))
      fans.in *= shape[dimension];
    else if (!llvm::is_contained(batch, position))
      fans.out *= shape[dimension];
  }
  return fans;
}

Fans fansOf(graph::ParameterOp parameter) {
  ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
  auto straight = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  std::optional<Fans> found;
  auto visit = [&](Value value, ArrayRef<int64_t> order) {
    for (OpOperand &use : value.getUses())
      if (!found)
        found = fansOfProduct(use, shape, order);
  };
  parameter->getParentOfType<ModuleOp>().walk([&](graph::ReadOp read) {
    if (read.getSymbol() != parameter.getSymName())
      return;
    visit(read.getValue(), straight);
    for (Operation *user : read.getValue().getUsers())
      if (auto transpose = dyn_cast<graph::TransposeOp>(user))
        visit(transpose.getResult(), transpose.getPermutation());
  });
  return found ? *found : fansOfShape(shape);
}

bool hasFans(const InitRule &rule) {
  StringRef from = rule.from;
  return from.starts_with("kaiming") || from.starts_with("xavier") ||
         from == "orthogonal";
}

static double dot(ArrayRef<double> a, ArrayRef<double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// The Q of a matrix of normal numbers whose R has a positive diagonal: rows, or where
/// there are more of them columns, are orthonormal. Gram and Schmidt, each vector twice.
static std::vector<float> orthogonal(ArrayRef<int64_t> shape, double gain,
                                     const InitialDraws &draws) {
  size_t rows = shape[0], columns = 1;
  for (int64_t size : shape.drop_front())
    columns *= size;
  size_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> all(count * length);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = draws.normal(i);
  auto vector = [&](size_t i) {
    return MutableArrayRef<double>(all.data() + i * length, length);
  };
  for (size_t i = 0; i < count; ++i) {
    for (size_t other = 0; other < 2 * i; ++other) {
      ArrayRef<double> base = vector(other % i);
      double share = dot(vector(i), base);
      for (size_t k = 0; k < length; ++k)
        vector(i)[k] -= share * base[k];
    }
    double norm = std::sqrt(dot(vector(i), vector(i)));
    for (double &x : vector(i))
      x /= norm;
  }
  std::vector<float> values(rows * columns);
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < length; ++k)
      values[rows < columns ? i * columns + k : k * columns + i] =
          static_cast<float>(gain * vector(i)[k]);
  return values;
}

/// Standard deviation of kaiming and xavier.
static double deviationOf(graph::ParameterOp parameter, const InitRule &rule) {
  Fans fans = fansOf(parameter);
  bool isKaiming = StringRef(rule.from).starts_with("kaiming");
  double fan = rule.fanOut ? fans.out : fans.in;
  double count = isKaiming ? fan : 0.5 * static_cast<double>(fans.in + fans.out);
  double gain = rule.gain.value_or(isKaiming ? std::sqrt(2.0) : 1.0);
  return gain / std::sqrt(std::max(count, 1.0));
}

std::vector<float> drawnValues(graph::ParameterOp parameter, const InitRule &rule,
                               uint64_t seed) {
  InitialDraws draws(seed, modelName(parameter.getSymName()));
  RankedTensorType type = parameter.getTensorType();
  if (rule.from == "orthogonal")
    return orthogonal(type.getShape(), rule.gain.value_or(1), draws);
  StringRef from = rule.from;
  bool isCut = from == "trunc_normal";
  bool isNormal = isCut || from == "normal" || from.ends_with("_normal");
  double scale = rule.std;
  if (hasFans(rule))
    scale = deviationOf(parameter, rule) * (isNormal ? 1 : std::sqrt(3.0));
  std::vector<float> values(type.getNumElements());
  for (size_t i = 0; i < values.size(); ++i) {
    double value = scale * (isNormal ? draws.normal(i) : 2 * draws.uniform(i) - 1);
    // What falls outside is drawn again, with a number of its own.
    for (uint64_t again = 1; isCut && std::abs(value) > rule.bound; ++again)
      value = again < 1000 ? scale * draws.normal(i + (again << 48)) : 0;
    values[i] = static_cast<float>(value);
  }
  return values;
}

} // namespace sluice
