#include "codegen/ContinualTable.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace sluice {

std::unique_ptr<fbs::ContinualT> continualOf(ModuleOp module) {
  auto written = module->getAttrOfType<DictionaryAttr>("graph.continual");
  if (!written)
    return nullptr;
  auto text = [&](StringRef key) { return written.getAs<StringAttr>(key).getValue(); };
  auto real = [&](StringRef key) {
    return written.getAs<FloatAttr>(key).getValueAsDouble();
  };
  auto integer = [&](StringRef key) {
    auto attr = written.getAs<IntegerAttr>(key);
    return attr ? attr.getInt() : 0;
  };
  auto table = std::make_unique<fbs::ContinualT>();
  table->kind = text("kind") == "si" ? fbs::PenaltyKind::si : fbs::PenaltyKind::ewc;
  table->lambda = real("lambda"), table->gamma = real("gamma");
  table->tasks = integer("tasks"), table->samples = integer("samples");
  table->labels = llvm::StringSwitch<fbs::FisherLabels>(text("labels"))
                      .Case("sampled", fbs::FisherLabels::sampled)
                      .Case("all", fbs::FisherLabels::all)
                      .Default(fbs::FisherLabels::given);
  table->refresh = real("refresh"), table->xi = real("xi");
  if (auto classes = module->getAttrOfType<IntegerAttr>("graph.fisher_classes"))
    table->classes = classes.getInt();
  table->one_by_one = module->hasAttr("graph.fisher_one_by_one");
  return table;
}

std::unique_ptr<fbs::MasksT> masksOf(ModuleOp module) {
  auto written = module->getAttrOfType<DictionaryAttr>("graph.masks");
  if (!written)
    return nullptr;
  auto table = std::make_unique<fbs::MasksT>();
  table->kind = written.getAs<StringAttr>("kind").str();
  table->share = written.getAs<FloatAttr>("share").getValueAsDouble();
  table->retrain = written.getAs<FloatAttr>("retrain").getValueAsDouble();
  auto take = [&](StringRef key, std::vector<std::string> &names) {
    for (auto name : written.getAs<ArrayAttr>(key).getAsRange<StringAttr>())
      names.push_back(name.str());
  };
  take("tasks", table->tasks);
  take("weights", table->weights);
  take("own", table->own);
  return table;
}

} // namespace sluice
