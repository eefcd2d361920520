#pragma once
// The state of optimizers in fewer bytes than it is computed in.

#include "kernels/StoredFormats.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// How the moments of one parameter are kept (`precision.optimizer_state`).
struct MomentForm {
  enum Kind {
    F32,
    Bf16,  ///< rounded stochastically: what decays slowly would stand still otherwise
    Int8,  ///< codes of the dynamic map, in blocks with their largest magnitude
    Fp8,   ///< e4m3 codes, in blocks whose range is expanded to that of the format
    Stored ///< as parameters are: `format`, rounded stochastically
  };
  Kind kind = F32;
  int64_t block = 0; ///< Int8, Fp8: elements of one, in row-major order
  StoredFormat format = StoredFormat::fp32; ///< Stored
  bool hasBlocks() const { return block > 0; }

  /// bf16 for all; int8 and fp8 for tensors of rank 2 and above with 4096 elements or
  /// more that are no embedding and divide into blocks: of 256, else of the largest
  /// divisor from 32 to 255 (Dettmers et al., 2022); stored formats for the same tensors
  /// where they divide into the format's blocks. Adafactor and Muon keep f32.
  /// `reason` says why a tensor stays f32 under these.
  static MomentForm choose(llvm::StringRef format, llvm::StringRef optimizer,
                           graph::ParameterOp parameter, std::string &reason);
  /// The form of one of the parameter's moments: fp16 has no scale, and squares of
  /// gradients below 2^-12 would be 0 in it, so those stay f32. `reason` says so.
  MomentForm ofMoment(llvm::StringRef name, std::string &reason) const;
};

class RankShards;

/// One moment: read as f32, written in its form. `type` is that of the whole; of one that
/// is shared out to ranks it has the own rows. `shards` outlives it.
class StoredMoment {
public:
  StoredMoment(MomentForm form, llvm::StringRef symbol, mlir::RankedTensorType type,
               double fill, llvm::StringRef group, StateSymbols &state, EntryReads &reads,
               mlir::OpBuilder &builder, const RankShards &shards);

  /// f32; where there are blocks of shape [blocks, elements of a block].
  mlir::Value value() const { return exact; }
  /// Writes `next` where `moves` (i1, scalar) holds, else keeps every bit.
  void write(mlir::Value next, mlir::Value moves);

private:
  void writeStored(graph::ParameterOp target, mlir::Value next, mlir::Value moves);
  void writeCodes(mlir::Value next, mlir::Value moves);
  void declareStored(llvm::StringRef symbol, mlir::RankedTensorType type, double fill,
                     llvm::StringRef group);
  /// Second moments as none is 0 in its code (kernels/StoredFormats.h).
  mlir::Value aboveZero(mlir::Value next);
  void setFill(double fill);
  mlir::Value noise(mlir::Value next);
  /// The codes of values as the form has them, and back.
  mlir::Value encode(mlir::Value next, mlir::Value &stored);
  mlir::Value decode();
  /// No entry below 0: the map without signs has twice the values.
  bool isPositive();

  MomentForm form;
  graph::ParameterOp tensor, scale;
  const RankShards &shards;
  StateSymbols &state;
  EntryReads &reads;
  mlir::OpBuilder &builder;
  mlir::Value exact;
};

} // namespace sluice
