// Law 1 from outside: in real training steps no launch touches a byte between the buffers
// of the arena. The plans are compiled with red zones between all buffers.

#include "frontend/OnnxImporter.h"
#include "runtime/Checksum.h"
#include "runtime/PlanFile.h"
#include "tests/passes/plan/WatchedRun.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>
#include <regex>

namespace sluice {
namespace {

constexpr int64_t zoneBytes = 64;

CompileOptions zoned(const std::string &optimizer = "adamw") {
  CompileOptions options;
  options.spec.loss.kind = "cross_entropy";
  options.spec.loss.logits = "logits";
  options.spec.optimizer = optimizerDefaults(optimizer);
  options.spec.clip = {"global_norm", 1};
  options.spec.threads = 2;
  options.redZoneBytes = zoneBytes;
  return options;
}

/// `model`: the text of a module, or the name of an ONNX file of tests/models.
Compiled compiled(const std::string &model, const CompileOptions &options) {
  if (!model.ends_with(".onnx"))
    return compileText(model, options);
  Compiled result;
  ImportReport report;
  auto module = importOnnx(graph::context(), SLUICE_TEST_MODELS "/" + model,
                           ImportOptions::from(options.spec), report);
  if (failed(module))
    result.status = Status::refused("the import failed");
  else
    result.status = compileModule(**module, options, result.report);
  return result;
}

/// Layers of 16 on 256 rows, then logits [256, 4]: activations outweigh the state.
std::string geluLayers(int count) {
  std::string dims = "{lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = "
                     "array<i64: 1>, rhs_contract = array<i64: 1>}";
  std::string symbols, body, x = "%x";
  for (int i = 0; i <= count; ++i) {
    std::string k = std::to_string(i), rows = i < count ? "16" : "4";
    std::string weight = "tensor<" + rows + "x16xf32>",
                y = "tensor<256x" + rows + "xf32>";
    symbols += "graph.parameter @\"param/w" + k + "\" : " + weight + " \"parameter\"\n";
    body += "%w" + k + " = graph.read @\"param/w" + k + "\" : " + weight + "\n%y" + k +
            " = graph.contract " + x + ", %w" + k + " " + dims +
            " : (tensor<256x16xf32>, " + weight + ") -> " + y + "\n";
    x = "%y" + k;
    if (i == count)
      break;
    body += "%a" + k + " = graph.gelu " + x + " : (" + y + ") -> " + y + "\n";
    x = "%a" + k;
  }
  return symbols +
         "func.func @forward(%x: tensor<256x16xf32> {graph.name = \"x\"}) -> "
         "(tensor<256x4xf32> {graph.name = \"logits\"}) {\n" +
         body + "return " + x + " : tensor<256x4xf32>\n}\n";
}

void expectIntact(const std::string &model, CompileOptions options, int threads = 1) {
  PlanFolder folder;
  options.outPath = folder.file("m.plan");
  Compiled result = compiled(model, options);
  ASSERT_TRUE(result.status.ok()) << result.status.message;
  auto plan = PlanReader::readFile(options.outPath);
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  WatchedRun watched(*plan, folder.file("m.safetensors"), zoneBytes, threads);
  ASSERT_NO_FATAL_FAILURE(watched.run());
  EXPECT_GT(watched.watch.zones, 50);
  if (options.spec.offload != "none")
    EXPECT_GT(watched.hostWatch.stateZones, 50);
  if (options.spec.offload == "auto")
    EXPECT_GT(watched.hostWatch.zones, 10);
  EXPECT_EQ(watched.damage(), std::vector<std::string>());
}

TEST(RedZones, StayIntactInAnMlp) {
  for (int threads : {1, 2})
    expectIntact(models::mlp, zoned(), threads);
}

TEST(RedZones, StayIntactInACnnWithBatchNormAndDropout) {
  expectIntact(models::cnn, zoned("sgd"));
}

TEST(RedZones, StayIntactInAnExportedCnn) { expectIntact("small-cnn.onnx", zoned()); }

TEST(RedZones, StayIntactInADecoder) { expectIntact("small-decoder.onnx", zoned()); }

TEST(RedZones, StayIntactWithAccumulationInTheOrderOfRanks) {
  CompileOptions options = zoned("lamb");
  options.spec.accumulate = 3;
  options.spec.asRanks = 3;
  expectIntact("small-decoder.onnx", options);
}

/// Stores of two bytes, and rounding from workspaces.
TEST(RedZones, StayIntactInMixedPrecision) {
  for (const char *compute : {"amp_bf16", "amp_fp16"})
    for (const char *model : {"small-cnn.onnx", "small-decoder.onnx"}) {
      SCOPED_TRACE(std::string(compute) + " " + model);
      CompileOptions options = zoned();
      options.spec.precision.compute = compute;
      options.spec.precision.master = "fp32";
      expectIntact(model, options, 2);
    }
}

TEST(RedZones, StayIntactWithoutFusion) {
  CompileOptions options = zoned();
  options.fuse = false;
  expectIntact("small-decoder.onnx", options);
}

/// Gives the options the smallest budget, which is in the refusal of a byte.
void takeSmallest(const std::string &model, CompileOptions &options) {
  options.stopAfter = CompileStage::Plan;
  options.spec.budgetBytes = 1;
  Compiled refused = compiled(model, options);
  ASSERT_EQ(refused.status.code, StatusCode::doesNotFit);
  std::smatch smallest;
  ASSERT_TRUE(std::regex_search(refused.status.message, smallest,
                                std::regex("smallest that can be met is ([0-9]+) bytes")))
      << refused.status.message;
  options.spec.budgetBytes = std::stoll(smallest[1]);
  options.stopAfter = CompileStage::Code;
}

TEST(RedZones, StayIntactUnderABudget) {
  CompileOptions options = zoned();
  ASSERT_NO_FATAL_FAILURE(takeSmallest(geluLayers(6), options));
  expectIntact(geluLayers(6), options);
}

TEST(RedZones, StayIntactWithRecompute) {
  CompileOptions options = zoned();
  options.spec.recompute = "every";
  expectIntact("small-decoder.onnx", options);
}

TEST(RedZones, StayIntactBesideCopiesToAndFromTheHost) {
  CompileOptions options = zoned();
  options.spec.offload = "host";
  expectIntact("small-decoder.onnx", options);
}

TEST(RedZones, StayIntactInBothMemoriesWhereValuesMove) {
  CompileOptions options = zoned();
  options.spec.offload = "auto";
  options.spec.recompute = "none";
  ASSERT_NO_FATAL_FAILURE(takeSmallest(geluLayers(6), options));
  for (int threads : {1, 2})
    expectIntact(geluLayers(6), options, threads);
}

/// A buffer as one launch sees it.
struct Seen {
  uint32_t program, launch;
  fbs::Space space;
  uint64_t offset, size;
  auto operator<=>(const Seen &) const = default;
};

class Planted : public testing::Test {
protected:
  void compile(const std::string &model, CompileOptions options) {
    options.outPath = folder.file("m.plan");
    Compiled result = compiled(model, options);
    ASSERT_TRUE(result.status.ok()) << result.status.message;
    weights = folder.file("m.safetensors");
    file = readBytes(options.outPath);
  }

