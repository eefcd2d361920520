#include "runtime/Plan.h"

namespace sluice {

std::string Plan::weightsPath() const {
  if (filePath.empty())
    return {};
  size_t slash = filePath.rfind('/');
  size_t dot = filePath.rfind('.');
  bool hasSuffix =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (hasSuffix ? filePath.substr(0, dot) : filePath) + ".safetensors";
}

const fbs::Program *Plan::program(std::string_view name) const {
  for (uint32_t i = 0; i < sizeOf(raw().programs()); ++i)
    if (viewOf(raw().programs()->Get(i)->name()) == name)
      return raw().programs()->Get(i);
  return nullptr;
}

const fbs::StateTensor *Plan::state(std::string_view name) const {
  auto found = stateByName.find(name);
  return found == stateByName.end() ? nullptr : found->second;
}

const fbs::ParamGroup *Plan::group(std::string_view name) const {
  for (uint32_t i = 0; i < sizeOf(raw().groups()); ++i)
    if (viewOf(raw().groups()->Get(i)->name()) == name)
      return raw().groups()->Get(i);
  return nullptr;
}

std::vector<InputSpec> Plan::inputs(std::string_view name) const {
  std::vector<InputSpec> specs;
  const fbs::Program *found = program(name);
  for (uint32_t i = 0; found && i < sizeOf(found->inputs()); ++i) {
    const fbs::Port *port = found->inputs()->Get(i);
    InputSpec spec;
    spec.name = viewOf(port->name());
    spec.dtype = static_cast<DType>(port->dtype());
    if (port->shape())
      spec.shape.assign(port->shape()->begin(), port->shape()->end());
    spec.batched = port->batched();
    spec.bounded = port->bounded();
    spec.lower = port->lower();
    spec.upper = port->upper();
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<std::string> Plan::programNames() const {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < sizeOf(raw().programs()); ++i)
    names.emplace_back(viewOf(raw().programs()->Get(i)->name()));
  return names;
}

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string shapeText(const flatbuffers::Vector<int64_t> *shape) {
  return shape ? shapeText(std::span(shape->data(), shape->size())) : "[]";
}

} // namespace sluice
