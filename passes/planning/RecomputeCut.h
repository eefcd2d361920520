#pragma once
// The recompute placement seen at one instant, as a minimum cut for a price of memory.

#include "passes/planning/MinCut.h"
#include "passes/planning/RecomputeCertificate.h"
#include "passes/planning/RecomputeGraph.h"

namespace sluice {

/// While backward operation j runs, forward values are resident or not. What operations
/// from j on need and is not resident must be computed again, from what is resident. With
/// a price per resident byte the cheapest choice is a minimum cut: for a value v the node
/// A(v) means "available behind the instant", for an operation o the node R(o) means
/// "runs again"; source side is true.
///   A(v) -> R(producer of v)   price * bytes of v: resident
///   R(o) -> sink               cost of o: runs again
///   R(o) -> A(u), u input of o infinite: runs again only if its inputs are available
///   source -> A(v)             infinite: read by an operation behind j
/// Inputs of j itself are resident and free.
class RecomputeCut {
public:
  /// A choice of the residents: microseconds of what runs again, bytes that are resident.
  struct Choice {
    double us = 0;
    int64_t bytes = 0;
    std::vector<char> sourceSide; // by node
  };
  /// Two neighbors on the lower hull of (bytes, us) around a budget.
  struct Bracket {
    const Choice *lean = nullptr; ///< fits; null if nothing fits
    const Choice *rich = nullptr; ///< does not fit; null if the fastest choice fits
    double price = 0;             ///< microseconds per byte
  };

  enum class Purpose { Bound, Plan };

  RecomputeCut(const RecomputeGraph &graph, int32_t op, Purpose purpose = Purpose::Bound);

  int32_t op() const { return instant; }
  /// Bytes at the instant beside the residents chosen here.
  int64_t fixedBytes() const { return fixed; }
  int64_t leastBytes() const { return choices.front().bytes; }

  /// By the iteration of two lines (Eisner and Severance 1976): cuts at the price where
  /// the lines of the two choices meet, until nothing lies below. Cuts are remembered.
  Bracket bracket(int64_t residentBytes);

  /// Lower bound on the microseconds run again with that many resident bytes.
  double boundUs(int64_t residentBytes);

  /// The flow that proves it, for RecomputeCertificate.
  RecomputeCertificate certificate(int64_t budgetBytes);

  /// Forward values resident under a choice, those of the instant's own inputs included.
  std::vector<char> keptBy(const Choice &choice) const;
  /// A choice between the two of a bracket: it starts as `lean` and takes over connected
  /// components of the difference, late or early layers first, while the bytes fit.
  std::vector<char> mix(const Bracket &bracket, int64_t residentBytes,
                        bool lateFirst) const;

private:
  void build(Purpose purpose);
  int32_t nodeOfValue(int32_t value);
  bool mayRunBehind(int32_t o) const { return graph.rerun[o] || !ranBefore[o]; }
  void setPrice(double price);
  Choice solve();
  Choice leastChoice();
  int64_t bytesOf(int32_t value, const std::vector<char> &side) const;

  const RecomputeGraph &graph;
  int32_t instant;
  int64_t fixed = 0;
  double unitUs = 1;           // microseconds per unit of capacity
  std::vector<char> ranBefore; // by operation: certainly has run before the instant
  std::vector<char> needy;     // by operation: what it reads must be available
  std::vector<int32_t> valueNode, opNode, values, ops; // nodes; -1 where there is none
  std::vector<int32_t> saveArc, costArc;               // by position in values and ops
  struct InputArc {
    int32_t op, value, arc;
  };
  std::vector<InputArc> inputArcs;
  MinCut network{2};
  std::vector<Choice> choices; // by bytes, ascending
  std::vector<char> adjacent;  // choices i and i + 1 have nothing below their line
};

} // namespace sluice
