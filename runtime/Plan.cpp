#include "runtime/Plan.h"

#include "runtime/Buckets.h"

#include <algorithm>

namespace sluice {

std::string Plan::weightsPath() const {
  if (filePath.empty())
    return {};
  size_t slash = filePath.rfind('/');
  size_t dot = filePath.rfind('.');
  bool hasSuffix =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (hasSuffix ? filePath.substr(0, dot) : filePath) + ".safetensors";
}

void Plan::listVariants() {
  uint32_t listed = sizeOf(raw().variants());
  for (uint32_t i = 0; i < listed; ++i) {
    const fbs::Variant *stored = raw().variants()->Get(i);
    PlanVariant variant;
    variant.name = viewOf(stored->name());
    variant.bucketName = viewOf(stored->bucket_name());
    variant.bucket = stored->bucket();
    variant.rung = stored->rung();
    variant.batch = stored->batch();
    variant.stepBytes = stored->step_bytes();
    variant.memoryFraction = stored->memory_fraction();
    variant.budgetBytes = stored->budget_bytes();
    if (stored->programs())
      variant.programs.assign(stored->programs()->begin(), stored->programs()->end());
    variantList.push_back(std::move(variant));
  }
  if (listed == 0) {
    PlanVariant only;
    only.batch = raw().batch();
    only.stepBytes = raw().step_bytes();
    for (uint32_t i = 0; i < sizeOf(raw().programs()); ++i)
      only.programs.push_back(i);
    variantList.push_back(std::move(only));
  }
  for (const PlanVariant &variant : variantList) {
    bucketCount = std::max(bucketCount, variant.bucket + 1);
    rungCount = std::max(rungCount, variant.rung + 1);
  }
  variantIndex.resize(size_t(bucketCount) * rungCount);
  for (size_t i = 0; i < variantList.size(); ++i)
    variantIndex[variantList[i].bucket * rungCount + variantList[i].rung] = i;
}

PlanMemory Plan::memory(uint32_t rung) const {
  PlanMemory memory = this->memory();
  memory.stepBytes = 0;
  for (const PlanVariant &variant : variantList)
    if (variant.rung == rung)
      memory.stepBytes = std::max(memory.stepBytes, variant.stepBytes);
  return memory;
}

bool Plan::hasCopies() const {
  for (uint32_t i = 0; i < sizeOf(raw().programs()); ++i)
    if (sizeOf(raw().programs()->Get(i)->copies()) > 0)
      return true;
  return false;
}

bool Plan::hasCollectives() const {
  for (uint32_t i = 0; i < sizeOf(raw().programs()); ++i)
    if (sizeOf(raw().programs()->Get(i)->collectives()) > 0)
      return true;
  return false;
}

bool Plan::hasShards() const {
  for (uint32_t i = 0; i < sizeOf(raw().state()); ++i)
    if (raw().state()->Get(i)->shard_rows() > 0)
      return true;
  return false;
}

std::optional<uint32_t> Plan::programIndex(std::string_view name,
                                           const PlanVariant &variant) const {
  for (uint32_t index : variant.programs)
    if (viewOf(raw().programs()->Get(index)->name()) == name)
      return index;
  return std::nullopt;
}

const fbs::Program *Plan::program(std::string_view name, uint32_t bucket,
                                  uint32_t rung) const {
  auto index = programIndex(name, variant(bucket, rung));
  return index ? raw().programs()->Get(*index) : nullptr;
}

const fbs::StateTensor *Plan::state(std::string_view name) const {
  auto found = stateByName.find(name);
  return found == stateByName.end() ? nullptr : found->second;
}

const fbs::ParamGroup *Plan::group(std::string_view name) const {
  for (uint32_t i = 0; i < sizeOf(raw().groups()); ++i)
    if (viewOf(raw().groups()->Get(i)->name()) == name)
      return raw().groups()->Get(i);
  return nullptr;
}

std::vector<InputSpec> Plan::inputs(std::string_view name, uint32_t bucket) const {
  std::vector<InputSpec> specs;
  const fbs::Program *found = program(name, bucket);
  for (uint32_t i = 0; found && i < sizeOf(found->inputs()); ++i) {
    const fbs::Port *port = found->inputs()->Get(i);
    InputSpec spec;
    spec.name = viewOf(port->name());
    spec.dtype = static_cast<DType>(port->dtype());
    if (port->shape())
      spec.shape.assign(port->shape()->begin(), port->shape()->end());
    spec.batched = port->batched();
    spec.bounded = port->bounded();
    spec.lower = port->lower();
    spec.upper = port->upper();
    spec.fill = fillOf(*port);
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<std::string> Plan::programNames() const {
  std::vector<std::string> names;
  for (uint32_t index : variantList.front().programs)
    names.emplace_back(viewOf(raw().programs()->Get(index)->name()));
  return names;
}

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string shapeText(const flatbuffers::Vector<int64_t> *shape) {
  return shape ? shapeText(std::span(shape->data(), shape->size())) : "[]";
}

} // namespace sluice
