#include "passes/planning/CanonicalSearch.h"

#include "passes/planning/GreedyPlacement.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sluice {

/// Where hundreds of blocks live at once a node is dear: it counts as several, one for so
/// many blocks looked at.
static constexpr int64_t visitsPerNode = 2048;

CanonicalSearch::CanonicalSearch(const PlacementModel &model, int64_t capacity)
    : model(model), capacity(capacity) {
  listOverlaps(model, neighborBegin, neighbors);
  memberBegin.assign(size_t(model.sections) + 1, 0);
  for (const PlacementBlock &block : model.blocks)
    for (int32_t s = block.firstSection; s < block.endSection; ++s)
      ++memberBegin[size_t(s) + 1];
  std::partial_sum(memberBegin.begin(), memberBegin.end(), memberBegin.begin());
  members.resize(size_t(memberBegin.back()));
  std::vector<int64_t> next(memberBegin.begin(), memberBegin.end() - 1);
  for (size_t i = 0; i < model.blocks.size(); ++i)
    for (int32_t s = model.blocks[i].firstSection; s < model.blocks[i].endSection; ++s)
      members[size_t(next[s]++)] = int32_t(i);
}

void CanonicalSearch::reset() {
  size_t sections = size_t(model.sections);
  offsets.assign(model.blocks.size(), -1);
  solution.assign(model.blocks.size(), -1);
  minOffsets.assign(model.blocks.size(), 0);
  floors.assign(sections, 0);
  pending.assign(sections, 0);
  crossing.assign(sections, 0);
  stamp.assign(sections, 0);
  stampNow = 0;
  offsetTrail.clear();
  floorTrail.clear();
  nodes = 0;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const PlacementBlock &block = model.blocks[i];
    if (block.fixed())
      minOffsets[i] = block.fixedOffset;
    for (int32_t s = block.firstSection; s < block.endSection; ++s) {
      pending[s] += block.size;
      crossing[s] += s + 1 < block.endSection;
    }
  }
}

SearchResult CanonicalSearch::run(SearchKey newKey, int64_t newLimit) {
  key = newKey;
  nodeLimit = newLimit;
  reset();
  // Split where no block crosses; each part is solved alone.
  int32_t first = 0;
  for (int32_t s = 0; s < model.sections; ++s) {
    if (crossing[s] != 0)
      continue;
    std::vector<int32_t> blocks;
    for (size_t i = 0; i < model.blocks.size(); ++i)
      if (model.blocks[i].firstSection >= first && model.blocks[i].endSection <= s + 1)
        blocks.push_back(int32_t(i));
    SearchResult result = solvePart(std::move(blocks), first, s + 1);
    if (result != SearchResult::Found)
      return result;
    first = s + 1;
  }
  return SearchResult::Found;
}

SearchResult CanonicalSearch::solvePart(std::vector<int32_t> blocks, int32_t firstSection,
                                        int32_t endSection) {
  struct Rank {
    double width, area, total;
    int32_t block;
  };
  std::vector<Rank> ranks;
  for (int32_t index : blocks) {
    const PlacementBlock &block = model.blocks[index];
    int64_t total = *std::max_element(pending.begin() + block.firstSection,
                                      pending.begin() + block.endSection);
    ranks.push_back({double(block.lifetime), block.area(), double(total), index});
  }
  auto fields = [&](const Rank &r) -> std::array<double, 3> {
    switch (key) {
    case SearchKey::WidthAreaTotal:
      return {r.width, r.area, r.total};
    case SearchKey::TotalAreaWidth:
      return {r.total, r.area, r.width};
    case SearchKey::TotalWidthArea:
      break;
    }
    return {r.total, r.width, r.area};
  };
  std::sort(ranks.begin(), ranks.end(), [&](const Rank &a, const Rank &b) {
    auto x = fields(a), y = fields(b);
    return x != y ? x > y : a.block < b.block;
  });
  SearchPart part{{}, firstSection, endSection};
  std::vector<SearchCandidate> candidates;
  for (const Rank &rank : ranks) {
    candidates.push_back({0, int32_t(part.ranked.size())});
    part.ranked.push_back(rank.block);
  }
  return search(part, candidates, {0, 0});
}

