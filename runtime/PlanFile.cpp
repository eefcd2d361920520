#include "runtime/PlanFile.h"

#include "runtime/AtomicFile.h"
#include "runtime/Checksum.h"
#include "runtime/plan_generated.h"

#include <cstring>

namespace sluice {

namespace {

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t flatBufferBytes;
  uint64_t checksum;
};
static_assert(sizeof(Header) == planHeaderBytes);

uint64_t roundUpToPage(uint64_t bytes) {
  return (bytes + planPageBytes - 1) / planPageBytes * planPageBytes;
}

/// Writes the place of each segment into the images' tables; gives the size of the file.
Result<uint64_t> placeSegments(std::vector<uint8_t> &flatBuffer,
                               std::span<const std::span<const uint8_t>> segments) {
  fbs::Plan *plan = fbs::GetMutablePlan(flatBuffer.data());
  auto *images = plan->mutable_images();
  size_t imageCount = images ? images->size() : 0;
  if (imageCount != segments.size())
    return Status::usage("the plan names " + std::to_string(imageCount) +
                         " code images, but " + std::to_string(segments.size()) +
                         " segments are given");
  uint64_t end = planHeaderBytes + flatBuffer.size();
  for (size_t i = 0; i < imageCount; ++i) {
    fbs::CodeImage *image = images->GetMutableObject(static_cast<uint32_t>(i));
    if (image->size() != segments[i].size())
      return Status::usage(
          "code image " + std::to_string(i) + " says " + std::to_string(image->size()) +
          " bytes, but its segment has " + std::to_string(segments[i].size()));
    uint64_t offset = roundUpToPage(end);
    if (!image->mutate_offset(offset))
      return Status::usage("code image " + std::to_string(i) +
                           " has no 'offset' field to fill; set it to 1");
    end = offset + segments[i].size();
  }
  return end;
}

} // namespace

Result<std::vector<uint8_t>>
buildPlanFile(std::span<const uint8_t> flatBuffer,
              std::span<const std::span<const uint8_t>> segments) {
  flatbuffers::Verifier verifier(flatBuffer.data(), flatBuffer.size(), 64, 1u << 30);
  if (!fbs::VerifyPlanBuffer(verifier))
    return Status::usage("the FlatBuffer given is no finished Plan");
  std::vector<uint8_t> content(flatBuffer.begin(), flatBuffer.end());
  Result<uint64_t> fileBytes = placeSegments(content, segments);
  if (!fileBytes)
    return fileBytes.status();

  std::vector<uint8_t> file(*fileBytes);
  std::memcpy(file.data() + planHeaderBytes, content.data(), content.size());
  const fbs::Plan *plan = fbs::GetPlan(content.data());
  for (size_t i = 0; i < segments.size(); ++i)
    if (!segments[i].empty())
      std::memcpy(file.data() + plan->images()->Get(static_cast<uint32_t>(i))->offset(),
                  segments[i].data(), segments[i].size());

  Header header = {{}, planFormatVersion, 0, content.size(), 0};
  std::memcpy(header.magic, planMagic, sizeof header.magic);
  header.checksum = fnv1a(file.data() + planHeaderBytes, file.size() - planHeaderBytes);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

Status stagePlanFile(AtomicFile &file, std::span<const uint8_t> flatBuffer,
                     std::span<const std::span<const uint8_t>> segments) {
  Result<std::vector<uint8_t>> content = buildPlanFile(flatBuffer, segments);
  if (!content)
    return content.status();
  Status status = file.open();
  if (status.ok())
    status = file.write(content->data(), content->size());
  return status.ok() ? file.flush() : status;
}

Status writePlanFile(const std::string &path, std::span<const uint8_t> flatBuffer,
                     std::span<const std::span<const uint8_t>> segments) {
  AtomicFile file(path);
  Status status = stagePlanFile(file, flatBuffer, segments);
  return status.ok() ? file.commit() : status;
}

Result<std::span<const uint8_t>> planFlatBuffer(std::span<const uint8_t> file,
                                                const std::string &name) {
  Header header;
  if (file.size() < sizeof header)
    return Status::damaged("'" + name + "' is no plan: it has " +
                           std::to_string(file.size()) + " bytes, the header alone has " +
                           std::to_string(sizeof header));
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, planMagic, sizeof header.magic) != 0)
    return Status::refused("'" + name + "' is no plan: it does not begin with \"" +
                           planMagic + "\"");
  if (header.version != planFormatVersion)
    return Status::refused("'" + name + "' has plan format " +
                           std::to_string(header.version) + ", this runtime reads " +
                           std::to_string(planFormatVersion) + "; compile it again");
  if (header.flatBufferBytes > file.size() - sizeof header)
    return Status::damaged("'" + name + "' is cut off: its description has " +
                           std::to_string(header.flatBufferBytes) + " bytes, but only " +
                           std::to_string(file.size() - sizeof header) +
                           " follow the header");
  if (header.checksum != fnv1a(file.data() + sizeof header, file.size() - sizeof header))
    return Status::damaged("'" + name + "' is damaged: its checksum does not match");
  return file.subspan(sizeof header, header.flatBufferBytes);
}

} // namespace sluice
