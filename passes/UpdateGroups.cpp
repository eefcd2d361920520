#include "passes/UpdateGroups.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral groupsAttr = "graph.update_groups";

double updateRuns(ModuleOp module, StringRef entry) {
  auto every = module->getAttrOfType<IntegerAttr>(updateEveryAttr);
  return every && entry.starts_with("update.") ? 1.0 / double(every.getInt()) : 1.0;
}

void setUpdateGroups(ModuleOp module, ArrayRef<UpdateGroup> groups) {
  Builder builder(module.getContext());
  SmallVector<Attribute> list;
  for (const UpdateGroup &group : groups)
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(group.name)),
         builder.getNamedAttr("bytes", builder.getI64IntegerAttr(group.bytes)),
         builder.getNamedAttr("us", builder.getF64FloatAttr(group.us)),
         builder.getNamedAttr("blocks", builder.getI64IntegerAttr(group.blocks)),
         builder.getNamedAttr("mode", builder.getStringAttr(group.mode)),
         builder.getNamedAttr("every", builder.getI64IntegerAttr(group.every)),
         builder.getNamedAttr("phase", builder.getI64IntegerAttr(group.phase)),
         builder.getNamedAttr("delay", builder.getI64IntegerAttr(group.delay))}));
  module->setAttr(groupsAttr, builder.getArrayAttr(list));
}

std::vector<UpdateGroup> updateGroups(ModuleOp module) {
  std::vector<UpdateGroup> groups;
  auto list = module->getAttrOfType<ArrayAttr>(groupsAttr);
  for (Attribute element : list ? list.getValue() : ArrayRef<Attribute>()) {
    auto entry = cast<DictionaryAttr>(element);
    groups.push_back({entry.getAs<StringAttr>("name").str(),
                      entry.getAs<IntegerAttr>("bytes").getInt(),
                      entry.getAs<FloatAttr>("us").getValueAsDouble(),
                      entry.getAs<IntegerAttr>("blocks").getInt(),
                      entry.getAs<StringAttr>("mode").str(),
                      entry.getAs<IntegerAttr>("every").getInt(),
                      entry.getAs<IntegerAttr>("phase").getInt(),
                      entry.getAs<IntegerAttr>("delay").getInt()});
  }
  return groups;
}

} // namespace sluice
