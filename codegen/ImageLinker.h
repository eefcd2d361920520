#pragma once
// Links one object into a shared image in this process.

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace sluice {

/// The image has no undefined symbols and no relocations. Not thread-safe: lld has global
/// state.
llvm::Expected<std::string> linkImage(llvm::StringRef object);

} // namespace sluice
