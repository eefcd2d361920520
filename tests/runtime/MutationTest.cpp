// Files from a stranger (law 7): random damage with a checksum that matches again, so
// that the checks behind it are reached. What is accepted must be usable. Run under the
// sanitizers with --mutations=100000.

#include "TestMain.h"
#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/Checksum.h"
#include "runtime/CodeImage.h"
#include "runtime/Safetensors.h"
#include "runtime/StateTransfer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>

namespace sluice::test {

using Bytes = std::vector<uint8_t>;

/// One to four changes: a bit, a byte, a word of an awkward value, a cut, a copy of
/// another place.
static void mutate(Bytes &bytes, size_t begin, std::mt19937_64 &random) {
  static const uint64_t awkward[] = {
      0,          1,          0x7fffffff, 0x80000000,
      0xffffffff, UINT64_MAX, 1ull << 63, 0xfffffffffffff000};
  for (uint64_t changes = 1 + random() % 4; changes > 0 && bytes.size() > begin + 8;
       --changes) {
    size_t at = begin + random() % (bytes.size() - begin - 8);
    uint64_t value = awkward[random() % std::size(awkward)];
    switch (random() % 8) {
    case 0:
    case 1:
    case 2:
      bytes[at] ^= static_cast<uint8_t>(1u << (random() % 8));
      break;
    case 3:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 4:
      std::memcpy(bytes.data() + at / 4 * 4, &value, 4);
      break;
    case 5:
      std::memcpy(bytes.data() + at / 8 * 8, &value, 8);
      break;
    case 6:
      std::memcpy(bytes.data() + at,
                  bytes.data() + begin + random() % (bytes.size() - begin - 8), 8);
      break;
    default:
      if (random() % 16 == 0)
        bytes.resize(at);
    }
  }
}

static void repairChecksum(Bytes &file) {
  if (file.size() < planHeaderBytes)
    return;
  uint64_t sum = fnv1a(file.data() + planHeaderBytes, file.size() - planHeaderBytes);
  std::memcpy(file.data() + 24, &sum, 8);
}

/// Makes the checksum of a safetensors file right again, if it still has a place for one.
static void repairSafetensors(Bytes &file) {
  const std::string mark = "\"sluice_checksum\":\"";
  uint64_t headerBytes = 0;
  if (file.size() < 8)
    return;
  std::memcpy(&headerBytes, file.data(), 8);
  if (headerBytes > file.size() - 8)
    return;
  auto end = file.begin() + 8 + static_cast<std::ptrdiff_t>(headerBytes);
  auto found = std::search(file.begin() + 8, end, mark.begin(), mark.end());
  if (end - found < static_cast<std::ptrdiff_t>(mark.size()) + 16)
    return;
  auto digits = found + static_cast<std::ptrdiff_t>(mark.size());
  std::fill_n(digits, 16, uint8_t('0'));
  WordChecksum sum;
  sum.add(file.data() + 8, file.size() - 8);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(sum.value()));
  std::copy_n(text, 16, digits);
}

