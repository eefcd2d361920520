#include "codegen/ReplayTable.h"

#include "passes/ReplayShare.h"

using namespace mlir;

namespace sluice {

std::unique_ptr<fbs::ReplayT> replayOf(ModuleOp module) {
  auto written = module->getAttrOfType<DictionaryAttr>(replayAttr);
  if (!written)
    return nullptr;
  auto integer = [&](StringRef key) { return written.getAs<IntegerAttr>(key).getInt(); };
  auto real = [&](StringRef key) {
    return written.getAs<FloatAttr>(key).getValueAsDouble();
  };
  auto table = std::make_unique<fbs::ReplayT>();
  table->samples = integer("samples");
  table->capacity_bytes = static_cast<uint64_t>(integer("capacity_bytes"));
  table->policy = written.getAs<StringAttr>("policy").str();
  table->alpha = real("alpha");
  table->importance = real("importance");
  table->min_per_class = integer("min_per_class");
  table->weighted = written.getAs<BoolAttr>("weighted").getValue();
  table->logits_weight = real("logits_weight");
  table->labels_weight = real("labels_weight");
  return table;
}

} // namespace sluice
