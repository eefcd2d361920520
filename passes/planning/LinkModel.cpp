#include "passes/planning/LinkModel.h"

#include <algorithm>

namespace sluice {

const char *nameOf(CollectiveWay way) {
  switch (way) {
  case CollectiveWay::Alone:
    return "alone";
  case CollectiveWay::Ring:
    return "ring";
  case CollectiveWay::Tree:
    return "tree";
  case CollectiveWay::Exchange:
    return "exchange";
  case CollectiveWay::Hierarchical:
    return "hierarchical";
  }
  return "";
}

static double usPerByte(const Link &link) { return 1e6 / link.bytesPerSecond; }

/// An all-reduce is a reduce-scatter and an all-gather, equally long.
static double halves(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce ? 2 : 1;
}

CollectiveCost ringCost(CollectiveKind kind, int64_t ranks, const Link &link) {
  double others = double(ranks - 1);
  return {CollectiveWay::Ring, halves(kind) * others * link.latencyUs,
          halves(kind) * others / double(ranks) * usPerByte(link)};
}

CollectiveCost treeCost(int64_t ranks, const Link &link) {
  double rounds = 0;
  while ((int64_t{1} << int64_t(rounds)) < ranks)
    ++rounds;
  return {CollectiveWay::Tree, 2 * rounds * link.latencyUs, 2 * usPerByte(link)};
}

CollectiveCost exchangeCost(CollectiveKind kind, int64_t ranks, const Link &link,
                            double rounds) {
  CollectiveCost cost = ringCost(kind, ranks, link);
  // One round says who is there; the others are the halves.
  double needed = kind == CollectiveKind::AllReduce ? rounds : std::max(1.0, rounds - 1);
  return {CollectiveWay::Exchange, needed * link.latencyUs, cost.usPerByte};
}

CollectiveCost hierarchicalCost(CollectiveKind kind, int64_t ranks,
                                const LinkTopology &links, bool longMessages) {
  int64_t nodes = ranks / links.perNode;
  CollectiveCost inner = ringCost(kind, links.perNode, links.within);
  CollectiveCost outer = ringCost(kind, nodes, links.between);
  if (kind == CollectiveKind::AllReduce) {
    CollectiveCost tree = treeCost(nodes, links.between);
    if (longMessages ? tree.usPerByte < outer.usPerByte
                     : tree.latencyUs < outer.latencyUs)
      outer = tree;
  }
  return {CollectiveWay::Hierarchical, inner.latencyUs + outer.latencyUs,
          inner.usPerByte + outer.usPerByte / double(links.perNode)};
}

bool spansNodes(int64_t ranks, const LinkTopology &links) {
  return links.perNode > 0 && ranks > links.perNode;
}

std::vector<CollectiveCost> collectiveWays(CollectiveKind kind, int64_t ranks,
                                           const LinkTopology &links) {
  if (ranks <= 1)
    return {{}};
  Link link = links.within;
  bool several = spansNodes(ranks, links);
  if (several) { // a ring or a tree over all is as fast as its slowest link
    link.bytesPerSecond = std::min(link.bytesPerSecond, links.between.bytesPerSecond);
    link.latencyUs = std::max(link.latencyUs, links.between.latencyUs);
  }
  if (links.rounds > 0)
    return {exchangeCost(kind, ranks, link, links.rounds)};
  std::vector<CollectiveCost> ways = {ringCost(kind, ranks, link)};
  if (kind == CollectiveKind::AllReduce)
    ways.push_back(treeCost(ranks, link));
  if (several && ranks % links.perNode == 0)
    for (bool longMessages : {true, false})
      ways.push_back(hierarchicalCost(kind, ranks, links, longMessages));
  return ways;
}

const CollectiveCost &fastestWay(const std::vector<CollectiveCost> &ways, int64_t bytes) {
  return *std::min_element(ways.begin(), ways.end(),
                           [bytes](const CollectiveCost &a, const CollectiveCost &b) {
                             return a.us(bytes) < b.us(bytes);
                           });
}

} // namespace sluice
