// The plan dialect and the plan file correspond one to one; see runtime/plan.fbs.

#include "codegen/WritePlan.h"

#include "codegen/CompileReport.h"
#include "codegen/ContinualTable.h"
#include "codegen/GroupTable.h"
#include "codegen/ReplayTable.h"
#include "codegen/StateFile.h"
#include "codegen/Variants.h"
#include "passes/Collectives.h"
#include "passes/QueueVerifier.h"
#include "passes/SpikeRule.h"
#include "passes/StoredState.h"
#include "passes/TensorFacts.h"
#include "passes/VersionVerifier.h"
#include "passes/lowering/ProgramBuilder.h"
#include "runtime/Checksum.h"
#include "runtime/PlanFile.h"
#include "runtime/plan_generated.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;

fbs::DType dtypeOf(Type tensor) {
  std::optional<DType> type = storedType(cast<RankedTensorType>(tensor).getElementType());
  return static_cast<fbs::DType>(type.value_or(DType::f32));
}

fbs::Role roleOf(StringRef role) {
  return llvm::StringSwitch<fbs::Role>(role)
      .Case("buffer", fbs::Role::buffer)
      .Case("moment", fbs::Role::moment)
      .Case("master", fbs::Role::master)
      .Case("accumulator", fbs::Role::accumulator)
      .Case("pending", fbs::Role::pending)
      .Case("control", fbs::Role::control)
      .Case("constant", fbs::Role::constant)
      .Case("continual", fbs::Role::continual)
      .Default(fbs::Role::parameter);
}

fbs::Choice choiceOf(StringRef choice) {
  return llvm::StringSwitch<fbs::Choice>(choice)
      .Case("kept", fbs::Choice::kept)
      .Case("marked", fbs::Choice::marked)
      .Case("fixed", fbs::Choice::fixed)
      .Case("recomputed", fbs::Choice::recomputed)
      .Case("backward", fbs::Choice::backward)
      .Case("fused", fbs::Choice::fused)
      .Case("renamed", fbs::Choice::renamed)
      .Default(fbs::Choice::passing);
}

int32_t runOf(Operation *op) {
  auto run = op->getAttrOfType<IntegerAttr>(recomputeAttr);
  return run ? run.getInt() : 0;
}

int64_t integerAttr(ModuleOp module, StringRef name, int64_t otherwise) {
  auto attr = module->getAttrOfType<IntegerAttr>(name);
  return attr ? attr.getInt() : otherwise;
}
std::string stringAttr(ModuleOp module, StringRef name) {
  auto attr = module->getAttrOfType<StringAttr>(name);
  return attr ? attr.str() : std::string();
}

std::string hexHash(const std::string &text) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(fnv1a(text.data(), text.size())));
  return digits;
}

class PlanWriter {
public:
  PlanWriter(ArrayRef<PlannedVariant> variants, const PlanCode &code,
             const PlanOrigin &origin)
      : variants(variants), module(variants.front().module), code(code), origin(origin) {}

