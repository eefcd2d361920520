#pragma once
// Plans built by hand for the runtime's tests.

#include "runtime/PlanFile.h"
#include "runtime/PlanReader.h"
#include "runtime/Session.h"

#include <memory>
#include <string>
#include <vector>

namespace sluice::test {

struct Place {
  fbs::Space space;
  uint64_t offset, size;
};

/// Collects tensors, launches and programs, and lays them out one behind the other at
/// multiples of 64 bytes.
class TestPlan {
public:
  fbs::PlanT plan;
  bool generated = false; // kernels come from the image instead of the resolver

  TestPlan();

  Place state(const std::string &name, DType type, std::vector<int64_t> shape,
              fbs::Role role = fbs::Role::parameter, bool saved = true);
  /// control/NAME, not saved.
  Place control(const std::string &name, DType type);
  fbs::StateTensorT &tensor(const std::string &name);

  fbs::ProgramT &program(const std::string &name);
  Place buffer(fbs::ProgramT &program, uint64_t bytes);
  Place input(fbs::ProgramT &program, const std::string &name, DType type,
              std::vector<int64_t> shape, bool batched = true);
  Place output(fbs::ProgramT &program, const std::string &name, DType type,
               std::vector<int64_t> shape, bool batched = false);
  fbs::LaunchT &launch(fbs::ProgramT &program, const std::string &kernel,
                       std::vector<Place> operands, int64_t units = 1, int64_t chunk = 1,
                       std::vector<int64_t> params = {});
  fbs::StageT &stage(fbs::LaunchT &launch, const std::string &kernel,
                     std::vector<Place> operands, std::vector<int64_t> params = {});

  std::vector<uint8_t> flatBuffer() const;
  std::vector<uint8_t>
  file(std::span<const std::span<const uint8_t>> segments = {}) const;
  PlanPtr read() const;

private:
  uint32_t kernel(const std::string &name);
};

/// Finds the kernels of test_kernels.c.
KernelFn testKernel(std::string_view name, FeatureLevel level);

std::unique_ptr<Session> makeSession(const PlanPtr &plan, SessionOptions options = {});

/// loss (w - t)^2 over a batch of `batch` targets t, SGD on the single weight w
/// (initially `w`), programs as `accumulate` asks, and eval and infer.
TestPlan scalarPlan(int64_t batch, int64_t accumulate, double lr, double w = 0);

/// The scalar plan for batches of 4 and of 40, w = 2, lr = 0.25.
TestPlan twoBucketPlan(int64_t accumulate = 1);

/// Makes the programs from `firstProgram` on a bucket of their own.
void addVariant(TestPlan &p, const std::string &name, uint32_t bucket, int64_t batch,
                size_t firstProgram);

/// The scalar plan for batches of 4 on two rungs of the memory ladder, w = 2, lr = 0.25;
/// the first has 4096 bytes more for its steps.
TestPlan ladderPlan(int64_t accumulate = 1);

/// Adam on one weight whose gradient is 1 at every step.
TestPlan adamPlan(double lr);

/// adamPlan(0.1) with both moments in the host's memory: copies in, the update, copies
/// out.
TestPlan hostAdamPlan(int threads = 1);

/// The value of an f32 scalar of the state.
float scalarState(const Session &session, const std::string &name);

/// A batch of one input.
Batch batchOf(const std::vector<float> &values, int64_t firstSample = 0);

/// An empty folder, removed with the object.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path;
};

/// Serves floats in order, epoch after epoch; odd epochs backwards, so that the order
/// depends on the epoch.
class FloatSource : public BatchSource {
public:
  FloatSource(std::vector<float> values, int64_t batch)
      : values(std::move(values)), batchSize(batch) {}
  int64_t size() const override { return static_cast<int64_t>(values.size()); }
  Status seek(int64_t sample) override;
  Status next(Batch &batch) override;

private:
  std::vector<float> values, current;
  int64_t batchSize, position = 0;
};

} // namespace sluice::test
