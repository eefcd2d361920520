#pragma once
// Elementwise regions over any number of elements: one kernel for tensors of all shapes.
//
// The update of a parameter is the same computation for every tensor of its optimizer. In
// its elastic form a region has lost the tensor's shape: operands are single numbers or
// as long as the tensor, which stands for any length; operations are in the order that
// the results need them. So regions that compute the same are the same kernel, and
// launches of it can be merged (MergeUpdates).

#include "ir/graph/Graph.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace sluice {

/// How a region's operands become those of its elastic form.
struct ElasticForm {
  int64_t elements = 0;
  llvm::SmallVector<unsigned> inputs;  ///< of the region, in the order of the form
  llvm::SmallVector<unsigned> outputs; ///< the same
};

/// The elements of every result of the region, if its operands and operations are
/// elementwise over them or single numbers; nothing for other regions.
std::optional<int64_t> elasticElements(graph::RegionOp region);

/// Builds the elastic form of a region that has `elasticElements` as the only operation
/// of `block`, with arguments for its inputs. `outputs` is the order of the results.
ElasticForm buildElasticForm(graph::RegionOp region, llvm::ArrayRef<unsigned> outputs,
                             mlir::Block &block);

bool isElastic(graph::RegionOp region);

/// On an elastic region whose kernel goes through a matrix tile by tile: the number of
/// its input that lies tile by tile, [unit][unitRows][unitCols], all others as always.
inline constexpr llvm::StringLiteral tileInputAttr = "tile_input";
std::optional<unsigned> tileInput(graph::RegionOp region);

/// Parameters of such a kernel. A unit is a tile; those of a row of tiles come one behind
/// the other.
struct TileParams {
  int64_t elements = 0; ///< rows * cols
  int64_t rows = 0, cols = 0, unitRows = 0, unitCols = 0;

  static constexpr size_t count = 5;
  llvm::SmallVector<int64_t> pack() const;
  static std::optional<TileParams> unpack(llvm::ArrayRef<int64_t> params);
  int64_t units() const;
  int64_t tileElements() const { return unitRows * unitCols; }
};

/// Units of a launch over so many elements, and how many of them are a chunk of a launch.
int64_t elasticUnits(int64_t elements);
int64_t elasticChunk(int64_t elements, int64_t units);

/// Bytes of an operand or result of an elastic region over so many elements.
int64_t elasticBytes(mlir::Type type, int64_t elements);

} // namespace sluice