  fbs::PlanT run() {
    addHeader();
    for (const PlannedVariant &variant : variants) {
      addStates(variant.module);
      addKernels(variant.module);
    }
    for (const PlannedVariant &variant : variants)
      addVariant(variant);
    plan.groups = groupsOf(module);
    addVersions();
    plan.changes = changesOf(module->getAttrOfType<ArrayAttr>("graph.changes"));
    plan.continual = continualOf(module);
    plan.masks = masksOf(module);
    plan.replay = replayOf(module);
    plan.spikes = spikesOf(module);
    plan.reruns_outliers = module->hasAttr(rerunsAttr);
    addAdapters();
    addReport();
    return std::move(plan);
  }

private:
  void addHeader() {
    plan.producer = origin.producer;
    plan.model_name = stringAttr(module, "graph.model_name");
    plan.model_hash = stringAttr(module, "graph.model_hash");
    plan.spec = origin.spec;
    plan.spec_hash = hexHash(origin.spec);
    plan.threads = std::max<int64_t>(1, integerAttr(module, "graph.threads", 1));
    plan.seed = integerAttr(module, "graph.seed", 0);
    plan.accumulate = integerAttr(module, "graph.accumulate", 1);
    plan.as_ranks = integerAttr(module, "graph.as_ranks", 1);
    plan.ranks = integerAttr(module, ranksAttr, 1);
    if (auto timeout = module->getAttrOfType<FloatAttr>(timeoutAttr))
      plan.timeout_s = timeout.getValueAsDouble();
    plan.batch = integerAttr(module, "graph.batch", 0);
    plan.update_every = integerAttr(module, updateEveryAttr, 1);
    if (auto flushes = module->getAttrOfType<ArrayAttr>(updateFlushAttr))
      for (auto flush : flushes.getAsRange<StringAttr>()) {
        plan.flush_eval |= flush == "eval";
        plan.flush_save |= flush == "save";
        plan.flush_end |= flush == "stop";
      }
    plan.budget_bytes = origin.budgetBytes;
    plan.full_batches = module->hasAttr("graph.full_batches");
    plan.loss_kind = stringAttr(module, "graph.loss_kind");
    plan.logits_output = stringAttr(module, "graph.logits_output");
    plan.labels_input = stringAttr(module, "graph.labels_input");
    for (const KernelImage &image : code.images) {
      auto entry = std::make_unique<fbs::CodeImageT>();
      entry->level = image.level;
      entry->offset = 1; // filled in when the file is laid out
      entry->size = image.bytes.size();
      plan.images.push_back(std::move(entry));
    }
  }

  void addVersions() {
    std::vector<GroupTiming> timings = groupTimings(module);
    if (timings.empty())
      return;
    VersionTable table = versionTable(std::move(timings));
    for (const VersionRow &row : table.rows) {
      auto entry = std::make_unique<fbs::VersionRowT>();
      entry->step = row.step, entry->read = row.read, entry->version = row.version;
      entry->group = table.groups[static_cast<size_t>(row.group)].name;
      entry->first_gradient = row.firstGradient;
      entry->last_gradient = row.lastGradient;
      plan.versions.push_back(std::move(entry));
    }
  }

  /// What several modules have is the same (MergeVariants).
  void addStates(ModuleOp from) {
    for (auto state : from.getOps<plan::StateOp>()) {
      if (offsets.contains(state.getSymName()))
        continue;
      auto entry = std::make_unique<fbs::StateTensorT>();
      entry->name = state.getSymName().str();
      entry->dtype = dtypeOf(state.getType());
      entry->shape = state.getTensorType().getShape().vec();
      if (auto whole = state->getAttrOfType<DenseI64ArrayAttr>(graph::wholeShapeAttr)) {
        entry->whole = whole.asArrayRef().vec();
        entry->shard_rows =
            state->getAttrOfType<IntegerAttr>(graph::shardRowsAttr).getInt();
      }
      if (auto format = state->getAttrOfType<StringAttr>(storedFormatAttr)) {
        entry->format = format.str();
        entry->value_shape =
            state->getAttrOfType<DenseI64ArrayAttr>(valueShapeAttr).asArrayRef().vec();
      }
      entry->offset = state.getOffset();
      entry->size = state.getSize();
      entry->role = roleOf(state.getRole());
      entry->trainable = state.getTrainable();
      entry->saved = state.getSaved();
      entry->init = state.getInit() == "file"   ? fbs::InitKind::file
                    : state.getInit() == "fill" ? fbs::InitKind::fill
                                                : fbs::InitKind::zeros;
      entry->fill = state.getFill().convertToDouble();
      if (state.isOnHost())
        entry->space = fbs::Space::host_state;
      uint64_t &bytes = state.isOnHost() ? plan.host_state_bytes : plan.state_bytes;
      bytes = std::max<uint64_t>(bytes,
                                 llvm::alignTo(entry->offset + entry->size, lineBytes));
      offsets[state.getSymName()] = entry->offset;
      plan.state.push_back(std::move(entry));
    }
  }

