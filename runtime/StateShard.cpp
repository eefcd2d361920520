#include "runtime/StateShard.h"

#include "runtime/PlanCheck.h"

namespace sluice {

std::vector<int64_t> wholeShapeOf(const fbs::StateTensor &tensor) {
  const auto *shape = wholeShape(tensor);
  return shape ? std::vector<int64_t>(shape->begin(), shape->end())
               : std::vector<int64_t>();
}

uint64_t wholeElements(const fbs::StateTensor &tensor) {
  if (!isShard(tensor))
    return tensor.size() / dtypeSize(static_cast<DType>(tensor.dtype()));
  uint64_t elements = 1; // the plan was checked: nothing overflows
  for (int64_t size : wholeShapeOf(tensor))
    elements *= static_cast<uint64_t>(size);
  return elements;
}

ElementRange ownElements(const Plan &plan, const fbs::StateTensor &tensor, int rank) {
  uint64_t elements = wholeElements(tensor);
  if (!isShard(tensor))
    return {0, elements};
  uint64_t rows = static_cast<uint64_t>(tensor.shard_rows()), each = elements / rows;
  ElementRange own = evenShard(rows, rank, static_cast<int>(plan.ranks()));
  return {own.begin * each, own.end * each};
}

Status checkShard(const fbs::Plan &plan, const fbs::StateTensor &tensor) {
  std::string name = "plan refused: state '" + std::string(viewOf(tensor.name())) + "'";
  if (tensor.shard_rows() == 0 && sizeOf(tensor.whole()) == 0)
    return Status::success();
  DType type = static_cast<DType>(tensor.dtype());
  std::optional<uint64_t> bytes = tensorBytes(type, tensor.whole());
  int64_t rows = tensor.shard_rows(), ranks = plan.ranks();
  bool isKept = tensor.role() == fbs::Role::moment || tensor.role() == fbs::Role::master;
  constexpr int64_t mostRows = int64_t(1) << 48;
  if (!bytes || !isKept || ranks < 2 || rows < ranks || rows > mostRows ||
      tensor.space() != fbs::Space::state)
    return Status::damaged(name + " cannot be in shards");
  uint64_t row = *bytes / static_cast<uint64_t>(rows);
  uint64_t most = static_cast<uint64_t>((rows + ranks - 1) / ranks);
  if (*bytes == 0 || *bytes % static_cast<uint64_t>(rows) != 0 ||
      row % dtypeSize(type) != 0 || tensor.size() % row != 0 ||
      tensor.size() / row != most)
    return Status::damaged(name + " has " + std::to_string(tensor.size()) +
                           " bytes, which is no shard of " + std::to_string(*bytes) +
                           " in " + std::to_string(rows) + " rows over " +
                           std::to_string(ranks) + " ranks");
  return Status::success();
}

} // namespace sluice
