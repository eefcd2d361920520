#pragma once
// One function through plan file and runtime, against the interpreter.

#include "tests/passes/plan/PlanFixture.h"

#include <gtest/gtest.h>

namespace sluice {

/// The values of an output as doubles, whatever its type.
inline std::vector<double> valuesOf(const OutputView &view) {
  std::vector<double> values;
  auto read = [&](auto zero) {
    for (size_t at = 0; at < view.bytes; at += sizeof zero) {
      std::memcpy(&zero, view.data + at, sizeof zero);
      values.push_back(static_cast<double>(zero));
    }
  };
  switch (static_cast<DType>(view.port->dtype())) {
  case DType::f32:
    read(float{});
    break;
  case DType::i64:
    read(int64_t{});
    break;
  case DType::i32:
    read(int32_t{});
    break;
  default:
    read(uint8_t{});
  }
  return values;
}

/// Runs @forward with the body `body` on random inputs in both and compares every result.
inline void expectSame(const std::string &signature, const std::string &body,
                       double tolerance = 1e-5) {
  std::string text = "func.func @forward" + signature + " {\n" + body + "\n}";
  PlanFolder folder;
  CompileOptions options;
  options.spec.entries = {"infer"};
  options.spec.threads = 2;
  options.outPath = folder.file("m.plan");
  Compiled compiled = compileText(text, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(options.outPath, 2);
  ASSERT_TRUE(running.session);
  Trained oracle(text, options.spec);
  ASSERT_TRUE(oracle.good) << oracle.errors;
  Values inputs = inputsOf(running.session->plan(), "infer", 3);
  Values expected = oracle.run("infer", inputs);
  Status status = running.session->infer(running.batchOf(inputs, "infer"));
  ASSERT_TRUE(status.ok()) << status.message;
  for (auto &[name, tensor] : expected) {
    auto view = running.session->output(name);
    ASSERT_TRUE(view.ok()) << view.status().message;
    std::vector<double> found = valuesOf(*view);
    ASSERT_EQ(found.size(), static_cast<size_t>(tensor.size())) << name;
    for (size_t i = 0; i < found.size(); ++i) {
      double value = tensor.isReal() ? tensor.reals[i] : tensor.integers[i];
      if (value != found[i]) {
        ASSERT_NEAR(found[i], value, tolerance * (1 + std::abs(value)))
            << name << "[" << i << "]";
      }
    }
  }
}

} // namespace sluice