  void addKernels(ModuleOp from) {
    for (auto kernel : from.getOps<plan::KernelOp>()) {
      if (kernels.contains(kernel.getSymName()))
        continue;
      auto entry = std::make_unique<fbs::KernelT>();
      entry->generated = kernel.isGenerated();
      auto symbol = code.symbols.find(kernel.getSymName().str());
      entry->name =
          symbol != code.symbols.end() ? symbol->second : kernel.getSymName().str();
      kernels[kernel.getSymName()] = plan.kernels.size();
      plan.kernels.push_back(std::move(entry));
    }
  }

  void addVariant(const PlannedVariant &variant) {
    auto entry = std::make_unique<fbs::VariantT>();
    entry->name = variant.name();
    entry->bucket = variant.bucket;
    entry->rung = variant.rung;
    entry->batch = integerAttr(variant.module, "graph.batch", 0);
    entry->bucket_name = variant.bucketName;
    entry->memory_fraction = variant.memoryFraction;
    entry->budget_bytes = variant.rungBudgetBytes.value_or(0);
    for (auto program : ModuleOp(variant.module).getOps<plan::ProgramOp>()) {
      std::unique_ptr<fbs::ProgramT> built = programOf(program);
      entry->step_bytes = std::max<uint64_t>(entry->step_bytes, built->step_bytes);
      entry->programs.push_back(indexOf(std::move(built)));
    }
    // A file of one variant says nothing of it.
    if (variants.size() > 1)
      plan.variants.push_back(std::move(entry));
  }

  /// The place of a program in the file; equal ones are there once.
  uint32_t indexOf(std::unique_ptr<fbs::ProgramT> program) {
    uint32_t next = plan.programs.size();
    if (variants.size() > 1) {
      flatbuffers::FlatBufferBuilder builder;
      builder.Finish(fbs::Program::Pack(builder, program.get()));
      std::string bytes(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                        builder.GetSize());
      auto [found, isNew] = programs.try_emplace(std::move(bytes), next);
      if (!isNew)
        return found->second;
    }
    plan.programs.push_back(std::move(program));
    return next;
  }

  struct Place {
    fbs::Space space;
    uint64_t offset, size;
  };
  Place placeOf(Value buffer) {
    plan::BufferRange range = plan::rangeOf(buffer);
    uint64_t offset = range.offset;
    bool onHost = isOnHost(range.root);
    if (auto state = dyn_cast<plan::StateBufferOp>(range.root))
      return {onHost ? fbs::Space::host_state : fbs::Space::state,
              offset + offsets.lookup(state.getSymbol()), uint64_t(range.size)};
    auto owned = cast<plan::BufferOp>(range.root);
    return {onHost ? fbs::Space::host_step : fbs::Space::step,
            offset + owned.getOffset().value_or(0), uint64_t(range.size)};
  }

  template <typename Port> std::unique_ptr<fbs::PortT> portOf(Port port) {
    auto entry = std::make_unique<fbs::PortT>();
    auto type = cast<RankedTensorType>(port.getType());
    Place place = placeOf(port.getBuffer());
    entry->name = port.getName().str();
    entry->dtype = dtypeOf(type);
    entry->shape = type.getShape().vec();
    entry->space = place.space;
    entry->offset = place.offset;
    entry->size = plan::tensorBytes(type);
    return entry;
  }

