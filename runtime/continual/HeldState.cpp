#include "runtime/continual/HeldState.h"

#include "runtime/DynamicMap.h"
#include "runtime/StoredForm.h"
#include "runtime/continual/Consolidation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice {

namespace {

constexpr std::string_view anchorSuffix = "/anchor";

/// "anchor", "anchor.2", ...
std::string numbered(const char *name, int64_t task) {
  return task == 0 ? name : name + ("." + std::to_string(task + 1));
}

uint64_t elementsOf(const fbs::StateTensor &tensor) {
  return tensor.size() / dtypeSize(static_cast<DType>(tensor.dtype()));
}

uint64_t valuesOfParameter(const Plan &plan, const std::string &name) {
  const fbs::StateTensor *tensor = plan.state("param/" + name);
  if (!tensor)
    return 0;
  uint64_t count = elementsOf(*tensor);
  if (sizeOf(tensor->value_shape()) > 0 || !viewOf(tensor->format()).empty()) {
    count = 1;
    for (uint32_t i = 0; i < sizeOf(tensor->value_shape()); ++i)
      count *= static_cast<uint64_t>(tensor->value_shape()->Get(i));
  }
  return count;
}

float *floatsOf(Session &session, const std::string &symbol) {
  return reinterpret_cast<float *>(session.state(symbol).data());
}

/// 2^(floor(log2 largest) - 14): the largest is stored as 2^14 or more, half of what
/// fp16 can hold.
float powerBelow(float largest) {
  return largest > 0 ? std::ldexp(1.0F, std::max(std::ilogb(largest) - 14, -126)) : 0.0F;
}

} // namespace

bool hasPenalty(const Plan &plan) { return plan.raw().continual() != nullptr; }

Result<HeldState> HeldState::open(const Plan &plan) {
  HeldState state;
  state.table = plan.raw().continual();
  if (!state.table)
    return Status::refused("the plan holds no parameters at anchors; compile with "
                           "'continual: {ewc: {lambda: ...}}' or 'si' in the spec");
  const fbs::Continual &table = *state.table;
  state.folder = state.isSi() ? "si/" : "ewc/";
  const fbs::StateTensor *counter = plan.state(state.counter());
  bool isSane = counter && counter->dtype() == fbs::DType::i64 && counter->size() == 8 &&
                table.tasks() >= 1 && table.tasks() <= 64 && table.samples() >= 1 &&
                std::isfinite(table.gamma()) && table.gamma() <= 1 &&
                std::isfinite(table.lambda()) && table.lambda() >= 0 &&
                (!state.isSi() || (table.xi() > 0 && std::isfinite(table.xi())));
  if (!isSane)
    return Status::damaged("plan refused: its penalty has impossible numbers");
  for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i) {
    const fbs::StateTensor &tensor = *plan.raw().state()->Get(i);
    std::string_view name = viewOf(tensor.name());
    if (tensor.role() == fbs::Role::continual && name.starts_with(state.folder) &&
        name.ends_with(anchorSuffix))
      if (Status status = state.addParameter(plan, tensor); !status.ok())
        return status;
  }
  std::ranges::sort(state.held, {}, &HeldParameter::name);
  return state;
}

Status HeldState::addParameter(const Plan &plan, const fbs::StateTensor &first) {
  std::string_view name = viewOf(first.name());
  name = name.substr(folder.size(), name.size() - folder.size() - anchorSuffix.size());
  HeldParameter parameter{std::string(name), elementsOf(first)};
  auto broken = [&](const std::string &symbol) {
    return Status::damaged("plan refused: state '" + symbol +
                           "' is not what the penalty of '" + parameter.name + "' needs");
  };
  auto isFloats = [&](const std::string &symbol, uint64_t count) {
    const fbs::StateTensor *tensor = plan.state(symbol);
    return tensor && tensor->dtype() == fbs::DType::f32 && tensor->size() == count * 4;
  };
  if (valuesOfParameter(plan, parameter.name) != parameter.elements)
    return broken("param/" + parameter.name);
  for (int64_t task = 0; task < table->tasks(); ++task) {
    if (!isFloats(anchor(parameter, task), parameter.elements))
      return broken(anchor(parameter, task));
    std::string symbol = importance(parameter, task);
    const fbs::StateTensor *tensor = plan.state(symbol);
    if (!tensor || elementsOf(*tensor) != parameter.elements)
      return broken(symbol);
    DType type = static_cast<DType>(tensor->dtype());
    const fbs::StateTensor *scale = plan.state(symbol + "/scale");
    if ((type == DType::i8 || type == DType::f16)
            ? !scale || scale->size() < 4 ||
                  parameter.elements % (scale->size() / 4) != 0 ||
                  !isFloats(symbol + "/scale", scale->size() / 4)
            : type != DType::f32 && type != DType::bf16)
      return broken(symbol);
  }
  if (isSi() && !isFloats(path(parameter), parameter.elements))
    return broken(path(parameter));
  held.push_back(std::move(parameter));
  return Status::success();
}