  PlanPtr read() {
    uint64_t sum = fnv1a(file.data() + planHeaderBytes, file.size() - planHeaderBytes);
    std::memcpy(file.data() + 24, &sum, sizeof sum);
    auto plan = PlanReader::readMemory(
        {reinterpret_cast<const uint8_t *>(file.data()), file.size()});
    EXPECT_TRUE(plan.ok()) << plan.status().message;
    return plan.ok() ? *plan : nullptr;
  }

  /// Buffers and tensors whose last element a launch changes, through an operand that
  /// ends with them.
  std::set<Seen> writtenToTheEnd(const PlanPtr &plan) {
    std::set<std::pair<fbs::Space, uint64_t>> ends;
    for (const fbs::StateTensor *tensor : *plan->raw().state())
      ends.insert({fbs::Space::state, tensor->offset() + tensor->size()});
    for (const fbs::Program *program : *plan->raw().programs())
      for (uint32_t b = 0; b < sizeOf(program->buffers()); ++b) {
        const fbs::BufferInfo *buffer = program->buffers()->Get(b);
        ends.insert({fbs::Space::step, buffer->offset() + buffer->size() - zoneBytes});
      }
    WatchedRun watched(plan, weights, zoneBytes);
    std::map<Seen, uint32_t> before;
    std::set<Seen> found;
    watched.run([&](uint32_t p, uint32_t l, bool isBefore) {
      forOperands(plan->raw(), p, l, [&](const fbs::Operand &operand) {
        Seen seen{p, l, operand.space(), operand.offset(), operand.size()};
        uint64_t end = seen.offset + seen.size;
        if (seen.size < 4 || operand.worker_stride() || operand.unit_stride() ||
            !ends.count({seen.space, end}))
          return;
        uint32_t last;
        std::memcpy(&last, watched.base(seen.space) + end - 4, 4);
        if (isBefore)
          before[seen] = last;
        else if (before[seen] != last)
          found.insert(seen);
      });
    });
    return found;
  }

