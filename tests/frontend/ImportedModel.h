#pragma once
// An import and what tests ask of it.

#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include <gtest/gtest.h>
#include <set>

namespace sluice::test {

struct Imported {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ImportReport report;
  std::string problems;
  bool ok = false;

  std::vector<graph::ParameterOp> parameters() {
    auto ops = (*module).getOps<graph::ParameterOp>();
    return {ops.begin(), ops.end()};
  }
  std::set<std::string> symbols() {
    std::set<std::string> names;
    for (auto parameter : parameters())
      names.insert(parameter.getSymName().str());
    return names;
  }
  template <typename Op> int64_t count() {
    int64_t found = 0;
    (*module).walk([&](Op) { ++found; });
    return found;
  }
};

inline Imported import(const std::string &path, const ImportOptions &options = {}) {
  Imported result;
  auto module = importOnnx(context(), path, options, result.report);
  result.ok = succeeded(module);
  if (result.ok)
    result.module = std::move(*module);
  for (const std::string &problem : result.report.problems())
    result.problems += problem + "\n";
  return result;
}

inline testing::AssertionResult contains(const std::string &text,
                                         const std::string &part) {
  if (text.find(part) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

inline graph::HostTensor ramp(std::vector<int64_t> shape, double scale = 0.1) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(scale * double(i)));
  return realTensor(std::move(shape), values);
}

} // namespace sluice::test
