#pragma once
// The exact part of FormatAssignment: what the relaxation leaves open.

#include "passes/planning/FormatAssignment.h"

#include <algorithm>

namespace sluice {

/// For the price p of a byte of a relaxed solution, every choice within the budget has
/// the increase dual + sum of reduced costs + p * bytes left over, all terms but the
/// first not negative. So options with a reduced cost above the gap of the best choice
/// known are out; the items with others are decided one by one, largest first. A partial
/// choice (the rest stands as the relaxation has it) is dropped when another has as few
/// bytes and as low an increase, or when the relaxation of the rest reaches the gap.
class FormatCore {
public:
  FormatCore(const FormatProblem &problem, const FormatSolution &relaxed);

  /// Keeps at most `width` partial choices at a time, those with the lowest bounds.
  void enumerate(size_t width);
  /// No choice is lower than this above the dual bound.
  double least() const { return std::min(gap, leastDropped); }
  bool isComplete() const { return leastDropped >= gap; }
  int64_t states() const { return static_cast<int64_t>(all.size()); }
  std::vector<int32_t> best() const { return known; }

private:
  struct Option {
    int32_t index;
    int64_t bytes; // more than the base choice's
    double cost;   // reduced
  };
  struct Entry {
    int32_t item;
    std::vector<Option> options; // the base choice first
    int64_t range = 0;           // most bytes that a choice moves
  };
  struct State {
    int64_t bytes; // more than all base choices together
    double cost, bound;
    int32_t parent, option; // of `all`; of the entry
  };
  /// Of an entry, to an option with more or fewer bytes.
  struct Move {
    double price; // change of the increase for each byte, as a positive number
    int32_t entry, option;
    int64_t bytes; // of this move alone, positive
  };
  /// The relaxation of the entries that are not decided, at any bytes left.
  struct Rest {
    std::vector<int32_t> moves;       // of `up` or `down`
    std::vector<int64_t> bytes = {0}; // sums
    std::vector<double> cost = {0};
  };

  void addEntry(int32_t item);
  void addMoves(int32_t entry);
  Rest restOf(const std::vector<Move> &moves, size_t from, double sign) const;
  double boundOf(const State &state) const;
  void complete(const State &state);
  std::vector<State> extend(const std::vector<State> &from, size_t at);
  void keepUndominated(std::vector<State> &states) const;
  void keepLowest(std::vector<State> &states, size_t width);

  const FormatProblem &problem;
  double price;
  std::vector<int32_t> base, known; // choices
  int64_t room = 0;                 // budget less the bytes of the base choice
  double gap = 0, leastDropped;     // above the dual bound
  std::vector<Entry> entries;
  std::vector<Move> up, down; // best first
  Rest restUp, restDown;      // of the entries that are not decided
  struct Kept {
    int32_t parent, option, entry;
  };
  std::vector<Kept> all;
};

} // namespace sluice
