#pragma once
// Strings for JSON.

#include <cstdio>
#include <string>
#include <string_view>

namespace sluice {

/// `text` in quotes, with everything escaped that JSON wants escaped.
inline std::string jsonText(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    } else {
      result += c;
    }
  }
  return result + '"';
}

} // namespace sluice
