#include "runtime/replay/ReplayBuffer.h"

#include "runtime/replay/Draws.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

constexpr std::pair<ReplayPolicy, const char *> policies[] = {
    {ReplayPolicy::ring, "ring"},
    {ReplayPolicy::reservoir, "reservoir"},
    {ReplayPolicy::balanced, "balanced"},
    {ReplayPolicy::prioritized, "prioritized"}};

/// Class, task, place in its class, and the class's entry for it.
constexpr uint64_t bookkeepingBytes = 4 * sizeof(int64_t);

} // namespace

Result<ReplayPolicy> parseReplayPolicy(const std::string &name) {
  for (auto [policy, text] : policies)
    if (name == text)
      return policy;
  return Status::refused("replay policy '" + name +
                         "' is unknown, expected ring, reservoir, balanced or "
                         "prioritized");
}

std::string toText(ReplayPolicy policy) {
  for (auto [known, text] : policies)
    if (known == policy)
      return text;
  return "";
}

Result<ReplayBuffer> ReplayBuffer::create(std::vector<ReplayField> fields,
                                          const ReplayOptions &options) {
  if (options.minPerClass < 0 || !(options.alpha >= 0) || !(options.beta >= 0))
    return Status::refused("replay: min_per_class, alpha and beta must be 0 or more");
  ReplayBuffer buffer;
  buffer.options = options;
  for (const ReplayField &field : fields) {
    buffer.offsets.push_back(buffer.sampleBytes);
    buffer.sampleBytes += field.bytes;
  }
  buffer.fieldList = std::move(fields);
  uint64_t each = buffer.sampleBytes + bookkeepingBytes;
  buffer.most = static_cast<int64_t>(options.capacityBytes / each);
  if (buffer.most < 1)
    return Status::refused(
        "replay: a sample needs " + std::to_string(each) + " bytes, the buffer has " +
        std::to_string(options.capacityBytes) + "; give it that many at least");
  auto count = static_cast<size_t>(buffer.most);
  buffer.data.resize(count * buffer.sampleBytes);
  buffer.labels.reserve(count);
  buffer.tasks.reserve(count);
  buffer.slotOf.reserve(count);
  return buffer;
}

uint64_t ReplayBuffer::below(uint64_t bound) const {
  return ReplayDraws(options.seed, static_cast<uint64_t>(seenCount), ReplayDraws::keeping)
      .below(bound);
}

int64_t ReplayBuffer::offer(std::span<const void *const> sample, int64_t label,
                            int64_t task) {
  ++seenOfClass[label];
  int64_t place = placeOf(label);
  ++seenCount;
  if (place >= 0)
    put(place, sample, label, task);
  return place;
}

int64_t ReplayBuffer::placeOf(int64_t label) {
  if (size() < most)
    return size();
  switch (options.policy) {
  case ReplayPolicy::ring: {
    int64_t place = ringNext;
    ringNext = (ringNext + 1) % most;
    return place;
  }
  case ReplayPolicy::reservoir: {
    auto place = static_cast<int64_t>(below(static_cast<uint64_t>(seenCount) + 1));
    return place < most ? place : -1;
  }
  case ReplayPolicy::balanced:
  case ReplayPolicy::prioritized:
    return placeByClass(label);
  }
  return -1;
}

/// A class that never was the largest takes the place of a sample of the largest class;
/// another one is a reservoir of its own. A class at or below its least is not taken from
/// while another one has more.
int64_t ReplayBuffer::placeByClass(int64_t label) {
  int64_t largest = 0;
  for (auto &[other, places] : byClass)
    largest = std::max(largest, static_cast<int64_t>(places.size()));
  for (auto &[other, places] : byClass)
    if (static_cast<int64_t>(places.size()) == largest)
      wasLargest[other] = true;
  auto own = static_cast<int64_t>(byClass[label].size());
  bool tooFew = own < std::min(options.minPerClass, largest);
  if ((!wasLargest[label] || tooFew) && own < largest)
    return placeInLargest(largest);
  uint64_t chosen = below(static_cast<uint64_t>(seenOfClass[label]));
  return chosen < static_cast<uint64_t>(own) ? byClass[label][chosen] : -1;
}

/// One of the samples of the classes that have `largest`.
int64_t ReplayBuffer::placeInLargest(int64_t largest) {
  uint64_t classes = 0;
  for (auto &[label, places] : byClass)
    classes += static_cast<int64_t>(places.size()) == largest;
  uint64_t chosen = below(classes * static_cast<uint64_t>(largest));
  for (auto &[label, places] : byClass) {
    if (static_cast<int64_t>(places.size()) != largest)
      continue;
    if (chosen < places.size())
      return places[chosen];
    chosen -= places.size();
  }
  return -1;
}

void ReplayBuffer::remove(int64_t index) {
  auto at = static_cast<size_t>(index);
  std::vector<int64_t> &places = byClass[labels[at]];
  auto slot = static_cast<size_t>(slotOf[at]);
  places[slot] = places.back();
  slotOf[static_cast<size_t>(places[slot])] = slotOf[at];
  places.pop_back();
}

