#pragma once
// The outside of a plan file. All numbers little-endian:
//
//   0  char[8]  "SLUICEPL"
//   8  u32      format version
//  12  u32      0
//  16  u64      bytes of the FlatBuffer, which begins at byte 32
//  24  u64      FNV-1a of everything behind the header (byte 32 to the end)
//  32           the FlatBuffer (runtime/plan.fbs), zeros up to the next page, then
//  segments, each page-aligned
//
// A segment is named inside the FlatBuffer by (offset from the start of the file, size).

#include "runtime/AtomicFile.h"
#include "runtime/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

constexpr char planMagic[] = "SLUICEPL";
constexpr uint32_t planFormatVersion = 1;
constexpr size_t planHeaderBytes = 32;
constexpr size_t planPageBytes = 4096;

/// Writes a plan file atomically. `flatBuffer` is a finished Plan with its file
/// identifier; segments[i] is the code of plan.images[i], whose size must say
/// segments[i].size(). The offsets are filled in here, so each image needs an `offset`
/// field to fill: set it to anything but 0 (fields of value 0 are not stored).
Status writePlanFile(const std::string &path, std::span<const uint8_t> flatBuffer,
                     std::span<const std::span<const uint8_t>> segments);

/// All of it but the last step: `file.commit()` puts it in place.
Status stagePlanFile(AtomicFile &file, std::span<const uint8_t> flatBuffer,
                     std::span<const std::span<const uint8_t>> segments);

/// The same file in memory.
Result<std::vector<uint8_t>>
buildPlanFile(std::span<const uint8_t> flatBuffer,
              std::span<const std::span<const uint8_t>> segments);

/// Checks magic, version, sizes and checksum; gives the FlatBuffer's bytes, not yet
/// verified. `name` is for messages.
Result<std::span<const uint8_t>> planFlatBuffer(std::span<const uint8_t> file,
                                                const std::string &name);

} // namespace sluice
