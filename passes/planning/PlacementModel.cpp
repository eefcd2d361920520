#include "passes/planning/PlacementModel.h"

#include <algorithm>
#include <numeric>

namespace sluice {

/// Sums of sizes stay below this, so that no addition overflows.
static constexpr int64_t maxTotalBytes = int64_t(1) << 60;

static std::string checkBuffer(const PlacementProblem::Buffer &buffer, size_t index) {
  std::string name = "buffer " + std::to_string(index);
  if (buffer.sizeBytes < 0 || buffer.sizeBytes > maxTotalBytes)
    return name + " has size " + std::to_string(buffer.sizeBytes) +
           ", expected 0 to 2^60";
  if (buffer.end < buffer.begin)
    return name + " ends at " + std::to_string(buffer.end) + ", before its begin " +
           std::to_string(buffer.begin);
  if (buffer.alignBytes <= 0 || (buffer.alignBytes & (buffer.alignBytes - 1)) ||
      buffer.alignBytes > (int64_t(1) << 40))
    return name + " has alignment " + std::to_string(buffer.alignBytes) +
           ", expected a power of two";
  if (buffer.fixedOffset &&
      (*buffer.fixedOffset < 0 || *buffer.fixedOffset > maxTotalBytes ||
       *buffer.fixedOffset % buffer.alignBytes))
    return name + " has fixed offset " + std::to_string(*buffer.fixedOffset) +
           ", expected a multiple of its alignment " + std::to_string(buffer.alignBytes);
  return {};
}

/// Walks begins and ends in time (ends first, as they are exclusive) and closes a section
/// whenever an end follows a begin. Gives every block its range of sections, and the
/// model its bound.
static void assignSections(const PlacementProblem &problem, PlacementModel &model) {
  std::vector<int32_t> byBegin(model.blocks.size()), byEnd(model.blocks.size());
  std::iota(byBegin.begin(), byBegin.end(), 0);
  std::iota(byEnd.begin(), byEnd.end(), 0);
  auto buffer = [&](int32_t block) -> const PlacementProblem::Buffer & {
    return problem.buffers[model.blocks[block].source];
  };
  std::sort(byEnd.begin(), byEnd.end(), [&](int32_t a, int32_t b) {
    return std::pair(buffer(a).end, a) < std::pair(buffer(b).end, b);
  });

  int64_t live = 0, liveCount = 0;
  bool open = false; // a begin was seen since the last section was closed
  size_t nextEnd = 0;
  auto endUntil = [&](int64_t time) {
    for (; nextEnd < byEnd.size() && buffer(byEnd[nextEnd]).end <= time; ++nextEnd) {
      if (open)
        ++model.sections;
      open = false;
      PlacementBlock &block = model.blocks[byEnd[nextEnd]];
      block.endSection = model.sections;
      live -= block.size;
      --liveCount;
    }
  };
  for (int32_t index : byBegin) {
    endUntil(buffer(index).begin);
    PlacementBlock &block = model.blocks[index];
    block.firstSection = model.sections;
    open = true;
    live += block.size;
    model.overlapPairs += liveCount++;
    model.lowerBound = std::max(model.lowerBound, live);
  }
  endUntil(INT64_MAX);
}

static std::string checkFixed(const PlacementModel &model) {
  std::vector<const PlacementBlock *> fixed;
  for (const PlacementBlock &block : model.blocks)
    if (block.fixed())
      fixed.push_back(&block);
  for (size_t i = 0; i < fixed.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (fixed[i]->firstSection < fixed[j]->endSection &&
          fixed[j]->firstSection < fixed[i]->endSection &&
          fixed[i]->fixedOffset < fixed[j]->fixedOffset + fixed[j]->size &&
          fixed[j]->fixedOffset < fixed[i]->fixedOffset + fixed[i]->size)
        return "the fixed offsets of buffers " + std::to_string(fixed[j]->source) +
               " and " + std::to_string(fixed[i]->source) +
               " overlap while both are live";
  return {};
}

PlacementModel PlacementModel::build(const PlacementProblem &problem,
                                     std::string &error) {
  PlacementModel model;
  int64_t totalBytes = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const auto &buffer = problem.buffers[i];
    error = checkBuffer(buffer, i);
    if (!error.empty())
      return model;
    if (buffer.sizeBytes == 0 || buffer.begin == buffer.end)
      continue;
    PlacementBlock block;
    block.size = roundUp(buffer.sizeBytes, buffer.alignBytes);
    block.align = buffer.alignBytes;
    block.fixedOffset = buffer.fixedOffset.value_or(-1);
    block.lifetime = buffer.end - buffer.begin;
    block.source = int32_t(i);
    model.blocks.push_back(block);
    totalBytes += block.size;
    if (totalBytes > maxTotalBytes) {
      error = "the sizes of all buffers add up to more than 2^60 bytes";
      return model;
    }
  }
  std::sort(model.blocks.begin(), model.blocks.end(),
            [&](const PlacementBlock &a, const PlacementBlock &b) {
              const auto &x = problem.buffers[a.source], &y = problem.buffers[b.source];
              if (x.begin != y.begin)
                return x.begin < y.begin;
              return x.end != y.end ? x.end > y.end : a.source < b.source;
            });
  assignSections(problem, model);

  model.granularity = 0;
  for (const PlacementBlock &block : model.blocks) {
    model.granularity = std::gcd(model.granularity, block.size);
    model.oneAlignment &= block.align == model.blocks[0].align;
    if (block.fixed()) {
      model.anyFixed = true;
      model.granularity = std::gcd(model.granularity, block.fixedOffset);
      model.lowerBound = std::max(model.lowerBound, block.fixedOffset + block.size);
    }
  }
  // Rounding up to a larger alignment may make any multiple of the smallest one.
  if (!model.oneAlignment)
    for (const PlacementBlock &block : model.blocks)
      model.granularity = std::gcd(model.granularity, block.align);
  if (model.granularity == 0)
    model.granularity = 1;
  error = checkFixed(model);
  return model;
}

PlacementModel PlacementModel::reversed() const {
  PlacementModel mirror = *this;
  for (PlacementBlock &block : mirror.blocks) {
    int32_t first = block.firstSection;
    block.firstSection = sections - block.endSection;
    block.endSection = sections - first;
  }
  return mirror;
}

int64_t peakOf(const PlacementModel &model, const std::vector<int64_t> &offsets) {
  int64_t peak = 0;
  for (size_t i = 0; i < model.blocks.size(); ++i)
    peak = std::max(peak, offsets[i] + model.blocks[i].size);
  return peak;
}

} // namespace sluice
