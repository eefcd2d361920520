#pragma once
// Turns a module of CUDA kernels into one of host functions that call the emulator.

#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace sluice::emulator {

/// What a shuffle takes its value from.
enum class Shuffle { Up, Down, Xor, Index };
/// Registers: a coordinate of the thread in its block, of the block, or their sizes.
enum class Register { Thread, Block, BlockSize, GridSize, Lane };

/// Every kernel `k` gets a function `emulate.k(ptr to its operands)`; loads, stores,
/// registers, barriers and shuffles call functions of these names:
///   i32 emulate_register(i32 register, i32 axis)
///   ptr emulate_shared()
///   void emulate_access(ptr, i64 bytes, i64 alignment, i32 isStore, i32 instruction)
///   void emulate_barrier()
///   void emulate_warp_sync(i32 lanes)
///   i32 emulate_shuffle(i32 kind, i32 lanes, i32 value, i32 operand, i32 clamp)
/// Returns the kernels' names.
llvm::Expected<std::vector<std::string>> prepareForHost(llvm::Module &module,
                                                        const std::string &triple,
                                                        const llvm::DataLayout &layout);

} // namespace sluice::emulator
