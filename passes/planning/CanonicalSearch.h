#pragma once
// The state of one exact search: where each block may still go, and how to take a choice
// back.

#include "passes/planning/PlacementSearch.h"

namespace sluice {

/// Orders that candidates of equal offset are tried in: Width (lifetime in sections),
/// Area, Total (largest load of the block's sections). Each is good on some problems and
/// hopeless on others.
enum class SearchKey { WidthAreaTotal, TotalAreaWidth, TotalWidthArea };

/// A part of the problem that shares no section with the rest.
struct SearchPart {
  std::vector<int32_t> ranked; // blocks not placed yet, best first
  int32_t firstSection, endSection;
};

struct SearchCandidate {
  int64_t offset;
  int32_t rank; // in SearchPart::ranked

  bool operator<(const SearchCandidate &other) const {
    return offset != other.offset ? offset < other.offset : rank < other.rank;
  }
};

class CanonicalSearch {
public:
  CanonicalSearch(const PlacementModel &model, int64_t capacity);
  SearchResult run(SearchKey key, int64_t nodeLimit);

  int64_t nodes = 0; // visited in the last run, large ones counted as several
  std::vector<int64_t> solution;

private:
  struct Change {
    int32_t index;
    int64_t old;
  };

  void reset();
  SearchResult solvePart(std::vector<int32_t> blocks, int32_t firstSection,
                         int32_t endSection);
  SearchResult search(const SearchPart &part, const std::vector<SearchCandidate> &parent,
                      SearchCandidate last);
  std::vector<SearchCandidate> openCandidates(const SearchPart &part,
                                              const std::vector<SearchCandidate> &parent,
                                              int64_t &dominated) const;
  SearchResult tryCandidate(const SearchPart &part,
                            const std::vector<SearchCandidate> &candidates,
                            SearchCandidate candidate, bool &covered);
  SearchResult splitOrSearch(const SearchPart &part,
                             const std::vector<SearchCandidate> &candidates,
                             SearchCandidate chosen);
  bool raiseNeighbors(int32_t block, bool &fixedHit);
  void raiseFloors(int32_t block);
  bool mayFit(const SearchPart &part, int64_t offset) const;
  void undo(int32_t block, size_t offsetMark, size_t floorMark);

  const PlacementModel &model;
  const int64_t capacity;
  SearchKey key = SearchKey::WidthAreaTotal;
  int64_t nodeLimit = 0;

  std::vector<int64_t> neighborBegin, memberBegin;
  std::vector<int32_t> neighbors, members; // of blocks; of sections

  std::vector<int64_t> offsets;    // of blocks; -1: not placed
  std::vector<int64_t> minOffsets; // of blocks: lowest place above all placed neighbors
  std::vector<int64_t> floors;     // of sections: nothing more is placed below
  std::vector<int64_t> pending;    // of sections: bytes not placed yet
  std::vector<int32_t> crossing;   // blocks not placed that span sections s and s + 1
  std::vector<Change> offsetTrail, floorTrail; // undone from the back
  std::vector<int32_t> touched;                // sections whose floor may rise; scratch
  std::vector<int64_t> stamp;                  // of sections, for `touched`
  int64_t stampNow = 0;
};

} // namespace sluice
