#pragma once
// Squared gradients of single samples, summed over the batch, without running the samples
// one by one.
//
// As long as no value mixes samples, the backward part of a batch has the cotangents of
// all samples side by side. Only where a parameter meets a value that has samples are
// these summed; there the sum is taken apart:
//
//   a product with one row per sample:   the squared sum of outer products is the product
//                                        of the squares, (x^2)^T (dy^2)
//   a vector repeated along the samples: the cotangent's rows, squared, then summed
//   all else:                            the operation's own gradient of each sample's
//                                        slice, squared, one after the other
//
// A parameter that is used more than once is of the last kind: its gradients are summed
// before they are squared.

#include "passes/SampleAxis.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <string>

namespace sluice {

class SampleGradients {
public:
  /// Of an entry of core operations whose batched arguments are marked.
  SampleGradients(mlir::func::FuncOp entry, int64_t batch);

  /// `loss` is a sum over samples with the cotangent 1, or a value with samples and its
  /// cotangent. Fails without a diagnostic, with `reason` set, where the samples cannot
  /// be told apart; the entry then has operations without effect.
  mlir::LogicalResult run(mlir::Value loss, mlir::Value cotangent);

  /// By symbol, in the order in which they are read.
  const llvm::MapVector<llvm::StringRef, mlir::Value> &squares() const { return sums; }
  std::string reason;

private:
  /// An operand without samples, from which trainable parameters are reached, of an
  /// operation with samples.
  struct Boundary {
    mlir::Operation *op = nullptr;
    unsigned operand = 0;
    mlir::Value cotangent; // of the result
  };
  /// How a boundary's operand comes from one parameter.
  struct Chain {
    graph::ReadOp read;                         // null: not so simply
    llvm::SmallVector<mlir::Operation *> views; // from the operand to the parameter
  };
  /// The dimension that counts samples, and rows of one.
  struct Place {
    int64_t dimension = 0, rows = 1;
  };

  bool hasSamples(mlir::Value value) const {
    return axes.of(value).kind == SampleAxis::At;
  }
  bool isActive(mlir::Value value) const { return active.contains(value); }
  mlir::LogicalResult refuse(mlir::Operation *op, const char *why);
  std::optional<Place> placeOf(mlir::Value value) const;

  void findActive();
  void accumulate(llvm::DenseMap<mlir::Value, mlir::Value> &into, mlir::Value value,
                  mlir::Value part);
  bool isSum(mlir::Operation *op) const;
  mlir::LogicalResult propagate(mlir::Operation *op);
  mlir::LogicalResult gradientOf(mlir::Operation *op, mlir::Value cotangent,
                                 llvm::ArrayRef<bool> needed,
                                 llvm::SmallVectorImpl<mlir::Value> &gradients);

  Chain chainOf(const Boundary &boundary) const;
  void sortBoundaries();
  mlir::Value squaresOfRows(const Boundary &boundary, const Chain &chain);
  mlir::Value squaresOfProduct(const Boundary &boundary, const Chain &chain);
  mlir::Value squaresOfRepeated(const Boundary &boundary, const Chain &chain);
  mlir::Value backThrough(llvm::ArrayRef<mlir::Operation *> views, mlir::Value value);

  mlir::LogicalResult addSample(int64_t sample);
  mlir::LogicalResult addPart(const Boundary &boundary, int64_t sample,
                              llvm::DenseMap<mlir::Value, mlir::Value> &cotangents);
  mlir::Value slice(mlir::Value value, Place place, int64_t sample);

  mlir::func::FuncOp entry;
  int64_t batch;
  SampleAxes axes;
  mlir::OpBuilder builder;
  llvm::SmallVector<mlir::Operation *> forward;
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents;
  llvm::SmallVector<Boundary> boundaries, unrolled;
  llvm::MapVector<llvm::StringRef, mlir::Value> sums;
  llvm::DenseSet<llvm::StringRef> oneByOne; // parameters of the last kind
};

} // namespace sluice
