#pragma once
// What a collective of N ranks costs on given links: a latency for each of its rounds and
// a time for each byte (the alpha-beta model), in closed form, for each way to do it.
//
// S bytes, n ranks, a link of latency A and rate B:
//   ring          all-reduce 2 (n - 1) A + 2 (n - 1) / n S / B; half of it otherwise
//   tree          all-reduce 2 ceil(log2 n) A + 2 S / B (double binary tree)
//   exchange      every rank with every other: 2 (n - 1) / n S / B in a fixed number of
//                 rounds, whatever n
//   hierarchical  reduce-scatter within each node, all-reduce of S / g between the m
//                 nodes (each of a node's g ranks with its own part), all-gather within

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// Of one rank, one direction.
struct Link {
  double bytesPerSecond = 1e9, latencyUs = 0;
};

/// What a message takes from the launches beside it, where the threads that send, sum and
/// receive have no processor of their own; while launches wait it costs nothing.
struct HostWork {
  double usPerMessage = 0, usPerByte = 0;
  double us(int64_t bytes) const { return usPerMessage + usPerByte * double(bytes); }
};

/// Such work that is still to be done.
class HostDebt {
public:
  void add(double us) { left += us; }
  /// Launches wait so long.
  void pass(double us) { left = left > us ? left - us : 0; }
  /// A launch runs: all of it, beside the launch.
  double take() {
    double all = left;
    left = 0;
    return all;
  }

private:
  double left = 0;
};

struct LinkTopology {
  Link within;         ///< to ranks of the same node
  int64_t perNode = 0; ///< ranks of a node; 0: all ranks are on one
  Link between;        ///< of each rank to those of other nodes
  double rounds = 0;   ///< of an exchange between all pairs; 0: rings and trees
  HostWork host = {};
};

enum class CollectiveKind { AllReduce, ReduceScatter, AllGather };
enum class CollectiveWay { Alone, Ring, Tree, Exchange, Hierarchical };
const char *nameOf(CollectiveWay way);

/// A message of S bytes takes latency + S x time of a byte.
struct CollectiveCost {
  CollectiveWay way = CollectiveWay::Alone;
  double latencyUs = 0, usPerByte = 0;
  double us(int64_t bytes) const { return latencyUs + usPerByte * double(bytes); }
};

CollectiveCost ringCost(CollectiveKind kind, int64_t ranks, const Link &link);
/// Of an all-reduce.
CollectiveCost treeCost(int64_t ranks, const Link &link);
CollectiveCost exchangeCost(CollectiveKind kind, int64_t ranks, const Link &link,
                            double rounds);
/// `ranks` is a multiple of `perNode`; between nodes the cheaper of ring and tree for
/// long (`longMessages`) or short messages.
CollectiveCost hierarchicalCost(CollectiveKind kind, int64_t ranks,
                                const LinkTopology &links, bool longMessages);

/// All that can be done on the links; none is better than another for every size.
std::vector<CollectiveCost> collectiveWays(CollectiveKind kind, int64_t ranks,
                                           const LinkTopology &links);
/// The fastest for so many bytes; `ways` is not empty.
const CollectiveCost &fastestWay(const std::vector<CollectiveCost> &ways, int64_t bytes);

/// Whether ranks lie on several nodes, so that the links between them count.
bool spansNodes(int64_t ranks, const LinkTopology &links);

} // namespace sluice
