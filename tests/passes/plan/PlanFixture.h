#pragma once
// Compiles a small model to a plan file, trains it in the runtime and, beside it, in the
// interpreter.

#include "codegen/Compile.h"
#include "runtime/Schedule.h"
#include "runtime/Session.h"
#include "tests/passes/train/TrainFixture.h"

#include <bit>
#include <filesystem>
#include <fstream>

namespace sluice {

/// A folder of its own for the plan files of one test; removed at the end.
class PlanFolder {
public:
  PlanFolder() {
    auto *info = testing::UnitTest::GetInstance()->current_test_info();
    path = std::filesystem::path(testing::TempDir()) /
           ("sluice-" + std::string(info->test_suite_name()) + "-" + info->name() + "-" +
            std::to_string(::getpid()));
    std::filesystem::create_directories(path);
  }
  ~PlanFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string &name) const { return path / name; }

private:
  std::filesystem::path path;
};

inline std::string readBytes(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Compiled {
  Status status;
  CompileReport report;
};

inline Compiled compileText(const std::string &text, const CompileOptions &options) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &graph::context());
  Compiled compiled;
  if (!module)
    compiled.status = Status::refused("the text does not parse");
  else
    compiled.status = compileModule(*module, options, compiled.report);
  return compiled;
}

/// Inputs of one micro-batch by name, the same in the runtime and in the interpreter.
inline Values inputsOf(const Plan &plan, const std::string &program, unsigned seed) {
  Values values;
  for (const InputSpec &input : plan.inputs(program)) {
    HostTensor &tensor = values[input.name];
    tensor.shape = input.shape;
    int64_t size = tensor.size();
    if (isFloat(input.dtype)) {
      tensor = uniform(Shape(input.shape.begin(), input.shape.end()), -1, 1, seed++);
      for (double &x : tensor.reals)
        x = static_cast<float>(x);
      continue;
    }
    unsigned width = input.dtype == DType::i32 ? 32 : 64;
    tensor.elementType = mlir::IntegerType::get(&graph::context(), width);
    for (int64_t i = 0; i < size; ++i) {
      seed = seed * 1664525u + 1013904223u;
      int64_t span = input.bounded ? input.upper - input.lower + 1 : 3;
      tensor.integers.push_back(input.lower + (seed >> 8) % span);
    }
  }
  return values;
}

/// A plan in execution.
class Running {
public:
  Running(const std::string &path, int threads) {
    auto plan = PlanReader::readFile(path);
    EXPECT_TRUE(plan.ok()) << plan.status().message;
    if (!plan)
      return;
    SessionOptions options;
    options.threads = threads;
    options.stepPattern = 0xA5; // nothing may rely on zeros
    options.inputs.rejectNonFinite = false;
    auto created = Session::create(*plan, options);
    EXPECT_TRUE(created.ok()) << created.status().message;
    if (created)
      session = std::move(*created);
  }

  StepResult step(const Values &inputs, int64_t firstSample) {
    Batch batch = batchOf(inputs, session->plan().accumulate() > 1 ? "micro" : "step");
    batch.firstSample = firstSample;
    StepResult result;
    Status status = session->step(batch, result);
    EXPECT_TRUE(status.ok()) << status.message;
    return result;
  }

  Batch batchOf(const Values &inputs, const std::string &program) {
    Batch batch;
    storage.clear();
    for (const InputSpec &input : session->plan().inputs(program)) {
      storage.push_back(bytesOf(inputs.at(input.name), input.dtype));
      batch.data.push_back(storage.back().data());
    }
    batch.count = session->plan().batch();
    return batch;
  }

  /// Bytes of everything a checkpoint holds.
  std::map<std::string, std::string> saved() const {
    std::map<std::string, std::string> values;
    for (const fbs::StateTensor *tensor : *session->plan().raw().state())
      if (tensor->saved()) {
        auto bytes = session->state(tensor->name()->string_view());
        values[tensor->name()->str()] = std::string(bytes.begin(), bytes.end());
      }
    return values;
  }

  static std::string bytesOf(const HostTensor &tensor, DType type) {
    std::string bytes;
    auto append = [&](auto value) {
      bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    };
    for (double x : tensor.reals)
      if (type == DType::bf16)
        append(
            static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16));
      else if (type == DType::f16)
        append(halfBits(x));
      else
        append(static_cast<float>(x));
    for (int64_t x : tensor.integers)
      if (type == DType::i16)
        append(static_cast<int16_t>(x));
      else if (type == DType::i64)
        append(x);
      else if (type == DType::i32)
        append(static_cast<int32_t>(x));
      else
        append(static_cast<char>(x));
    return bytes;
  }

  static uint16_t halfBits(double x) {
    llvm::APFloat value(x);
    bool loses = false;
    value.convert(llvm::APFloat::IEEEhalf(), llvm::APFloat::rmNearestTiesToEven, &loses);
    return static_cast<uint16_t>(value.bitcastToAPInt().getZExtValue());
  }

  std::unique_ptr<Session> session;

private:
  std::vector<std::string> storage;
};

/// Gives every floating-point parameter of both the same random values, and what
/// completes it to f32 the rest of them.
inline void randomize(Trained &trained, Running &running) {
  trained.randomize();
  auto give = [&](const std::string &symbol, std::vector<double> reals,
                  std::vector<int64_t> integers = {}) {
    HostTensor &tensor = trained.state[symbol];
    tensor.reals = std::move(reals);
    tensor.integers = std::move(integers);
    auto type = static_cast<DType>(running.session->plan().state(symbol)->dtype());
    std::string bytes = Running::bytesOf(tensor, type);
    Status status = running.session->writeState(symbol, bytes.data(), bytes.size());
    EXPECT_TRUE(status.ok()) << status.message;
  };
  for (auto parameter : trained.module->getOps<graph::ParameterOp>()) {
    if (parameter.getRole() != "parameter")
      continue;
    std::string symbol = parameter.getSymName().str();
    std::string master = "master/" + symbol.substr(6);
    std::vector<double> values = trained.state[symbol].reals, stored;
    std::vector<int64_t> low;
    mlir::Type type = parameter.getTensorType().getElementType();
    bool halves = type.isBF16() && (trained.state.contains(master) ||
                                    trained.state.contains(master + "/low"));
    for (double &x : values) {
      x = static_cast<float>(0.5 * x);
      uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x));
      uint32_t high = (bits + 0x8000) & 0xFFFF0000;
      low.push_back(static_cast<int32_t>(bits - high));
      stored.push_back(halves ? std::bit_cast<float>(high) : graph::toNarrow(x, type));
    }
    give(symbol, stored);
    if (trained.state.contains(master))
      give(master, values);
    if (trained.state.contains(master + "/low"))
      give(master + "/low", {}, low);
  }
}

} // namespace sluice