void ReplayBuffer::put(int64_t index, std::span<const void *const> sample, int64_t label,
                       int64_t task) {
  auto at = static_cast<size_t>(index);
  if (at == labels.size()) {
    labels.push_back(label);
    tasks.push_back(task);
    slotOf.push_back(0);
  } else {
    remove(index);
    labels[at] = label;
    tasks[at] = task;
  }
  slotOf[at] = static_cast<int64_t>(byClass[label].size());
  byClass[label].push_back(index);
  for (size_t f = 0; f < fieldList.size(); ++f)
    if (fieldList[f].bytes > 0)
      std::memcpy(data.data() + at * sampleBytes + offsets[f], sample[f],
                  fieldList[f].bytes);
}

std::map<int64_t, int64_t> ReplayBuffer::classCounts() const {
  std::map<int64_t, int64_t> counts;
  for (int64_t label : labels)
    ++counts[label];
  return counts;
}

void ReplayBuffer::setForgetting(int64_t task, double bestAccuracy, double accuracy,
                                 double epochs) {
  double lost = std::max(0.0, bestAccuracy - accuracy);
  forgetting[task] = epochs > 0 ? lost / epochs : lost;
}

Result<std::vector<ReplayDraw>> ReplayBuffer::draw(int64_t count, uint64_t key) const {
  if (size() == 0)
    return Status::refused("the replay buffer is empty; show it samples before drawing");
  if (options.policy == ReplayPolicy::balanced)
    return drawBalanced(count, key);
  if (options.policy == ReplayPolicy::prioritized)
    return drawPrioritized(count, key);
  ReplayDraws random(options.seed, key, ReplayDraws::drawing);
  std::vector<ReplayDraw> draws;
  for (int64_t i = 0; i < count; ++i)
    draws.push_back({static_cast<int64_t>(random.below(labels.size())), 1});
  return draws;
}

Result<std::vector<ReplayDraw>> ReplayBuffer::drawClass(int64_t count, uint64_t key,
                                                        int64_t label) const {
  auto found = byClass.find(label);
  if (found == byClass.end() || found->second.empty())
    return Status::refused("the replay buffer has no sample of class " +
                           std::to_string(label));
  ReplayDraws random(options.seed, key, ReplayDraws::drawing);
  std::vector<ReplayDraw> draws;
  for (int64_t i = 0; i < count; ++i)
    draws.push_back({found->second[random.below(found->second.size())], 1});
  return draws;
}

/// Equal parts of all classes; which ones get what is left over turns with the key.
/// Within a class samples come in an order of their own without repeats, then again.
Result<std::vector<ReplayDraw>> ReplayBuffer::drawBalanced(int64_t count,
                                                           uint64_t key) const {
  std::vector<const std::vector<int64_t> *> classes;
  for (auto &[label, places] : byClass)
    if (!places.empty())
      classes.push_back(&places);
  ReplayDraws random(options.seed, key, ReplayDraws::drawing);
  uint64_t first = random.below(classes.size());
  std::vector<std::vector<int64_t>> left(classes.size());
  std::vector<ReplayDraw> draws;
  for (int64_t i = 0; i < count; ++i) {
    size_t at = (first + static_cast<uint64_t>(i)) % classes.size();
    if (left[at].empty())
      left[at] = *classes[at];
    uint64_t chosen = random.below(left[at].size());
    std::swap(left[at][chosen], left[at].back());
    draws.push_back({left[at].back(), 1});
    left[at].pop_back();
  }
  return draws;
}

/// Of every sample: forgetting of its task ^ alpha. The floor keeps what has not been
/// forgotten possible.
std::vector<double> ReplayBuffer::probabilities() const {
  constexpr double floor = 1e-3;
  std::vector<double> shares;
  double sum = 0;
  for (int64_t task : tasks) {
    auto found = forgetting.find(task);
    double lost = found == forgetting.end() ? 0 : found->second;
    shares.push_back(fixedPower(std::max(lost, floor), options.alpha));
    sum += shares.back();
  }
  for (double &share : shares)
    share /= sum;
  return shares;
}

/// Weights (N p)^-beta over the greatest of them (Schaul et al. 2016), so that the mean
/// loss stays that of uniform draws at beta = 1.
Result<std::vector<ReplayDraw>> ReplayBuffer::drawPrioritized(int64_t count,
                                                              uint64_t key) const {
  std::vector<double> shares = probabilities(), sums;
  double sum = 0, least = 1;
  for (double share : shares) {
    sums.push_back(sum += share);
    least = std::min(least, share);
  }
  ReplayDraws random(options.seed, key, ReplayDraws::drawing);
  std::vector<ReplayDraw> draws;
  for (int64_t i = 0; i < count; ++i) {
    auto found = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sum);
    auto index = std::min<int64_t>(found - sums.begin(), size() - 1);
    double weight = fixedPower(least / shares[static_cast<size_t>(index)], options.beta);
    draws.push_back({index, static_cast<float>(weight)});
  }
  return draws;
}

} // namespace sluice
