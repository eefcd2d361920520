#pragma once
// Runs every program of a plan with red zones, and reports what was damaged.

#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/plan/ZoneWatch.h"

#include <gtest/gtest.h>

namespace sluice {

class WatchedRun {
public:
  WatchedRun(PlanPtr plan, const std::string &weights, int64_t zoneBytes, int threads = 1)
      : plan(plan), weights(weights), threads(threads),
        state(plan->memory().stateBytes + 64), step(plan->memory().stepBytes + 64),
        hostState(plan->memory().hostStateBytes + 64),
        hostStep(plan->memory().hostStepBytes + 64),
        watch(*plan, zoneBytes,
              {fbs::Space::state, fbs::Space::step, aligned(state), aligned(step)}),
        hostWatch(*plan, zoneBytes,
                  {fbs::Space::host_state, fbs::Space::host_step, aligned(hostState),
                   aligned(hostStep)}) {}

  /// `observe` is called around launches too.
  void run(const LaunchHook &observe = {}) {
    SessionOptions options;
    options.weightsPath = weights;
    options.threads = threads;
    options.stepPattern = ZoneWatch::pattern;
    options.state = {aligned(state), plan->memory().stateBytes};
    options.step = {aligned(step), plan->memory().stepBytes};
    options.hostState = {aligned(hostState), plan->memory().hostStateBytes};
    options.hostStep = {aligned(hostStep), plan->memory().hostStepBytes};
    options.aroundCopy = [&](uint32_t program, uint32_t copy, bool isBefore) {
      hostWatch.moment(program, copy, isBefore);
    };
    options.aroundLaunch = [&](uint32_t program, uint32_t launch, bool isBefore) {
      watch.moment(program, launch, isBefore);
      if (observe)
        observe(program, launch, isBefore);
    };
    auto created = Session::create(plan, options);
    ASSERT_TRUE(created.ok()) << created.status().message;
    Session &session = **created;
    std::string training = plan->accumulate() > 1 ? "micro" : "step";
    StepResult result;
    for (int64_t k = 0; k < 3; ++k)
      ASSERT_TRUE(session.step(batch(training, k), result).ok());
    ASSERT_TRUE(session.eval(batch("eval", 0), result).ok());
    ASSERT_TRUE(session.infer(batch("infer", 0)).ok());
  }

  std::vector<std::string> damage() const {
    std::vector<std::string> all = watch.damage;
    all.insert(all.end(), hostWatch.damage.begin(), hostWatch.damage.end());
    return all;
  }

  const uint8_t *base(fbs::Space space) {
    return aligned(space == fbs::Space::state ? state : step);
  }

private:
  static uint8_t *aligned(std::vector<uint8_t> &bytes) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (64 - address % 64) % 64;
  }

  const Batch &batch(const std::string &program, int64_t k) {
    Values inputs = inputsOf(*plan, program, 30 + k);
    storage.clear();
    next = {};
    for (const InputSpec &input : plan->inputs(program))
      storage.push_back(Running::bytesOf(inputs.at(input.name), input.dtype));
    for (const std::string &bytes : storage)
      next.data.push_back(bytes.data());
    next.count = plan->batch();
    next.firstSample = k * plan->batch();
    return next;
  }

  PlanPtr plan;
  std::string weights;
  int threads;
  std::vector<uint8_t> state, step, hostState, hostStep;
  std::vector<std::string> storage;
  Batch next;

public:
  ZoneWatch watch, hostWatch; // filled last: both look into the memory
};

} // namespace sluice
