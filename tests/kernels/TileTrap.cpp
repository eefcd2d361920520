#include "tests/kernels/TileTrap.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <unistd.h>

namespace sluice::test {
namespace {

struct TileState {
  bool configured = false;
  int rows[8], rowBytes[8];
  uint8_t data[8][16][64];
};
TileState tiles;
volatile long count = 0;

/// An instruction of VEX map 0F38, as far as those of AMX need it.
struct Instruction {
  uint8_t opcode, prefix; ///< prefix: 0 none, 1 66, 2 F3, 3 F2
  int reg, rm, third;     ///< of ModRM and VEX.vvvv
  bool hasMemory = false;
  uint8_t *address = nullptr; ///< without the index
  int64_t stride = 0;         ///< the index
  int length = 0;
};

int64_t registerOf(const ucontext_t *context, int number) {
  static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
  return context->uc_mcontext.gregs[kOrder[number]];
}

void readAddress(const ucontext_t *context, const uint8_t *code, bool x, bool b,
                 Instruction &out) {
  int mode = code[4] >> 6, low = code[4] & 7, at = 5;
  int64_t address = 0;
  int base = low | b << 3;
  if (low == 4) {
    uint8_t sib = code[at++];
    int index = (sib >> 3 & 7) | x << 3;
    base = (sib & 7) | b << 3;
    if (index != 4)
      out.stride = registerOf(context, index) << (sib >> 6);
  }
  bool noBase = mode == 0 && (base & 7) == 5;
  int32_t offset = 0;
  if (mode == 1)
    offset = static_cast<int8_t>(code[at++]);
  else if (mode == 2 || noBase)
    std::memcpy(&offset, code + at, 4), at += 4;
  out.length = at;
  if (!noBase)
    address = registerOf(context, base);
  else if (low == 5) // relative to the next instruction
    address = context->uc_mcontext.gregs[REG_RIP] + at;
  out.hasMemory = true;
  out.address = reinterpret_cast<uint8_t *>(address + offset);
}

bool decode(const ucontext_t *context, Instruction &out) {
  auto *code = reinterpret_cast<const uint8_t *>(context->uc_mcontext.gregs[REG_RIP]);
  bool vex128 = code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[2] & 0x84) == 0;
  if (!vex128)
    return false;
  bool x = !(code[1] & 0x40), b = !(code[1] & 0x20);
  out.prefix = code[2] & 3;
  out.third = ~code[2] >> 3 & 15;
  out.opcode = code[3];
  out.reg = code[4] >> 3 & 7;
  out.rm = code[4] & 7;
  out.length = 5;
  if (code[4] >> 6 != 3)
    readAddress(context, code, x, b, out);
  return true;
}

bool configure(const uint8_t *from) {
  for (int i = 1; i < 64; ++i) {
    bool used = (i >= 16 && i < 32) || (i >= 48 && i < 56);
    if (!used && from[i] != 0)
      return false;
  }
  if (from[0] != 1)
    return false;
  for (int t = 0; t < 8; ++t) {
    tiles.rowBytes[t] = from[16 + 2 * t] | from[17 + 2 * t] << 8;
    tiles.rows[t] = from[48 + t];
    if (tiles.rowBytes[t] > 64 || tiles.rows[t] > 16)
      return false;
  }
  std::memset(tiles.data, 0, sizeof tiles.data);
  return tiles.configured = true;
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0 : x; }

float halfAt(const uint8_t *from) {
  uint32_t bits = uint32_t(from[0]) << 16 | uint32_t(from[1]) << 24;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return flushed(x);
}

/// A fused multiply-add that flushes what is tiny after rounding to 24 bits.
float fused(float a, float b, float c) {
  float r = std::fma(a, b, c);
  bool tiny = std::fabs(double(a) * b + c) < 0x1p-126 * (1 - 0x1p-25);
  return tiny ? std::copysign(0.0f, r) : flushed(r);
}

bool multiply(int c, int a, int b) {
  int pairs = tiles.rowBytes[a] / 4, columns = tiles.rowBytes[c] / 4;
  if (c == a || c == b || a == b || tiles.rows[c] != tiles.rows[a] ||
      tiles.rows[b] != pairs || tiles.rowBytes[b] != tiles.rowBytes[c])
    return false;
  for (int m = 0; m < tiles.rows[c]; ++m)
    for (int n = 0; n < columns; ++n) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < pairs; ++k) {
        const uint8_t *x = tiles.data[a][m] + 4 * k, *y = tiles.data[b][k] + 4 * n;
        even = fused(halfAt(x), halfAt(y), even);
        odd = fused(halfAt(x + 2), halfAt(y + 2), odd);
      }
      std::memcpy(&sum, tiles.data[c][m] + 4 * n, sizeof sum);
      sum = flushed(flushed(sum) + flushed(even + odd));
      std::memcpy(tiles.data[c][m] + 4 * n, &sum, sizeof sum);
    }
  return true;
}

bool execute(const Instruction &i) {
  enum { none, p66, pF3, pF2 };
  if (i.opcode == 0x49 && i.prefix == none && i.hasMemory)
    return configure(i.address);
  if (!tiles.configured)
    return false;
  if (i.opcode == 0x49 && i.prefix == none) {
    tiles.configured = false;
    return true;
  }
  if (i.opcode == 0x49 && i.prefix == pF2 && !i.hasMemory) {
    std::memset(tiles.data[i.reg], 0, sizeof tiles.data[i.reg]);
    return true;
  }
  if (i.opcode == 0x5c && i.prefix == pF3 && !i.hasMemory)
    return multiply(i.reg, i.rm, i.third);
  if (i.opcode != 0x4b || i.prefix == none || !i.hasMemory)
    return false;
  for (int r = 0; r < tiles.rows[i.reg]; ++r) {
    uint8_t *row = i.address + r * i.stride;
    if (i.prefix == pF3)
      std::memcpy(row, tiles.data[i.reg][r], tiles.rowBytes[i.reg]);
    else
      std::memcpy(tiles.data[i.reg][r], row, tiles.rowBytes[i.reg]);
  }
  return true;
}

void onIllegal(int, siginfo_t *, void *raw) {
  auto *context = static_cast<ucontext_t *>(raw);
  Instruction i;
  if (!decode(context, i) || !execute(i)) {
    constexpr char text[] = "illegal instruction, or a tile instruction used wrongly\n";
    [[maybe_unused]] auto written = write(2, text, sizeof text - 1);
    std::abort();
  }
  context->uc_mcontext.gregs[REG_RIP] += i.length;
  count = count + 1;
}

} // namespace

TileTrap::TileTrap() {
  struct sigaction action = {};
  action.sa_sigaction = onIllegal;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &former);
}

TileTrap::~TileTrap() { sigaction(SIGILL, &former, nullptr); }

long TileTrap::executed() { return count; }

} // namespace sluice::test