/// Those of the parent's candidates that are still open, by offset, then rank.
/// `dominated` is the lowest end one of them could have: no block may be placed at or
/// above it, as that block would fit below.
std::vector<SearchCandidate>
CanonicalSearch::openCandidates(const SearchPart &part,
                                const std::vector<SearchCandidate> &parent,
                                int64_t &dominated) const {
  std::vector<SearchCandidate> candidates;
  candidates.reserve(parent.size());
  dominated = INT64_MAX;
  for (const SearchCandidate &candidate : parent) {
    int32_t block = part.ranked[candidate.rank];
    if (offsets[block] >= 0)
      continue;
    candidates.push_back({minOffsets[block], candidate.rank});
    dominated = std::min(dominated, minOffsets[block] + model.blocks[block].size);
  }
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

/// `parent` are the candidates of the caller, of which one has been placed since: `last`.
SearchResult CanonicalSearch::search(const SearchPart &part,
                                     const std::vector<SearchCandidate> &parent,
                                     SearchCandidate last) {
  if (nodes >= nodeLimit)
    return SearchResult::OutOfNodes;
  ++nodes;
  int64_t dominated;
  std::vector<SearchCandidate> candidates = openCandidates(part, parent, dominated);
  if (candidates.empty()) {
    for (int32_t block : part.ranked)
      solution[block] = offsets[block];
    return SearchResult::Found;
  }
  for (const SearchCandidate &candidate : candidates) {
    if (candidate.offset >= dominated)
      break;
    if (candidate < last) // canonical order: rising offsets, equal offsets by rank
      continue;
    const PlacementBlock &block = model.blocks[part.ranked[candidate.rank]];
    if (block.fixed() && candidate.offset > block.fixedOffset)
      continue;
    bool covered = false;
    SearchResult result = tryCandidate(part, candidates, candidate, covered);
    if (result != SearchResult::Infeasible)
      return result;
    // With no open block above it, placing it here takes nothing from the others: no
    // alternative is better.
    if (!covered)
      break;
  }
  return SearchResult::Infeasible;
}

/// Places the block, searches on, and takes it back. `covered`: an open block lies above
/// it.
SearchResult CanonicalSearch::tryCandidate(const SearchPart &part,
                                           const std::vector<SearchCandidate> &candidates,
                                           SearchCandidate candidate, bool &covered) {
  int32_t block = part.ranked[candidate.rank];
  size_t offsetMark = offsetTrail.size(), floorMark = floorTrail.size();
  offsets[block] = candidate.offset;
  ++stampNow;
  touched.clear();
  bool fixedHit = false;
  covered = raiseNeighbors(block, fixedHit);
  raiseFloors(block);
  SearchResult result = SearchResult::Infeasible;
  if (!fixedHit && mayFit(part, candidate.offset))
    result = splitOrSearch(part, candidates, candidate);
  undo(block, offsetMark, floorMark);
  return result;
}

/// Lifts the open neighbors of a block just placed above it. False when there are none.
bool CanonicalSearch::raiseNeighbors(int32_t block, bool &fixedHit) {
  bool covered = false;
  int64_t top = offsets[block] + model.blocks[block].size;
  for (int64_t i = neighborBegin[block]; i < neighborBegin[block + 1]; ++i) {
    int32_t other = neighbors[size_t(i)];
    if (offsets[other] >= 0)
      continue;
    covered = true;
    if (minOffsets[other] >= top)
      continue;
    const PlacementBlock &raised = model.blocks[other];
    offsetTrail.push_back({other, minOffsets[other]});
    minOffsets[other] = roundUp(top, raised.align);
    fixedHit |= raised.fixed() && minOffsets[other] > raised.fixedOffset;
    for (int32_t s = raised.firstSection; s < raised.endSection; ++s)
      if (stamp[s] != stampNow) {
        stamp[s] = stampNow;
        touched.push_back(s);
      }
  }
  return covered;
}

/// The floor of a section is at least the top of its last placed block, and the lowest
/// place any of its open blocks could have.
void CanonicalSearch::raiseFloors(int32_t index) {
  const PlacementBlock &block = model.blocks[index];
  for (int32_t s = block.firstSection; s < block.endSection; ++s) {
    floorTrail.push_back({s, floors[s]});
    floors[s] = offsets[index] + block.size;
    pending[s] -= block.size;
  }
  int64_t visits = 0;
  for (int32_t s : touched) {
    int64_t lowest = INT64_MAX;
    // One open block that may lie at the floor settles it, and mostly comes early.
    for (int64_t i = memberBegin[s]; i < memberBegin[s + 1] && lowest > floors[s]; ++i) {
      int32_t member = members[size_t(i)];
      ++visits;
      if (offsets[member] < 0)
        lowest = std::min(lowest, minOffsets[member]);
    }
    if (lowest != INT64_MAX && floors[s] < lowest) {
      floorTrail.push_back({s, floors[s]});
      floors[s] = lowest;
    }
  }
  nodes += visits / visitsPerNode;
}

/// In each section what is open must fit between its floor and the capacity; as offsets
/// only rise, no floor of the part is below the last offset.
bool CanonicalSearch::mayFit(const SearchPart &part, int64_t offset) const {
  for (int32_t s = part.firstSection; s < part.endSection; ++s)
    if (std::max(offset, floors[s]) + pending[s] > capacity)
      return false;
  return true;
}

void CanonicalSearch::undo(int32_t index, size_t offsetMark, size_t floorMark) {
  for (; floorTrail.size() > floorMark; floorTrail.pop_back())
    floors[floorTrail.back().index] = floorTrail.back().old;
  const PlacementBlock &block = model.blocks[index];
  for (int32_t s = block.firstSection; s < block.endSection; ++s)
    pending[s] += block.size;
  for (; offsetTrail.size() > offsetMark; offsetTrail.pop_back())
    minOffsets[offsetTrail.back().index] = offsetTrail.back().old;
  offsets[index] = -1;
}

/// Where the placed block was the last to cross between two sections, the part falls
/// apart.
SearchResult
CanonicalSearch::splitOrSearch(const SearchPart &part,
                               const std::vector<SearchCandidate> &candidates,
                               SearchCandidate chosen) {
  int32_t index = part.ranked[chosen.rank];
  const PlacementBlock &block = model.blocks[index];
  solution[index] = offsets[index];
  std::vector<int32_t> cuts;
  for (int32_t s = block.firstSection; s + 1 < block.endSection; ++s)
    if (--crossing[s] == 0)
      cuts.push_back(s + 1);

  SearchResult result = SearchResult::Found;
  if (cuts.empty()) {
    result = search(part, candidates, chosen);
  } else {
    cuts.push_back(part.endSection);
    int32_t first = part.firstSection;
    for (int32_t end : cuts) {
      std::vector<int32_t> blocks;
      for (int32_t other : part.ranked)
        if (offsets[other] < 0 && model.blocks[other].firstSection >= first &&
            model.blocks[other].endSection <= end)
          blocks.push_back(other);
      if (!blocks.empty())
        result = solvePart(std::move(blocks), first, end);
      if (result != SearchResult::Found)
        break;
      first = end;
    }
  }
  for (int32_t s = block.firstSection; s + 1 < block.endSection; ++s)
    ++crossing[s];
  return result;
}

} // namespace sluice
