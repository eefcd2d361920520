#include "runtime/PlanReader.h"

#include "runtime/PlanCheck.h"
#include "runtime/PlanFile.h"

#include <cstring>

namespace sluice {

// The verifier of FlatBuffers visits shared vectors of strings once per user; this bounds
// the users.
constexpr uint32_t maxGroups = 4096;

static bool groupCountBounded(std::span<const uint8_t> bytes) {
  flatbuffers::Verifier verifier(bytes.data(), bytes.size());
  auto root = verifier.VerifyOffset(0);
  if (!root || !verifier.VerifyTableStart(bytes.data() + root))
    return false;
  const fbs::Plan *plan = fbs::GetPlan(bytes.data());
  const auto *table = reinterpret_cast<const flatbuffers::Table *>(plan);
  return table->VerifyOffset(verifier, fbs::Plan::VT_GROUPS) &&
         verifier.VerifyVector(plan->groups()) && sizeOf(plan->groups()) <= maxGroups;
}

static Status verifyStructure(std::span<const uint8_t> bytes, const std::string &name) {
  Status damaged =
      Status::damaged("'" + name + "' is damaged: its description is malformed");
  if (bytes.size() < 16 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE ||
      !groupCountBounded(bytes))
    return damaged;
  // A table takes at least 4 bytes unless it is shared, which no writer of ours does.
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<uint32_t>(bytes.size() / 4);
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), options);
  return fbs::VerifyPlanBuffer(verifier) ? Status::success() : damaged;
}

Result<PlanPtr> PlanReader::readFile(const std::string &path) {
  auto mapping = MappedFile::open(path);
  if (!mapping)
    return mapping.status();
  std::shared_ptr<Plan> plan(new Plan);
  plan->bytes = (*mapping)->bytes();
  plan->mapping = std::move(*mapping);
  plan->filePath = path;
  return finish(std::move(plan), path);
}

Result<PlanPtr> PlanReader::readMemory(std::span<const uint8_t> file,
                                       const std::string &name) {
  std::shared_ptr<Plan> plan(new Plan);
  plan->copy.resize((file.size() + 7) / 8);
  if (!file.empty())
    std::memcpy(plan->copy.data(), file.data(), file.size());
  plan->bytes = {reinterpret_cast<const uint8_t *>(plan->copy.data()), file.size()};
  return finish(std::move(plan), name);
}

Result<PlanPtr> PlanReader::finish(std::shared_ptr<Plan> plan, const std::string &name) {
  auto flatBuffer = planFlatBuffer(plan->bytes, name);
  if (!flatBuffer)
    return flatBuffer.status();
  if (Status status = verifyStructure(*flatBuffer, name); !status.ok())
    return status;
  plan->content = fbs::GetPlan(flatBuffer->data());
  uint64_t codeBegin = planHeaderBytes + flatBuffer->size();
  Status status = checkPlan(*plan->content, {codeBegin, plan->bytes.size()});
  if (!status.ok())
    return Status{status.code, "'" + name + "': " + status.message};
  for (uint32_t i = 0; i < sizeOf(plan->content->state()); ++i) {
    const fbs::StateTensor *tensor = plan->content->state()->Get(i);
    plan->stateByName.emplace(viewOf(tensor->name()), tensor);
  }
  plan->listVariants();
  return PlanPtr(std::move(plan));
}

} // namespace sluice