  std::unique_ptr<fbs::ProgramT> programOf(plan::ProgramOp program) {
    auto entry = std::make_unique<fbs::ProgramT>();
    entry->name = program.getEntry().str();
    if (auto mixes = program->getAttrOfType<StringAttr>("plan.mixes"))
      entry->mixes = mixes.str();
    entry->step_bytes = program.getStepBytes();
    entry->bound_bytes = program.getBoundBytes();
    entry->predicted_us = program.getPredictedUs().convertToDouble();
    auto bound = program->getAttrOfType<FloatAttr>(boundUsAttr);
    entry->bound_us = bound ? bound.getValueAsDouble() : entry->predicted_us;
    addTensors(program, *entry);
    plan.step_bytes = std::max<uint64_t>(plan.step_bytes, entry->step_bytes);
    Block &body = program.getBody().front();
    for (auto input : body.getOps<plan::InputOp>())
      entry->inputs.push_back(inputOf(input));
    for (auto output : body.getOps<plan::OutputOp>()) {
      entry->outputs.push_back(portOf(output));
      // The runtime then leaves out the rows a short batch was filled up with.
      entry->outputs.back()->batched = output->hasAttr("plan.batched");
      addCrops(output, *entry->outputs.back());
    }
    for (plan::LaunchOp launch : launchesOf(program))
      entry->launches.push_back(launchOf(launch));
    addCopies(program, *entry);
    addCollectives(program, *entry);
    for (auto buffer : body.getOps<plan::BufferOp>()) {
      auto info = std::make_unique<fbs::BufferInfoT>();
      info->name = bufferNames(buffer).str();
      info->category = buffer.getCategory().str();
      info->offset = buffer.getOffset().value_or(0);
      info->size = buffer.getSize();
      info->space = buffer.isOnHost() ? fbs::Space::host_step : fbs::Space::step;
      info->offloaded = buffer.getOffloaded();
      info->run = runOf(buffer);
      if (auto element = buffer->getAttrOfType<TypeAttr>(elementAttr))
        if (std::optional<DType> type = storedType(element.getValue())) {
          info->typed = true;
          info->dtype = static_cast<fbs::DType>(*type);
        }
      info->first = static_cast<int64_t>(buffer.getFirst().value_or(0));
      info->last = static_cast<int64_t>(buffer.getLast().value_or(0));
      entry->buffers.push_back(std::move(info));
    }
    return entry;
  }

  static void addCrops(plan::OutputOp output, fbs::PortT &entry) {
    auto crops = output->getAttrOfType<ArrayAttr>("plan.crops");
    if (!crops)
      return;
    for (auto crop : crops.getAsRange<DenseI64ArrayAttr>()) {
      ArrayRef<int64_t> values = crop.asArrayRef(); // as TrackSamples writes them
      auto added = std::make_unique<fbs::CropT>();
      added->input = static_cast<uint32_t>(values[0]);
      added->input_dimension = static_cast<uint32_t>(values[1]);
      added->dimension = static_cast<uint32_t>(values[2]);
      added->stride = values[3];
      added->size = values[4];
      added->steps = values.drop_front(5).vec();
      entry.crops.push_back(std::move(added));
    }
  }

  /// Copies, and what the queues wait for.
  void addCopies(plan::ProgramOp program, fbs::ProgramT &entry) {
    entry.host_bytes = program.getHostBytes();
    entry.host_bound_bytes = program.getHostBoundBytes();
    plan.host_step_bytes = std::max(plan.host_step_bytes, entry.host_bytes);
    SmallVector<QueuedCopy> copies = copiesOf(program);
    for (QueuedCopy &copy : copies) {
      auto added = std::make_unique<fbs::CopyT>();
      Place from = placeOf(copy.op.getSource()), to = placeOf(copy.op.getTarget());
      added->from_space = from.space, added->from_offset = from.offset;
      added->to_space = to.space, added->to_offset = to.offset;
      added->size = from.size;
      added->wait_launches = copy.waitLaunches;
      added->name = copy.op.getLabel().str();
      added->predicted_us = copy.op.getPredictedUs().convertToDouble();
      entry.copies.push_back(std::move(added));
    }
    for (auto [i, copy] : llvm::enumerate(copies)) {
      if (copy.waitLaunches > 0)
        entry.launches[copy.waitLaunches - 1]->signal = true;
      if (copy.doneBy < int64_t(entry.launches.size()))
        entry.launches[copy.doneBy]->wait_copies = i + 1;
    }
  }

