#pragma once
// Parameters stored as codes of a few bits with scales beside them
// (kernels/StoredFormats.h): declarations, reads and writes.

#include "kernels/StoredFormats.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// On the declaration of a parameter: the format, and the shape of its values.
inline constexpr llvm::StringLiteral storedFormatAttr = "graph.format";
inline constexpr llvm::StringLiteral valueShapeAttr = "graph.value_shape";
/// On the declaration of a parameter: the form of its moments, where a rule gives one.
inline constexpr llvm::StringLiteral momentsAttr = "graph.moments";

/// None where a parameter is stored as its type says.
std::optional<StoredFormat> storedFormatOf(graph::ParameterOp parameter);
/// The type of a parameter's values; of a parameter stored in a format f32.
mlir::RankedTensorType valueTypeOf(graph::ParameterOp parameter);

/// Stores an f32 parameter in a format from now on, its initial values with it; scales
/// are the state "scale/NAME/blocks" and "scale/NAME/tensor". `keepsMaster` declares
/// master/NAME, f32, which updates read and write; `isDelayed` the history of a scale
/// (DelayedScale.h).
void storeAs(graph::ParameterOp parameter, StoredFormat format, bool keepsMaster,
             bool isDelayed, StateSymbols &state);

/// Codes and scales, as `graph.dequantize` takes them.
llvm::SmallVector<mlir::Value> readStored(graph::ParameterOp parameter,
                                          StateSymbols &state, EntryReads &reads);
/// The f32 values, for one reader: see `site` of `graph.dequantize`.
mlir::Value decodeStored(graph::ParameterOp parameter, mlir::ValueRange stored,
                         int64_t site, mlir::OpBuilder &builder);

/// Writes codes of an f32 value and their scales where `moves` (i1, scalar) holds, else
/// keeps every bit. `noise` (null: to nearest) rounds stochastically.
void writeStored(graph::ParameterOp parameter, mlir::Value value, mlir::Value noise,
                 mlir::Value moves, StateSymbols &state, EntryReads &reads,
                 mlir::OpBuilder &builder);

} // namespace sluice
