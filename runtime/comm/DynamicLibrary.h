#pragma once
// Libraries that are looked for when they are asked for, so that one program serves hosts
// with and without them.

#include "runtime/Status.h"

#include <vector>

namespace sluice {

/// `file` in the folder of the program or library that this code is part of.
std::string besideThisCode(const std::string &file);

/// The first of these files that can be loaded; it stays loaded. Else why the most
/// telling of them cannot: one that is there but lacks something, or the last one.
Result<void *> openLibrary(const std::vector<std::string> &files, bool globalSymbols);

/// Null when there is none.
void *symbolOf(void *library, const char *name);

} // namespace sluice
