// What a program has computed, without what its batch was filled up with.

#include "runtime/Crop.h"
#include "runtime/Session.h"

namespace sluice {

void Session::cropOutputs(const LoadedProgram &loaded, const Batch &batch) {
  if (batch.shapes.empty())
    return;
  const auto *outputs = loaded.program->outputs();
  if (croppedOutputs.size() < sizeOf(outputs))
    croppedOutputs.resize(sizeOf(outputs));
  auto given = [&](uint32_t input, uint32_t dimension) {
    bool isGiven = input < batch.shapes.size() && !batch.shapes[input].empty();
    return isGiven ? batch.shapes[input][dimension]
                   : loaded.program->inputs()->Get(input)->shape()->Get(dimension);
  };
  for (uint32_t i = 0; i < sizeOf(outputs); ++i) {
    const fbs::Port &port = *outputs->Get(i);
    CropShape crop(port, loaded.batch, batch.count, given);
    if (!crop.isCropped())
      continue;
    CroppedOutput &output = croppedOutputs[i];
    output.isUsed = true;
    output.shape = crop.shape();
    output.data.resize(crop.bytes());
    crop.copy(arenas().of(port.space()) + port.offset(), output.data.data());
  }
}

Result<uint32_t> Session::findOutput(std::string_view name) const {
  if (!lastProgram)
    return Status::usage("no program has run, or its last batch was refused");
  const auto *outputs = lastProgram->program->outputs();
  for (uint32_t i = 0; i < sizeOf(outputs); ++i)
    if (viewOf(outputs->Get(i)->name()) == name)
      return i;
  return Status::usage("program '" + std::string(viewOf(lastProgram->program->name())) +
                       "' has no output '" + std::string(name) + "'");
}

Result<OutputView> Session::output(std::string_view name) const {
  auto index = findOutput(name);
  if (!index)
    return index.status();
  const fbs::Port *port = lastProgram->program->outputs()->Get(*index);
  if (*index < croppedOutputs.size() && croppedOutputs[*index].isUsed) {
    const std::vector<uint8_t> &data = croppedOutputs[*index].data;
    return OutputView{port, data.data(), data.size()};
  }
  size_t bytes = port->size();
  if (port->batched() && lastValid > 0)
    bytes =
        bytes / static_cast<size_t>(lastProgram->batch) * static_cast<size_t>(lastValid);
  return OutputView{port, arenas().of(port->space()) + port->offset(), bytes};
}

Result<std::vector<int64_t>> Session::outputShape(std::string_view name) const {
  auto index = findOutput(name);
  if (!index)
    return index.status();
  if (*index < croppedOutputs.size() && croppedOutputs[*index].isUsed)
    return croppedOutputs[*index].shape;
  const fbs::Port &port = *lastProgram->program->outputs()->Get(*index);
  std::vector<int64_t> shape;
  for (uint32_t i = 0; i < sizeOf(port.shape()); ++i)
    shape.push_back(port.shape()->Get(i));
  if (port.batched() && lastValid > 0 && !shape.empty())
    shape[0] = shape[0] / lastProgram->batch * lastValid;
  return shape;
}

} // namespace sluice
