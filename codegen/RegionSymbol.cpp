#include "codegen/RegionSymbol.h"

#include "passes/ElasticRegion.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace sluice;

static StringRef kindName(WalkKind kind) {
  switch (kind) {
  case WalkKind::Flat:
    return "flat";
  case WalkKind::Rows:
    return "rows";
  case WalkKind::Columns:
    return "columns";
  case WalkKind::Channels:
    return "channels";
  }
  return "";
}

std::string sluice::regionSymbol(graph::RegionOp region, WalkKind kind) {
  StringRef prefix = isElastic(region) ? "elastic" : kindName(kind);
  Operation *copy = region->clone();
  copy->setAttrs(DictionaryAttr::get(region.getContext()));
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream, OpPrintingFlags().printGenericOpForm().useLocalScope());
  copy->destroy();
  uint64_t hash = llvm::xxh3_64bits(stream.str());
  std::string symbol =
      (prefix + "_" + llvm::utohexstr(hash, /*LowerCase=*/true, /*Width=*/16)).str();
  if (std::optional<unsigned> tiled = tileInput(region))
    symbol += "_tiles_" + std::to_string(*tiled);
  return symbol;
}
