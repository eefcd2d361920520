#include "TestPlan.h"

#include "test_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

namespace sluice::test {

static uint64_t bytesOf(DType type, const std::vector<int64_t> &shape) {
  uint64_t bytes = dtypeSize(type);
  for (int64_t dimension : shape)
    bytes *= static_cast<uint64_t>(dimension);
  return bytes;
}

static uint64_t roundUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

TestPlan::TestPlan() {
  plan.producer = "test";
  plan.model_name = "test";
  plan.model_hash = "model";
  plan.spec_hash = "spec";
  plan.threads = 1;
  plan.batch = 1;
}

Place TestPlan::state(const std::string &name, DType type, std::vector<int64_t> shape,
                      fbs::Role role, bool saved) {
  auto tensor = std::make_unique<fbs::StateTensorT>();
  tensor->name = name;
  tensor->dtype = static_cast<fbs::DType>(type);
  tensor->size = bytesOf(type, shape);
  tensor->shape = std::move(shape);
  tensor->offset = plan.state_bytes;
  tensor->role = role;
  tensor->trainable = role == fbs::Role::parameter;
  tensor->saved = saved;
  Place place = {fbs::Space::state, tensor->offset, tensor->size};
  plan.state_bytes = roundUp(tensor->offset + tensor->size);
  plan.state.push_back(std::move(tensor));
  return place;
}

Place TestPlan::control(const std::string &name, DType type) {
  return state("control/" + name, type, {}, fbs::Role::control, false);
}

fbs::StateTensorT &TestPlan::tensor(const std::string &name) {
  for (auto &tensor : plan.state)
    if (tensor->name == name)
      return *tensor;
  ADD_FAILURE() << "no state tensor " << name;
  std::abort();
}

fbs::ProgramT &TestPlan::program(const std::string &name) {
  plan.programs.push_back(std::make_unique<fbs::ProgramT>());
  plan.programs.back()->name = name;
  return *plan.programs.back();
}

Place TestPlan::buffer(fbs::ProgramT &program, uint64_t bytes) {
  Place place = {fbs::Space::step, program.step_bytes, bytes};
  program.step_bytes = roundUp(program.step_bytes + bytes);
  plan.step_bytes = std::max(plan.step_bytes, program.step_bytes);
  return place;
}

static std::unique_ptr<fbs::PortT> port(const std::string &name, DType type,
                                        std::vector<int64_t> shape, Place place,
                                        bool batched) {
  auto port = std::make_unique<fbs::PortT>();
  port->name = name;
  port->dtype = static_cast<fbs::DType>(type);
  port->shape = std::move(shape);
  port->space = place.space;
  port->offset = place.offset;
  port->size = place.size;
  port->batched = batched;
  return port;
}

Place TestPlan::input(fbs::ProgramT &program, const std::string &name, DType type,
                      std::vector<int64_t> shape, bool batched) {
  Place place = buffer(program, bytesOf(type, shape));
  program.inputs.push_back(port(name, type, std::move(shape), place, batched));
  return place;
}

Place TestPlan::output(fbs::ProgramT &program, const std::string &name, DType type,
                       std::vector<int64_t> shape, bool batched) {
  Place place = buffer(program, bytesOf(type, shape));
  program.outputs.push_back(port(name, type, std::move(shape), place, batched));
  return place;
}

uint32_t TestPlan::kernel(const std::string &name) {
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    if (plan.kernels[i]->name == name)
      return static_cast<uint32_t>(i);
  plan.kernels.push_back(std::make_unique<fbs::KernelT>());
  plan.kernels.back()->name = name;
  plan.kernels.back()->generated = generated;
  return static_cast<uint32_t>(plan.kernels.size() - 1);
}

fbs::StageT &TestPlan::stage(fbs::LaunchT &launch, const std::string &name,
                             std::vector<Place> operands, std::vector<int64_t> params) {
  launch.stages.push_back(std::make_unique<fbs::StageT>());
  fbs::StageT &stage = *launch.stages.back();
  stage.kernel = kernel(name);
  stage.params = std::move(params);
  for (const Place &place : operands)
    stage.operands.emplace_back(place.offset, place.size, 0, 0, place.space);
  return stage;
}

fbs::LaunchT &TestPlan::launch(fbs::ProgramT &program, const std::string &name,
                               std::vector<Place> operands, int64_t units, int64_t chunk,
                               std::vector<int64_t> params) {
  program.launches.push_back(std::make_unique<fbs::LaunchT>());
  fbs::LaunchT &launch = *program.launches.back();
  launch.units = units;
  launch.chunk = chunk;
  launch.node = "node/" + name;
  launch.op = name;
  stage(launch, name, std::move(operands), std::move(params));
  return launch;
}

std::vector<uint8_t> TestPlan::flatBuffer() const {
  flatbuffers::FlatBufferBuilder builder;
  fbs::FinishPlanBuffer(builder, fbs::Plan::Pack(builder, &plan));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

std::vector<uint8_t>
TestPlan::file(std::span<const std::span<const uint8_t>> segments) const {
  auto content = buildPlanFile(flatBuffer(), segments);
  EXPECT_TRUE(content.ok()) << content.status().message;
  return content.ok() ? *content : std::vector<uint8_t>();
}

PlanPtr TestPlan::read() const {
  auto plan = PlanReader::readMemory(file());
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  return plan.ok() ? *plan : nullptr;
}

KernelFn testKernel(std::string_view name, FeatureLevel) {
  struct Entry {
    std::string_view name;
    KernelFn function;
  };
  static constexpr Entry entries[] = {{"test_step_sgd", test_step_sgd},
                                      {"test_micro", test_micro},
                                      {"test_update_sgd", test_update_sgd},
                                      {"test_step_adam", test_step_adam},
                                      {"test_eval", test_eval},
                                      {"test_infer", test_infer},
                                      {"test_rows", test_rows},
                                      {"test_reverse", test_reverse},
                                      {"test_count", test_count}};
  for (const Entry &entry : entries)
    if (entry.name == name)
      return entry.function;
  return nullptr;
}

std::unique_ptr<Session> makeSession(const PlanPtr &plan, SessionOptions options) {
  if (!options.resolver)
    options.resolver = testKernel;
  auto session = Session::create(plan, std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().message;
  return session.ok() ? std::move(*session) : nullptr;
}

static std::unique_ptr<fbs::ParamGroupT> group(double lr) {
  auto group = std::make_unique<fbs::ParamGroupT>();
  group->name = "main";
  group->lr = lr;
  group->beta1 = 0.9;
  group->beta2 = 0.999;
  group->members = {"param/w"};
  return group;
}

TestPlan scalarPlan(int64_t batch, int64_t accumulate, double lr, double w) {
  TestPlan p;
  p.plan.batch = batch;
  p.plan.accumulate = accumulate;
  p.plan.groups.push_back(group(lr));
  Place weight = p.state("param/w", DType::f32, {});
  p.tensor("param/w").init = fbs::InitKind::fill;
  p.tensor("param/w").fill = w;
  Place valid = p.control("valid", DType::i64), rate = p.control("main/lr", DType::f32);
  p.state("step", DType::i64, {}, fbs::Role::control);
  bool accumulates = accumulate > 1;
  fbs::ProgramT &step = p.program(accumulates ? "micro" : "step");
  Place targets = p.input(step, "t", DType::f32, {batch});
  Place sum = p.output(step, "loss_sum", DType::f32, {});
  Place count = p.output(step, "loss_count", DType::f32, {});
  if (accumulates) {
    Place gradient = p.state("grad/w", DType::f32, {}, fbs::Role::accumulator, false);
    Place total = p.state("grad/count", DType::f32, {}, fbs::Role::accumulator, false);
    p.launch(step, "test_micro", {targets, valid, weight, gradient, total, sum, count});
    p.launch(p.program("update"), "test_update_sgd", {gradient, total, rate, weight});
  } else {
    p.launch(step, "test_step_sgd", {targets, valid, rate, weight, sum, count});
  }
  fbs::ProgramT &eval = p.program("eval");
  targets = p.input(eval, "t", DType::f32, {batch});
  sum = p.output(eval, "loss_sum", DType::f32, {});
  count = p.output(eval, "loss_count", DType::f32, {});
  p.launch(eval, "test_eval", {targets, valid, weight, sum, count});
  fbs::ProgramT &infer = p.program("infer");
  targets = p.input(infer, "t", DType::f32, {batch});
  Place y = p.output(infer, "y", DType::f32, {batch}, true);
  p.launch(infer, "test_infer", {targets, weight, y}, batch, 1);
  return p;
}

void addVariant(TestPlan &p, const std::string &name, uint32_t bucket, int64_t batch,
                size_t firstProgram) {
  auto variant = std::make_unique<fbs::VariantT>();
  variant->name = variant->bucket_name = name;
  variant->bucket = bucket;
  variant->batch = batch;
  for (size_t i = firstProgram; i < p.plan.programs.size(); ++i) {
    variant->programs.push_back(static_cast<uint32_t>(i));
    variant->step_bytes = std::max(variant->step_bytes, p.plan.programs[i]->step_bytes);
  }
  p.plan.variants.push_back(std::move(variant));
}

TestPlan twoBucketPlan(int64_t accumulate) {
  TestPlan p = scalarPlan(4, accumulate, 0.25, 2);
  TestPlan large = scalarPlan(40, accumulate, 0.25, 2);
  addVariant(p, "batch=4", 0, 4, 0);
  size_t first = p.plan.programs.size();
  for (auto &program : large.plan.programs)
    p.plan.programs.push_back(std::move(program));
  addVariant(p, "batch=40", 1, 40, first);
  p.plan.step_bytes = std::max(p.plan.step_bytes, large.plan.step_bytes);
  return p;
}

TestPlan ladderPlan(int64_t accumulate) {
  TestPlan p = scalarPlan(4, accumulate, 0.25, 2);
  TestPlan small = scalarPlan(4, accumulate, 0.25, 2);
  for (auto &program : p.plan.programs)
    program->step_bytes += 4096;
  p.plan.step_bytes += 4096;
  addVariant(p, "all", 0, 4, 0);
  size_t first = p.plan.programs.size();
  for (auto &program : small.plan.programs)
    p.plan.programs.push_back(std::move(program));
  addVariant(p, "half", 0, 4, first);
  p.plan.variants[1]->rung = 1;
  p.plan.variants[1]->memory_fraction = 0.5;
  return p;
}

TestPlan adamPlan(double lr) {
  TestPlan p;
  p.plan.groups.push_back(group(lr));
  Place w = p.state("param/w", DType::f32, {});
  Place m = p.state("opt/w/m", DType::f32, {}, fbs::Role::moment);
  Place v = p.state("opt/w/v", DType::f32, {}, fbs::Role::moment);
  Place rate = p.control("main/lr", DType::f32), bc1 = p.control("main/bc1", DType::f32),
        bc2 = p.control("main/bc2", DType::f32);
  p.state("step", DType::i64, {}, fbs::Role::control);
  fbs::ProgramT &step = p.program("step");
  p.input(step, "t", DType::f32, {1});
  Place sum = p.output(step, "loss_sum", DType::f32, {});
  Place count = p.output(step, "loss_count", DType::f32, {});
  p.launch(step, "test_step_adam", {rate, bc1, bc2, w, m, v, sum, count});
  return p;
}

static void moveToHost(TestPlan &p, fbs::ProgramT &step, const std::string &name,
                       Place device, uint64_t hostOffset) {
  fbs::StateTensorT &tensor = p.tensor(name);
  Place before{tensor.space, tensor.offset, tensor.size};
  tensor.space = fbs::Space::host_state;
  tensor.offset = hostOffset;
  for (auto &launch : step.launches)
    for (auto &stage : launch->stages)
      for (fbs::Operand &operand : stage->operands)
        if (operand.space() == before.space && operand.offset() == before.offset)
          operand = fbs::Operand(device.offset, device.size, 0, 0, device.space);
}

static void addCopy(fbs::ProgramT &step, Place from, Place to, uint32_t waitLaunches) {
  auto copy = std::make_unique<fbs::CopyT>();
  copy->from_space = from.space, copy->from_offset = from.offset;
  copy->to_space = to.space, copy->to_offset = to.offset;
  copy->size = from.size;
  copy->wait_launches = waitLaunches;
  copy->name = "moment";
  step.copies.push_back(std::move(copy));
}

TestPlan hostAdamPlan(int threads) {
  TestPlan p = adamPlan(0.1);
  p.plan.threads = threads;
  fbs::ProgramT &step = *p.plan.programs[0];
  p.plan.host_state_bytes = 128;
  Place m = p.buffer(step, 4), v = p.buffer(step, 4);
  moveToHost(p, step, "opt/w/m", m, 0);
  moveToHost(p, step, "opt/w/v", v, 64);
  Place hostM{fbs::Space::host_state, 0, 4}, hostV{fbs::Space::host_state, 64, 4};
  addCopy(step, hostM, m, 0);
  addCopy(step, hostV, v, 0);
  addCopy(step, m, hostM, 1);
  addCopy(step, v, hostV, 1);
  step.launches[0]->wait_copies = 2;
  step.launches[0]->signal = true;
  return p;
}

float scalarState(const Session &session, const std::string &name) {
  float value = 0;
  Status status = session.readState(name, &value, sizeof value);
  EXPECT_TRUE(status.ok()) << status.message;
  return value;
}

Batch batchOf(const std::vector<float> &values, int64_t firstSample) {
  Batch batch;
  batch.data = {values.data()};
  batch.count = static_cast<int64_t>(values.size());
  batch.firstSample = firstSample;
  return batch;
}

TemporaryFolder::TemporaryFolder() {
  path = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
  if (!mkdtemp(path.data()))
    ADD_FAILURE() << "cannot make a temporary folder";
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

Status FloatSource::seek(int64_t sample) {
  position = sample;
  return Status::success();
}

Status FloatSource::next(Batch &batch) {
  int64_t epoch = position / size(), at = position % size();
  current = values;
  if (epoch % 2 == 1)
    std::reverse(current.begin(), current.end());
  batch.data = {current.data() + at};
  batch.count = std::min(batchSize, size() - at);
  batch.firstSample = position;
  position += batch.count;
  return Status::success();
}

} // namespace sluice::test
