#pragma once
// Reads and writes device profiles (YAML) of ir/DeviceProfile.h.

#include "ir/DeviceProfile.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct DeviceResult {
  std::optional<DeviceProfile> profile; // absent if there are errors
  std::vector<std::string> errors;      // "file:line:column: message"
};

/// A shipped profile's name, or the path of a YAML file (which has a '/' or a '.').
DeviceResult readDevice(const std::string &nameOrPath);

/// The text of a file as `origin` would be named in errors.
DeviceResult parseDevice(const std::string &text, const std::string &origin);

/// Names of the shipped profiles.
std::vector<std::string> shippedDevices();

/// As a file that readDevice takes; `comment` stands above, its lines without '#'.
std::string deviceText(const DeviceProfile &profile, const std::string &comment);

} // namespace sluice
