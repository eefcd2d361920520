#pragma once
// Sets of operations of one block that become regions.

#include "passes/RegionDomain.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <memory>
#include <vector>

namespace sluice {

class RegionClusters {
public:
  explicit RegionClusters(mlir::Block &block);

  /// Puts every operation that a generated kernel may hold into a cluster; without `fuse`
  /// each into its own.
  void grow(bool fuse);
  /// Makes each cluster a `graph.region` and sorts the block.
  void outline();

private:
  struct Cluster {
    std::vector<mlir::Operation *> ops; // in block order
    int64_t elements = 0, units = 0;    // of its domain
    int64_t index = 0;                  // in order of creation
    int64_t depth = 0;
  };

  void number();
  Cluster *clusterOf(mlir::Operation *op) const { return clusters.lookup(op); }
  void add(mlir::Operation *op, bool fuse);
  void cloneIntoUsers(mlir::Operation *op);
  bool isReadByFewClusters(mlir::Operation *op) const;
  mlir::FailureOr<RegionDomain> fit(llvm::ArrayRef<mlir::Operation *> ops) const;
  bool tryJoin(mlir::Operation *op, Cluster &cluster);
  bool joinOnlyUser(mlir::Operation *op);
  bool joinFirstUser(mlir::Operation *op);
  bool joinUpdate(mlir::Operation *op);
  void joinResets(mlir::Operation *constant);
  bool startCluster(mlir::Operation *op);
  bool wouldCycle(mlir::Operation *op, const Cluster &cluster) const;
  /// What is placed lies deeper than all that must run after it: whatever reaches a
  /// cluster is deeper than the cluster. Zero for what is not placed yet.
  int64_t depthOf(mlir::Operation *op) const;
  void setDepth(mlir::Operation *op, int64_t depth);
  void raiseDepths(mlir::Operation *placed);
  std::vector<Cluster *> userClusters(mlir::Operation *op) const;
  void outlineCluster(const Cluster &cluster);

  // RegionMoves.cpp: concatenations and slices that are read where they lie.
  struct MoveReader;
  bool readInPlace(mlir::Operation *move);
  bool isNearSource(graph::SliceOp slice) const;
  std::optional<llvm::SmallVector<mlir::Operation *>> loneReaders(mlir::Operation *move);
  bool prepare(mlir::Operation *move, Cluster &cluster, MoveReader &reader);
  void undo(MoveReader &reader);
  void commit(MoveReader &reader);
  graph::ConcatOp withPieces(graph::ConcatOp outer, graph::ConcatOp inner);

  mlir::Block &block;
  std::vector<std::unique_ptr<Cluster>> owned;
  llvm::DenseMap<mlir::Operation *, Cluster *> clusters;
  llvm::DenseMap<mlir::Operation *, int64_t> position;
  llvm::StringMap<Cluster *> updates; // by tensor: what its new state is computed in
  llvm::DenseMap<mlir::Operation *, int64_t> loneDepth; // of what is in no cluster
};

} // namespace sluice
