#include "passes/UpdateGroups.h"

using namespace mlir;

namespace sluice {

static constexpr StringLiteral groupsAttr = "graph.update_groups";

void setUpdateGroups(ModuleOp module, ArrayRef<UpdateGroup> groups) {
  Builder builder(module.getContext());
  SmallVector<Attribute> list;
  for (const UpdateGroup &group : groups)
    list.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(group.name)),
         builder.getNamedAttr("bytes", builder.getI64IntegerAttr(group.bytes)),
         builder.getNamedAttr("us", builder.getF64FloatAttr(group.us)),
         builder.getNamedAttr("blocks", builder.getI64IntegerAttr(group.blocks))}));
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
                      entry.getAs<IntegerAttr>("blocks").getInt()});
  }
  return groups;
}

} // namespace sluice
