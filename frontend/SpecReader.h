#pragma once
// Reads a training spec (YAML) into ir/TrainingSpec.h. Every problem of the file is
// reported, with file, line, column and what would be right.

#include "ir/TrainingSpec.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct SpecResult {
  std::optional<TrainingSpec> spec;      // absent if there are errors
  std::vector<std::string> errors;       // "file:line:column: message"
  std::vector<std::string> translations; // design-note spellings and what they became
};

/// `path` may be empty (all defaults). `overrides` are the command line's KEY=VALUE,
/// applied in order.
SpecResult readSpec(const std::string &path,
                    const std::vector<std::string> &overrides = {});

/// A spec as TrainingSpec::text and plans hold it: the file's bytes, then a line
/// "# --set KEY=VALUE" for each override. `name` is for messages.
SpecResult readSpecText(const std::string &text, const std::string &name);

/// Bytes of "512MiB", "2GiB", "1.5GB" or "1048576"; nothing if it is no size.
std::optional<int64_t> parseSize(const std::string &text);

} // namespace sluice
