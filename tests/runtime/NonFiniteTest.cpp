// Values that are not finite, by type and in a program.

#include "runtime/NonFinite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace sluice {
namespace {

template <class T> NonFiniteCount count(DType type, const std::vector<T> &values) {
  return countNonFinite(type, reinterpret_cast<const uint8_t *>(values.data()),
                        values.size() * sizeof(T));
}

TEST(NonFinite, IsCountedByTheBitsOfEveryType) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  NonFiniteCount f32 = count<float>(DType::f32, {1, -inf, inf, nan, -nan, 3.4e38f, 0});
  EXPECT_EQ(f32.wrong, 3u);
  EXPECT_EQ(f32.minusInfinity, 1u);
  NonFiniteCount f64 = count<double>(DType::f64, {1e308, -inf, inf, nan});
  EXPECT_EQ(f64.wrong, 2u);
  EXPECT_EQ(f64.minusInfinity, 1u);
  // The largest number, both infinities, a NaN.
  NonFiniteCount f16 = count<uint16_t>(DType::f16, {0x7bff, 0x7c00, 0xfc00, 0x7e00});
  EXPECT_EQ(f16.wrong, 2u);
  EXPECT_EQ(f16.minusInfinity, 1u);
  NonFiniteCount bf16 = count<uint16_t>(DType::bf16, {0x7f7f, 0x7f80, 0xff80, 0xffc0});
  EXPECT_EQ(bf16.wrong, 2u);
  EXPECT_EQ(bf16.minusInfinity, 1u);
  EXPECT_EQ(count<int64_t>(DType::i64, {-1}).wrong, 0u); // the bits of a NaN
}

/// Two launches: the first writes bytes 0 to 16 of the step reservation, the second reads
/// them and writes bytes 16 to 32.
class Watched : public testing::Test {
protected:
  Watched() {
    fbs::ProgramT program;
    program.name = "step";
    for (uint64_t i : {0, 1}) {
      auto buffer = std::make_unique<fbs::BufferInfoT>();
      buffer->name = i ? "h" : "x";
      buffer->offset = 16 * i;
      buffer->size = 16;
      buffer->first = static_cast<int32_t>(i);
      buffer->last = 1;
      buffer->typed = true;
      program.buffers.push_back(std::move(buffer));
      auto launch = std::make_unique<fbs::LaunchT>();
      launch->node = i ? "fc/Gemm" : "in/Cast";
      launch->op = i ? "contract" : "cast";
      launch->stages.push_back(std::make_unique<fbs::StageT>());
      for (uint64_t operand = 0; operand <= i; ++operand)
        launch->stages[0]->operands.emplace_back(16 * operand, 16, 0, 0,
                                                 fbs::Space::step);
      program.launches.push_back(std::move(launch));
    }
    builder.Finish(fbs::Program::Pack(builder, &program));
    arenas.step = reinterpret_cast<uint8_t *>(step.data());
  }

  std::string watch(int launch, int element, float value) {
    step.assign(8, 1.0f);
    NonFiniteWatch watch(*flatbuffers::GetRoot<fbs::Program>(builder.GetBufferPointer()),
                         arenas);
    for (int i : {0, 1}) {
      if (i == launch)
        step[static_cast<size_t>(element)] = value;
      watch.launched(static_cast<uint32_t>(i));
    }
    return watch.text();
  }

  flatbuffers::FlatBufferBuilder builder;
  std::vector<float> step = std::vector<float>(8, 1.0f);
  Arenas arenas;
};

TEST_F(Watched, NamesTheFirstLaunchThatGivesIt) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(watch(0, 2, inf),
            "it began in 'in/Cast' (cast): 1 of 4 values of 'x' are not finite");
  EXPECT_EQ(watch(1, 7, inf),
            "it began in 'fc/Gemm' (contract): 1 of 4 values of 'h' are not finite");
  EXPECT_EQ(watch(1, 7, -inf),
            "it began in 'fc/Gemm' (contract): 1 of 4 values of 'h' are not finite");
  EXPECT_EQ(watch(1, 7, 2), "");
  step.assign(8, 1.0f);
  NonFiniteWatch both(*flatbuffers::GetRoot<fbs::Program>(builder.GetBufferPointer()),
                      arenas);
  step[0] = -inf;
  both.launched(0);
  step[5] = inf;
  both.launched(1);
  EXPECT_EQ(both.text(),
            "it began in 'fc/Gemm' (contract): 1 of 4 values of 'h' are not finite; "
            "-infinity, as masks have, came before from 'in/Cast' (cast)");
}

} // namespace
} // namespace sluice
