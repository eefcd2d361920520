#include "runtime/Buckets.h"

#include <algorithm>

namespace sluice {

std::optional<double> fillOf(const fbs::Port &port) {
  if (port.fills())
    return port.fill();
  if (port.has_ignored())
    return static_cast<double>(port.ignored());
  return std::nullopt;
}

bool takes(const fbs::Port &port, std::span<const int64_t> shape) {
  if (shape.size() != sizeOf(port.shape()))
    return false;
  bool isFilled = fillOf(port).has_value();
  for (uint32_t i = 0; i < shape.size(); ++i) {
    bool countsSamples = port.batched() && i == 0;
    int64_t size = shape[i], full = port.shape()->Get(i);
    if (countsSamples ? size < 1 || size > full
                      : size < 0 || size > full || (size < full && !isFilled))
      return false;
  }
  return true;
}

static uint64_t inputBytes(const fbs::Program &program) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < sizeOf(program.inputs()); ++i)
    bytes += program.inputs()->Get(i)->size();
  return bytes;
}

std::vector<uint32_t> bucketsBySize(const Plan &plan, std::string_view program) {
  std::vector<uint32_t> order;
  for (uint32_t bucket = 0; bucket < plan.buckets(); ++bucket)
    order.push_back(bucket);
  auto bytes = [&](uint32_t bucket) {
    const fbs::Program *found = plan.program(program, bucket);
    return found ? inputBytes(*found) : 0;
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(bytes(a), a) < std::pair(bytes(b), b);
  });
  return order;
}

static std::string inputList(const fbs::Program &program) {
  std::string text;
  for (uint32_t i = 0; i < sizeOf(program.inputs()); ++i) {
    const fbs::Port &port = *program.inputs()->Get(i);
    text += (text.empty() ? "" : ", ") + std::string(viewOf(port.name())) + " " +
            shapeText(port.shape());
  }
  return text;
}

std::string bucketList(const Plan &plan, std::string_view program) {
  std::string text;
  for (uint32_t bucket : bucketsBySize(plan, program)) {
    const fbs::Program *found = plan.program(program, bucket);
    if (found)
      text += (text.empty() ? "'" : ", '") + plan.variant(bucket).bucketName + "' (" +
              inputList(*found) + ")";
  }
  return text;
}

Result<uint32_t> chooseBucket(const Plan &plan, std::string_view program,
                              std::span<const std::span<const int64_t>> shapes) {
  const fbs::Program *first = plan.program(program);
  if (!first || shapes.size() != sizeOf(first->inputs()))
    return Status::usage("program '" + std::string(program) + "' has " +
                         std::to_string(first ? sizeOf(first->inputs()) : 0) +
                         " inputs, " + std::to_string(shapes.size()) + " are given");
  for (uint32_t bucket : bucketsBySize(plan, program)) {
    const auto *inputs = plan.program(program, bucket)->inputs();
    bool fits = true;
    for (uint32_t i = 0; i < sizeOf(inputs); ++i)
      fits &= takes(*inputs->Get(i), shapes[i]);
    if (fits)
      return bucket;
  }
  std::string given;
  for (uint32_t i = 0; i < shapes.size(); ++i)
    given += (given.empty() ? "" : ", ") +
             std::string(viewOf(first->inputs()->Get(i)->name())) + " " +
             shapeText(shapes[i]);
  return Status::usage("no bucket of the plan takes " + given + "; there are " +
                       bucketList(plan, program) +
                       ". Smaller tensors are filled up only where the spec's 'pad' or "
                       "an ignored label says with what");
}

} // namespace sluice