  void addCollectives(plan::ProgramOp program, fbs::ProgramT &entry) {
    SmallVector<QueuedCollective> collectives = collectivesOf(program);
    for (auto [i, collective] : llvm::enumerate(collectives)) {
      plan::CollectiveOp op = collective.op;
      auto added = std::make_unique<fbs::CollectiveT>();
      auto rows = op->getAttrOfType<DenseI64ArrayAttr>(plan::collectiveRowsAttr);
      added->kind = op.getKind() == "reduce_scatter" ? fbs::CollectiveKind::reduce_scatter
                    : op.getKind() == "all_gather"   ? fbs::CollectiveKind::all_gather
                                                     : fbs::CollectiveKind::all_reduce;
      added->dtype =
          static_cast<fbs::DType>(storedType(op.getElement()).value_or(DType::f32));
      added->wait_launches = collective.waitLaunches;
      added->predicted_us = op.getPredictedUs().convertToDouble();
      for (auto [name, in, out] :
           llvm::zip_equal(op.getNames(), op.getIns(), op.getOuts())) {
        auto part = std::make_unique<fbs::CollectivePartT>();
        Place from = placeOf(in), to = placeOf(out);
        part->name = cast<StringAttr>(name).str();
        part->from_space = from.space, part->from_offset = from.offset;
        part->to_space = to.space, part->to_offset = to.offset;
        part->size = std::max(from.size, to.size);
        if (rows)
          part->rows = rows[added->parts.size()];
        added->parts.push_back(std::move(part));
      }
      entry.collectives.push_back(std::move(added));
      if (collective.waitLaunches > 0)
        entry.launches[collective.waitLaunches - 1]->signal = true;
      if (collective.doneBy < int64_t(entry.launches.size()))
        entry.launches[collective.doneBy]->wait_collectives = i + 1;
    }
  }

  static void addTensors(plan::ProgramOp program, fbs::ProgramT &entry) {
    auto facts = program->getAttrOfType<ArrayAttr>(tensorFactsAttr);
    if (!facts)
      return;
    for (auto fact : facts.getAsRange<DictionaryAttr>()) {
      auto tensor = std::make_unique<fbs::TensorFactT>();
      tensor->name = fact.getAs<StringAttr>("name").str();
      tensor->choice = choiceOf(fact.getAs<StringAttr>("choice"));
      tensor->bytes = fact.getAs<IntegerAttr>("bytes").getInt();
      tensor->again_us = fact.getAs<FloatAttr>("again_us").getValueAsDouble();
      tensor->runs = fact.getAs<IntegerAttr>("runs").getInt();
      if (auto of = fact.getAs<StringAttr>("of"))
        tensor->of = of.str();
      entry.tensors.push_back(std::move(tensor));
    }
  }

  std::unique_ptr<fbs::PortT> inputOf(plan::InputOp input) {
    auto entry = portOf(input);
    entry->batched = input.getBatched();
    if (input.getBounds()) {
      entry->bounded = true;
      entry->lower = (*input.getBounds())[0];
      entry->upper = (*input.getBounds())[1];
    }
    if (auto fill = input->getAttrOfType<FloatAttr>("plan.fill")) {
      entry->fills = true;
      entry->fill = fill.getValueAsDouble();
    }
    if (input.getIgnored()) {
      entry->has_ignored = true;
      entry->ignored = static_cast<int64_t>(*input.getIgnored());
    }
    return entry;
  }

  std::unique_ptr<fbs::LaunchT> launchOf(plan::LaunchOp launch) {
    auto entry = std::make_unique<fbs::LaunchT>();
    entry->units = launch.getUnits();
    entry->chunk = launch.getChunk();
    entry->node = launch.getNode().str();
    entry->again = runOf(launch);
    entry->op = launch.getLabel().str();
    entry->flops = launch.getFlops().convertToDouble();
    entry->bytes = launch.getBytes().convertToDouble();
    entry->predicted_us = launch.getPredictedUs().convertToDouble();
    for (auto stage : launch.getBody().front().getOps<plan::StageOp>())
      entry->stages.push_back(stageOf(stage));
    return entry;
  }

