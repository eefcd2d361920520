#pragma once
// Parameter groups from the topology of the forward graph: parameters whose gradients are
// ready together and that little connects to the others.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// The forward graph. Nodes are in a topological order; indices are into the lists here.
struct GroupingProblem {
  struct Value {
    int64_t bytes = 0;
    /// A gradient flows through it. Masks and positions that every layer reads do not
    /// make the layers one block.
    bool carriesGradient = true;
  };
  struct Node {
    double backwardUs = 0;
    std::vector<int32_t> inputs, outputs; ///< values; graph inputs have no producer
    std::vector<int32_t> parameters;
  };
  struct Parameter {
    int64_t bytes = 0;
    /// Of rank 0 or 1 (biases, norms): goes with the block before it, never alone.
    bool small = false;
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;

  int32_t groupSize = 0; ///< blocks of a group, or
  int32_t groups = 0;    ///< the number of groups; exactly one of both is positive
  double slack = 0.05;   ///< of the balance, for fewer bytes cut
};

struct Grouping {
  struct Group {
    int64_t bytes = 0; ///< of parameters
    double us = 0;     ///< of the backward part
    int32_t blocks = 0;
  };
  /// Per parameter: its group, or -1 where no node reads it. Groups are numbered by the
  /// time when the last of their gradients is ready: group 0 is that of the last layers.
  /// A parameter of several nodes is with the one whose gradient is ready last.
  std::vector<int32_t> groupOf;
  std::vector<Group> groups;
  int32_t blocks = 0; ///< of the chain; without a chain: nodes with parameters
  bool chain = false; ///< single tensors separate the blocks
  double imbalance =
      0; ///< greatest share of bytes or time of a group over an equal share
  double leastImbalance = 0; ///< no contiguous partition of these blocks has less
  /// Bytes of values once for each other group that reads them, and how many values.
  int64_t cutBytes = 0;
  int32_t cutValues = 0;
  int64_t allBytes = 0; ///< of values with gradients: cutBytes if each were cut once
  std::string error;    ///< empty: a grouping
};

/// Ties are contracted first; then single-entry single-exit blocks where exactly one
/// value with a gradient passes from the nodes before to those behind; the chain of
/// blocks is cut exactly (partitionChain). With fewer blocks than groups the topological
/// order of the nodes is cut and refined by moving nodes to a neighbouring group where
/// all their readers or all their producers are, so that the quotient stays acyclic.
/// Deterministic.
Grouping groupByTopology(const GroupingProblem &problem);

} // namespace sluice
