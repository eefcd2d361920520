// precision.policy: what it reads and what it refuses.

#include "frontend/SpecReader.h"

#include <fstream>
#include <gtest/gtest.h>

namespace sluice {
namespace {

SpecResult read(const std::string &yaml) {
  std::string path = testing::TempDir() + "policy.yaml";
  std::ofstream(path) << yaml;
  return readSpec(path);
}

SpecResult readPolicy(const std::string &policy) {
  return read("precision: {compute: amp_bf16, policy: " + policy + "}\n");
}

void expectError(const std::string &policy, const std::string &part) {
  SpecResult result = readPolicy(policy);
  EXPECT_FALSE(result.spec) << policy;
  std::string all;
  for (const std::string &error : result.errors)
    all += error + "\n";
  EXPECT_NE(all.find(part), std::string::npos) << "expected '" << part << "' in\n" << all;
}

TEST(Policy, ReadsKindFileAndBudget) {
  SpecResult result = readPolicy("{kind: importance, from: p.safetensors, budget: 0.6x}");
  ASSERT_TRUE(result.spec) << result.errors[0];
  const PolicySpec &policy = result.spec->precision.policy;
  EXPECT_TRUE(policy.isOn());
  EXPECT_EQ(policy.kind, "importance");
  EXPECT_EQ(policy.from, "p.safetensors");
  EXPECT_EQ(policy.budgetShare, 0.6);
  EXPECT_FALSE(policy.budgetBytes);
  EXPECT_EQ(policy.speed, 0.92);
  result = readPolicy("{kind: size, budget: 3MiB, formats: [mxfp8, nvfp4], speed: 0.8}");
  ASSERT_TRUE(result.spec) << result.errors[0];
  const PolicySpec &other = result.spec->precision.policy;
  EXPECT_EQ(other.budgetBytes, 3 << 20);
  EXPECT_EQ(other.formats, (std::vector<std::string>{"mxfp8", "nvfp4"}));
  EXPECT_EQ(other.speed, 0.8);
}

TEST(Policy, IsOffUnlessGiven) {
  EXPECT_FALSE(read("seed: 1\n").spec->precision.policy.isOn());
  EXPECT_FALSE(readPolicy("none").spec->precision.policy.isOn());
}

TEST(Policy, ImportanceNeedsAProbe) {
  expectError("{kind: importance, budget: 0.6x}", "has no 'from'");
  expectError("{budget: 0.6x}", "sluice probe");
}

TEST(Policy, RefusesWhatItCannotRead) {
  expectError("{kind: hessian, from: p}", "importance, random, size");
  expectError("[importance]", "'precision.policy' is 'a list'");
  expectError("{from: p, budget: 60%}", "a share such as 0.6x");
  expectError("{from: p, budget: 1.5x}", "a share above 0 and up to 1x");
  expectError("{from: p, budget: 0x}", "a share above 0");
  expectError("{from: p, budget: 0}", "a size above 0");
  expectError("{from: p, budget: [1]}", "'a list'");
  expectError("{from: p, sped: 1}", "speed");
  expectError("{from: p, speed: 2}", "'speed'");
  expectError("{from: p, formats: []}", "no format to choose from");
}

} // namespace
} // namespace sluice