  std::unique_ptr<fbs::StageT> stageOf(plan::StageOp stage) {
    auto entry = std::make_unique<fbs::StageT>();
    entry->kernel = kernels.lookup(stage.getKernel());
    entry->params.assign(stage.getParams().begin(), stage.getParams().end());
    entry->unit_scale = stage.getUnitScale();
    if (auto part = stage.getPart())
      entry->first_unit = (*part)[0], entry->units = (*part)[1];
    auto workers = stage.getWorkerStrides(), units = stage.getUnitStrides();
    for (auto [i, operand] : llvm::enumerate(stage.getOperands())) {
      Place place = placeOf(operand);
      entry->operands.emplace_back(place.offset, place.size, workers ? (*workers)[i] : 0,
                                   units ? (*units)[i] : 0, place.space);
    }
    return entry;
  }

  void addAdapters() {
    auto adapters = module->getAttrOfType<ArrayAttr>("graph.adapters");
    if (!adapters)
      return;
    for (auto adapter : adapters.getAsRange<DictionaryAttr>()) {
      auto entry = std::make_unique<fbs::AdapterT>();
      auto name = [&](StringRef key) { return adapter.getAs<StringAttr>(key).str(); };
      entry->base = name("base"), entry->a = name("a"), entry->b = name("b");
      entry->scale = adapter.getAs<FloatAttr>("scale").getValueAsDouble();
      entry->input_first = adapter.getAs<BoolAttr>("input_first").getValue();
      plan.adapters.push_back(std::move(entry));
    }
  }

  static std::unique_ptr<fbs::KeyValueT> keyValue(StringRef key, StringRef value) {
    auto entry = std::make_unique<fbs::KeyValueT>();
    entry->key = key.str();
    entry->value = value.str();
    return entry;
  }

  void addReport() {
    for (const std::string &line : origin.report) {
      auto [topic, text] = StringRef(line).split(": ");
      plan.report.push_back(keyValue(topic, text));
    }
    for (auto &[tensor, node] : origin.tensorNodes)
      plan.aliases.push_back(keyValue(tensor, node));
    for (auto &[subject, why] : origin.decisions)
      plan.decisions.push_back(keyValue(subject, why));
  }

  ArrayRef<PlannedVariant> variants;
  ModuleOp module; // the first, for what all have in common
  const PlanCode &code;
  const PlanOrigin &origin;
  fbs::PlanT plan;
  llvm::StringMap<uint64_t> offsets; // of state tensors
  llvm::StringMap<uint32_t> kernels;
  std::map<std::string, uint32_t> programs; // stored bytes -> index
};

} // namespace

std::string weightsPathOf(const std::string &planPath) {
  size_t slash = planPath.rfind('/'), dot = planPath.rfind('.');
  bool hasSuffix =
      dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (hasSuffix ? planPath.substr(0, dot) : planPath) + ".safetensors";
}

Status writePlan(ArrayRef<PlannedVariant> variants, const PlanCode &code,
                 const PlanOrigin &origin, const std::string &path) {
  fbs::PlanT plan = PlanWriter(variants, code, origin).run();
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fbs::Plan::Pack(builder, &plan), fbs::PlanIdentifier());
  std::vector<std::span<const uint8_t>> segments;
  for (const KernelImage &image : code.images)
    segments.emplace_back(reinterpret_cast<const uint8_t *>(image.bytes.data()),
                          image.bytes.size());
  AtomicFile file(path);
  Status status =
      stagePlanFile(file, {builder.GetBufferPointer(), builder.GetSize()}, segments);
  // The state goes in place first, when both can: a plan is never there without it.
  auto modules = llvm::map_to_vector(variants, [](auto &v) { return v.module; });
  if (status.ok())
    status = writeInitialState(modules, weightsPathOf(path));
  return status.ok() ? file.commit() : status;
}

} // namespace sluice