static Bytes image() {
  std::ifstream stream(std::string(SLUICE_TEST_IMAGES) + "/good.so", std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A parameter and a moment that have what completes them beside them.
static void addNarrowState(TestPlan &p) {
  p.state("param/a", DType::bf16, {8, 16});
  p.state("master/a/low", DType::i16, {8, 16}, fbs::Role::master);
  p.state("opt/a/v", DType::i8, {8, 16}, fbs::Role::moment);
  p.state("opt/a/v/scale", DType::f32, {4}, fbs::Role::moment);
}

/// What completes a tensor is as large as its form says.
static void useForms(const Plan &plan) {
  for (uint32_t i = 0; i < sizeOf(plan.raw().state()); ++i) {
    const fbs::StateTensor *tensor = plan.raw().state()->Get(i);
    StoredForm form = storedForm(plan, *tensor);
    if (form.completion == Completion::nothing)
      continue;
    std::string name = completionName(viewOf(tensor->name()), form.completion);
    const fbs::StateTensor *completion = plan.state(name);
    ASSERT_NE(completion, nullptr);
    EXPECT_EQ(completion->size(),
              completionBytes(form, tensor->size() / dtypeSize(form.dtype)));
    EXPECT_TRUE(isCompletion(plan, *completion)) << name;
  }
}

/// Everything short of running: names, forms, inputs, level, code, kernels, addresses.
static void usePlan(const Plan &plan) {
  useForms(plan);
  for (const PlanVariant &variant : plan.variants())
    for (const std::string &name : plan.programNames())
      for (const InputSpec &input : plan.inputs(name, variant.bucket))
        EXPECT_LE(input.sampleBytes(), uint64_t(1) << 46);
  auto level = chooseLevel(plan);
  if (!level)
    return;
  auto resolver = [](std::string_view, FeatureLevel level) {
    return testKernel("test_count", level);
  };
  auto kernels = bindKernels(plan, *level, resolver);
  (void)bindKernels(plan, *level); // the built-in catalogue's own checks
  if (!kernels)
    return;
  static uint8_t base[64];
  for (uint32_t i = 0; i < sizeOf(plan.raw().programs()); ++i)
    Executor(plan, i, *kernels, {base, base, base, base}, plan.threads());
}

TEST(Mutation, PlansAreRefusedOrUsable) {
  TestPlan p = twoBucketPlan();
  p.plan.threads = 2;
  addNarrowState(p);
  p.plan.programs[0]->buffers.push_back(std::make_unique<fbs::BufferInfoT>());
  p.plan.report.push_back(std::make_unique<fbs::KeyValueT>());
  // A launch of the built-in catalogue, parameters wrong on purpose.
  p.launch(*p.plan.programs[0], std::string(builtinKernelNames()[0]),
           {Place{fbs::Space::step, 0, 64}}, 4, 2, {1, 2, 3, 4, 5, 6, 7, 8});
  p.plan.kernels.push_back(std::make_unique<fbs::KernelT>());
  p.plan.kernels.back()->name = "test_rows";
  p.plan.kernels.back()->generated = true;
  p.plan.images.push_back(std::make_unique<fbs::CodeImageT>());
  Bytes code = image();
  p.plan.images[0]->level = "x86-64-v3";
  p.plan.images[0]->offset = 1;
  p.plan.images[0]->size = code.size();
  std::span<const uint8_t> segments[] = {code};
  Bytes original = p.file(segments);
  ASSERT_TRUE(PlanReader::readMemory(original).ok());
  std::mt19937_64 random(1);
  int accepted = 0;
  size_t description = 32 + p.flatBuffer().size();
  for (int i = 0; i < mutationCount; ++i) {
    // Mostly the description; the code has a test of its own.
    Bytes file = original;
    Bytes head(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(description));
    mutate(head, i % 4 == 0 ? 8 : planHeaderBytes, random);
    std::copy(head.begin(), head.end(), file.begin());
    if (head.size() < description)
      file.resize(head.size());
    repairChecksum(file);
    auto plan = PlanReader::readMemory(file);
    if (!plan)
      continue;
    ++accepted;
    usePlan(**plan);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, mutationCount);
}

TEST(Mutation, CodeImagesAreRefusedOrInBounds) {
  Bytes original = image();
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int i = 0; i < mutationCount; ++i) {
    Bytes file = original;
    if (i % 2 == 0) { // headers
      Bytes head(file.begin(), file.begin() + 1024);
      mutate(head, 16, random);
      std::copy(head.begin(), head.end(), file.begin());
    } else {
      mutate(file, 16, random);
    }
    auto code = CodeImage::load(file, "mutated");
    if (!code)
      continue;
    ++accepted;
    (void)(*code)->symbol("test_rows");
  }
  EXPECT_GT(accepted, 0);
}

TEST(Mutation, CheckpointsAreRefusedOrWhole) {
  TemporaryFolder folder;
  TestPlan p = adamPlan(0.1), other = adamPlan(0.1);
  addNarrowState(p);
  other.state("param/a", DType::f32, {8, 16});
  other.state("opt/a/v", DType::bf16, {8, 16}, fbs::Role::moment);
  auto session = makeSession(p.read()), wide = makeSession(other.read());
  std::vector<float> targets = {0};
  StepResult result;
  ASSERT_TRUE(session->step(batchOf(targets), result).ok());
  auto saved = saveCheckpoint(*session, folder.path);
  ASSERT_TRUE(saved.ok());
  std::ifstream stream(*saved, std::ios::binary);
  Bytes original{std::istreambuf_iterator<char>(stream), {}};
  std::mt19937_64 random(3);
  int accepted = 0, refused = 0;
  for (int i = 0; i < mutationCount; ++i) {
    Bytes file = original;
    mutate(file, 0, random);
    bool repaired = i % 2 == 0;
    if (repaired)
      repairSafetensors(file);
    auto parsed = SafetensorsFile::parse(file, "mutated");
    if (!parsed)
      continue;
    // The checksum in the header protects what parses; look at everything all the same.
    (void)parsed->verifyChecksum();
    for (const TensorEntry &entry : parsed->tensors()) {
      std::span<const uint8_t> data = parsed->data(entry);
      uint8_t sum = 0;
      for (uint8_t byte : data)
        sum = static_cast<uint8_t>(sum + byte);
      EXPECT_EQ(data.size(), entry.bytes) << static_cast<int>(sum);
    }
    if (i % 40 > 3)
      continue;
    std::ofstream(*saved, std::ios::binary)
        .write(reinterpret_cast<const char *>(file.data()),
               static_cast<std::streamsize>(file.size()));
    auto info = loadCheckpoint(*session, folder.path);
    EXPECT_EQ(loadCheckpoint(*wide, folder.path).ok(), info.ok());
    ++(info ? accepted : refused);
    if (info && !repaired)
      EXPECT_TRUE(file == original) << "a damaged checkpoint was accepted";
  }
  EXPECT_GT(accepted, 0); // damage to values behind a right checksum
  EXPECT_GT(refused, 0);
}

} // namespace sluice::test