int64_t HeldState::anchors(const Session &session) const {
  int64_t tasks = 0;
  std::memcpy(&tasks, session.state(counter()).data(), sizeof tasks);
  return std::clamp<int64_t>(tasks, 0, table->tasks());
}

std::string HeldState::anchor(const HeldParameter &parameter, int64_t task) const {
  return folder + parameter.name + "/" + numbered("anchor", task);
}

std::string HeldState::importance(const HeldParameter &parameter, int64_t task) const {
  return folder + parameter.name + "/" + numbered(isSi() ? "omega" : "fisher", task);
}

std::string HeldState::path(const HeldParameter &parameter) const {
  return folder + parameter.name + "/path";
}

std::vector<float> HeldState::values(const Session &session,
                                     const std::string &symbol) const {
  std::span<const uint8_t> bytes = session.state(symbol);
  std::vector<float> result(bytes.size() / sizeof(float));
  if (!result.empty())
    std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

std::vector<float> HeldState::importances(const Session &session,
                                          const HeldParameter &parameter,
                                          int64_t task) const {
  std::string symbol = importance(parameter, task);
  const fbs::StateTensor &tensor = *session.plan().state(symbol);
  DType type = static_cast<DType>(tensor.dtype());
  std::vector<float> result(parameter.elements);
  const uint8_t *data = session.state(symbol).data();
  if (type == DType::i8) {
    DynamicMap map(/*isPositive=*/true);
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = map.decode(static_cast<int8_t>(data[i]));
  } else {
    readExact(StoredTensor<const uint8_t>{{.dtype = type}, parameter.elements, data}, 0,
              result);
  }
  std::vector<float> scales = values(session, symbol + "/scale");
  if (!scales.empty())
    for (size_t i = 0, block = result.size() / scales.size(); i < result.size(); ++i)
      result[i] *= scales[i / block];
  return result;
}

void HeldState::setImportances(Session &session, const HeldParameter &parameter,
                               int64_t task, std::span<const float> values) const {
  std::string symbol = importance(parameter, task);
  DType type = static_cast<DType>(session.plan().state(symbol)->dtype());
  uint8_t *data = session.state(symbol).data();
  StoredTensor<uint8_t> to{{.dtype = type}, parameter.elements, data};
  size_t blocks = session.state(symbol + "/scale").size() / sizeof(float);
  if (blocks == 0) {
    writeExact(to, 0, values);
    return;
  }
  DynamicMap map(/*isPositive=*/true);
  float *scales = floatsOf(session, symbol + "/scale");
  std::vector<float> part(values.size() / blocks);
  for (size_t b = 0; b < blocks; ++b) {
    auto block = values.subspan(b * part.size(), part.size());
    float largest = *std::ranges::max_element(block);
    float scale = type == DType::i8 ? largest : powerBelow(largest);
    scales[b] = scale;
    for (size_t i = 0; i < part.size(); ++i) {
      part[i] = scale > 0 ? block[i] / scale : 0;
      if (type == DType::i8)
        data[b * part.size() + i] = static_cast<uint8_t>(map.encode(part[i]));
    }
    if (type == DType::f16)
      writeExact(to, b * part.size(), part);
  }
}

} // namespace sluice
