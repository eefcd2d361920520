#pragma once
// The keys of the training spec: one table behind the reader's checks, its hints and the
// JSON schema.

#include <span>
#include <string>

namespace sluice {

enum class KeyKind { Map, AnyMap, AnyMaps, List, Integer, Number, String, Boolean, Any };

struct SpecKey {
  const char *path; // dotted; "[]" stands for the elements of a list
  KeyKind kind;
  bool ready; // false: planned, refused as "not yet"
  const char *text;
};

/// All keys, parents before children.
std::span<const SpecKey> specKeys();

/// The key at `path`, or null.
const SpecKey *findSpecKey(const std::string &path);

/// The known key under the same parent whose last element is closest in edit distance;
/// empty if none is near.
std::string nearestSpecKey(const std::string &path);

/// The JSON schema (draft 2020-12) of the spec, for editors.
std::string specSchema();

} // namespace sluice
