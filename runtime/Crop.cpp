#include "runtime/Crop.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

/// Sizes and steps stay below this, so that no product of two of them overflows.
constexpr int64_t limit = int64_t(1) << 31;

int64_t floorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

/// How many of the positions are real.
int64_t realSize(const fbs::Crop &crop, int64_t given) {
  int64_t length = given;
  for (uint32_t i = 0; i + 2 < sizeOf(crop.steps()); i += 3) {
    length = floorDivide(length * crop.steps()->Get(i) + crop.steps()->Get(i + 1),
                         crop.steps()->Get(i + 2));
    length = std::clamp<int64_t>(length, 0, limit);
  }
  return std::min(length, crop.size());
}

} // namespace

CropShape::CropShape(const fbs::Port &port, int64_t batch, int64_t samples,
                     const GivenSize &given)
    : width(dtypeSize(static_cast<DType>(port.dtype()))),
      elements(static_cast<int64_t>(port.size() / width)) {
  for (uint32_t i = 0; i < sizeOf(port.shape()); ++i)
    dimensions.push_back(port.shape()->Get(i));
  if (port.batched() && !dimensions.empty()) {
    dimensions[0] = dimensions[0] / batch * samples;
    elements = elements / batch * samples;
  }
  // Inputs that say different lengths: the longest is seen whole.
  for (uint32_t i = 0; i < sizeOf(port.crops()); ++i) {
    const fbs::Crop &crop = *port.crops()->Get(i);
    int64_t real = realSize(crop, given(crop.input(), crop.input_dimension()));
    auto known = std::find_if(axes.begin(), axes.end(), [&](const Axis &axis) {
      return axis.stride == crop.stride();
    });
    if (known != axes.end()) {
      known->real = std::max(known->real, real);
      continue;
    }
    axes.push_back({crop.stride(), crop.size(), real});
  }
  std::erase_if(axes, [](const Axis &axis) { return axis.real == axis.size; });
  std::sort(axes.begin(), axes.end(),
            [](const Axis &a, const Axis &b) { return a.stride > b.stride; });
  int64_t real = elements;
  for (const Axis &axis : axes) {
    real = real / axis.size * axis.real;
    for (uint32_t i = 0; i < sizeOf(port.crops()); ++i)
      if (const fbs::Crop &crop = *port.crops()->Get(i); crop.stride() == axis.stride) {
        int64_t &dimension = dimensions[crop.dimension()];
        dimension = dimension / axis.size * axis.real;
        break;
      }
  }
  realBytes = static_cast<size_t>(real) * width;
}

uint8_t *CropShape::copyAxis(size_t index, const uint8_t *source, int64_t count,
                             uint8_t *target) const {
  if (index == axes.size()) {
    size_t bytes = static_cast<size_t>(count) * width;
    std::memcpy(target, source, bytes);
    return target + bytes;
  }
  const Axis &axis = axes[index];
  int64_t run = axis.stride * axis.size;
  for (int64_t begin = 0; begin < count; begin += run)
    target = copyAxis(index + 1, source + static_cast<size_t>(begin) * width,
                      axis.stride * axis.real, target);
  return target;
}

void CropShape::copy(const uint8_t *source, uint8_t *target) const {
  if (realBytes > 0)
    copyAxis(0, source, elements, target);
}

/// "" or what is wrong with one of them.
static std::string checkCrop(const fbs::Program &program, const fbs::Port &output,
                             const fbs::Crop &crop) {
  if (crop.input() >= sizeOf(program.inputs()) ||
      crop.input_dimension() >= sizeOf(program.inputs()->Get(crop.input())->shape()))
    return "follows an input that is not there";
  if (crop.dimension() >= sizeOf(output.shape()) || crop.stride() < 1 || crop.size() < 1)
    return "has no such dimension";
  uint64_t step = 1;
  for (uint32_t i = sizeOf(output.shape()) - 1; i > crop.dimension(); --i)
    step *= static_cast<uint64_t>(output.shape()->Get(i));
  uint64_t whole = step * static_cast<uint64_t>(output.shape()->Get(crop.dimension()));
  uint64_t stride = static_cast<uint64_t>(crop.stride()), run = 0;
  if (step == 0 || whole == 0 || stride % step != 0 ||
      __builtin_mul_overflow(stride, static_cast<uint64_t>(crop.size()), &run) ||
      run > whole || whole % run != 0 || crop.size() >= limit)
    return "is cropped across its dimensions";
  if (sizeOf(crop.steps()) % 3 != 0 || sizeOf(crop.steps()) > 300)
    return "is cropped by no whole steps";
  for (uint32_t i = 0; i < sizeOf(crop.steps()); ++i) {
    int64_t value = crop.steps()->Get(i);
    if (value <= -limit || value >= limit || (i % 3 != 1 && value < 1))
      return "is cropped by impossible steps";
  }
  return "";
}

std::string checkCrops(const fbs::Program &program, const fbs::Port &output) {
  std::vector<std::pair<int64_t, int64_t>> axes; // stride, size
  for (uint32_t i = 0; i < sizeOf(output.crops()); ++i) {
    const fbs::Crop &crop = *output.crops()->Get(i);
    if (std::string wrong = checkCrop(program, output, crop); !wrong.empty())
      return wrong;
    axes.emplace_back(crop.stride(), crop.size());
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 1; i < axes.size(); ++i) {
    auto [inner, size] = axes[i - 1];
    bool isSame = axes[i] == axes[i - 1];
    if (!isSame && axes[i].first % (inner * size) != 0)
      return "is cropped along axes that cross";
  }
  return "";
}

} // namespace sluice
