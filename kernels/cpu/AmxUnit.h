#pragma once
// The tile registers of AMX: eight, of 16 rows of 64 bytes. Needs the permission that
// kernels/MatrixUnit.h asks for.

#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

#define SLUICE_TILE_OP inline __attribute__((always_inline))

// Tiles are named in the instruction, so by literals.
#define SLUICE_EACH_TILE(T, operation)                                                   \
  if constexpr (T == 0)                                                                  \
    operation(0);                                                                        \
  else if constexpr (T == 1)                                                             \
    operation(1);                                                                        \
  else if constexpr (T == 2)                                                             \
    operation(2);                                                                        \
  else if constexpr (T == 3)                                                             \
    operation(3);                                                                        \
  else if constexpr (T == 4)                                                             \
    operation(4);                                                                        \
  else if constexpr (T == 5)                                                             \
    operation(5);                                                                        \
  else if constexpr (T == 6)                                                             \
    operation(6);                                                                        \
  else                                                                                   \
    operation(7);

/// Lives as long as the tiles are in use: all whole, and given back after.
class AmxUnit {
public:
  AmxUnit() {
    alignas(64) uint8_t config[64] = {1}; // palette 1
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = 64; // bytes of a row
      config[48 + tile] = 16;     // rows
    }
    _tile_loadconfig(config);
  }
  ~AmxUnit() { _tile_release(); }
  AmxUnit(const AmxUnit &) = delete;
  AmxUnit &operator=(const AmxUnit &) = delete;

  template <int T> SLUICE_TILE_OP void zero() {
#define SLUICE_ZERO(tile) _tile_zero(tile)
    SLUICE_EACH_TILE(T, SLUICE_ZERO)
#undef SLUICE_ZERO
  }
  template <int T> SLUICE_TILE_OP void load(const void *from, int64_t strideBytes) {
#define SLUICE_LOAD(tile) _tile_loadd(tile, from, strideBytes)
    SLUICE_EACH_TILE(T, SLUICE_LOAD)
#undef SLUICE_LOAD
  }
  /// The same of what is used once and comes from L2.
  template <int T> SLUICE_TILE_OP void stream(const void *from, int64_t strideBytes) {
#define SLUICE_STREAM(tile) _tile_stream_loadd(tile, from, strideBytes)
    SLUICE_EACH_TILE(T, SLUICE_STREAM)
#undef SLUICE_STREAM
  }
  template <int T> SLUICE_TILE_OP void store(void *to, int64_t strideBytes) {
#define SLUICE_STORE(tile) _tile_stored(tile, to, strideBytes)
    SLUICE_EACH_TILE(T, SLUICE_STORE)
#undef SLUICE_STORE
  }
  /// Tile C of a 2 x 2 block += A * B: C 0 to 3, A 4 and 5, B 6 and 7.
  template <int C> SLUICE_TILE_OP void multiply() {
    if constexpr (C == 0)
      _tile_dpbf16ps(0, 4, 6);
    else if constexpr (C == 1)
      _tile_dpbf16ps(1, 4, 7);
    else if constexpr (C == 2)
      _tile_dpbf16ps(2, 5, 6);
    else
      _tile_dpbf16ps(3, 5, 7);
  }
};

#undef SLUICE_EACH_TILE
#undef SLUICE_TILE_OP

} // namespace sluice::SLUICE_LEVEL
