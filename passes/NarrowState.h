#pragma once
// Parameters stored in 16 bits, and what completes them to f32.

#include "passes/StateSymbols.h"

namespace sluice {

class RankShards;

/// Gives a parameter the 16-bit type and, by `master`, declares beside it:
///   split  master/NAME/low, i16: with the parameter the exact f32 (bf16 only)
///   fp32   master/NAME, f32; in bf16 the parameter is its upper half as under split, so
///          that both give the same weights
///   none or empty: nothing
/// Initial values are taken over (none: rounded to the nearest, ties to even).
void storeNarrow(graph::ParameterOp parameter, mlir::FloatType narrow,
                 llvm::StringRef master, StateSymbols &state);

/// The f32 value that an update starts from: the parameter with its master, if it has
/// one.
mlir::Value readExact(graph::ParameterOp parameter, StateSymbols &state,
                      EntryReads &reads, mlir::OpBuilder &builder);

/// The same in the shape that `shards` says; of what is shared out to ranks the own rows.
mlir::Value readExact(graph::ParameterOp parameter, const RankShards &shards,
                      StateSymbols &state, EntryReads &reads, mlir::OpBuilder &builder);

/// True for a parameter without a master that updates round stochastically.
bool isRoundedStochastically(graph::ParameterOp parameter, const StateSymbols &state);
/// True for a parameter in a format of codes and scales.
bool isStoredInCodes(graph::ParameterOp parameter);

/// Writes an f32 value to the parameter and its master. Without one it is rounded
/// stochastically, by random numbers of seed, update, name and element. Where `moves`
/// (i1, scalar) does not hold, the value is the one that was read, and every bit stays.
void writeExact(graph::ParameterOp parameter, mlir::Value value, mlir::Value moves,
                StateSymbols &state, EntryReads &reads, mlir::OpBuilder &builder);

/// Writes a value in rows: the own ones to the master, all to the parameter.
void writeExact(graph::ParameterOp parameter, mlir::Value value, const RankShards &shards,
                StateSymbols &state, EntryReads &reads, mlir::OpBuilder &builder);

/// f32 in [0, 1) for one tensor of state in one update, keyed by seed, update, name and
/// element.
mlir::Value randomOfUpdate(graph::ParameterOp target, llvm::ArrayRef<int64_t> shape,
                           EntryReads &reads, mlir::OpBuilder &builder);
/// The same of rows, keyed by row and element in it.
mlir::Value randomOfRows(graph::ParameterOp target, const RankShards &shards,
                         EntryReads &reads, mlir::OpBuilder &builder);

} // namespace sluice