  /// Calls `visit` for every operand of a launch.
  template <class Visit>
  static void forOperands(const fbs::Plan &plan, uint32_t program, uint32_t launch,
                          Visit visit) {
    for (const fbs::Stage *stage :
         *plan.programs()->Get(program)->launches()->Get(launch)->stages())
      for (uint32_t o = 0; o < sizeOf(stage->operands()); ++o)
        visit(*stage->operands()->Get(o));
  }

  /// Moves what the launch sees; the buffers stay where they are.
  void move(const Seen &seen, uint64_t from, uint64_t to) {
    const fbs::Plan *plan = fbs::GetPlan(file.data() + planHeaderBytes);
    forOperands(*plan, seen.program, seen.launch, [&](const fbs::Operand &operand) {
      if (operand.space() == seen.space && operand.offset() == from &&
          operand.size() == seen.size)
        const_cast<fbs::Operand &>(operand).mutate_offset(to);
    });
  }

  PlanFolder folder;
  std::string weights, file;
};

TEST_F(Planted, EveryWriteOneElementTooFarIsSeen) {
  ASSERT_NO_FATAL_FAILURE(compile(models::mlp, zoned()));
  PlanPtr plan = read();
  ASSERT_TRUE(plan);
  std::set<Seen> all = writtenToTheEnd(plan);
  EXPECT_GT(all.size(), 20u);
  for (const Seen &seen : all) {
    move(seen, seen.offset, seen.offset + 4);
    PlanPtr wrong = read();
    move(seen, seen.offset + 4, seen.offset);
    ASSERT_TRUE(wrong);
    WatchedRun watched(wrong, weights, zoneBytes);
    ASSERT_NO_FATAL_FAILURE(watched.run());
    EXPECT_FALSE(watched.damage().empty())
        << "byte " << seen.offset << " of launch " << seen.launch << " of program "
        << seen.program;
  }
}

TEST_F(Planted, EveryCopyToTheHostOneElementTooEarlyIsSeen) {
  CompileOptions options = zoned();
  options.spec.offload = "auto";
  options.spec.recompute = "none";
  ASSERT_NO_FATAL_FAILURE(takeSmallest(geluLayers(6), options));
  ASSERT_NO_FATAL_FAILURE(compile(geluLayers(6), options));
  int64_t planted[2] = {0, 0}; // state, step
  const fbs::Plan *raw = fbs::GetPlan(file.data() + planHeaderBytes);
  for (const fbs::Program *program : *raw->programs())
    for (uint32_t c = 0; c < sizeOf(program->copies()); ++c) {
      auto *copy = const_cast<fbs::Copy *>(program->copies()->Get(c));
      if (copy->to_space() < fbs::Space::host_state || copy->size() == 0)
        continue;
      copy->mutate_to_offset(copy->to_offset() - 4);
      PlanPtr wrong = read();
      copy->mutate_to_offset(copy->to_offset() + 4);
      ASSERT_TRUE(wrong);
      WatchedRun watched(wrong, weights, zoneBytes);
      ASSERT_NO_FATAL_FAILURE(watched.run());
      EXPECT_FALSE(watched.hostWatch.damage.empty())
          << "copy " << c << " of '" << program->name()->str() << "'";
      ++planted[copy->to_space() == fbs::Space::host_step];
    }
  EXPECT_GT(planted[0], 0);
  EXPECT_GT(planted[1], 2);
}

} // namespace
} // namespace sluice
