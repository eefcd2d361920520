#include "runtime/Executor.h"

#include "kernels/Catalog.h"

#include "runtime/FloatMode.h"

#include <algorithm>

namespace sluice {

Executor::Executor(const Plan &plan, uint32_t program, const KernelTable &kernels,
                   const Arenas &arenas, int threads, int rank)
    : programIndex(program), threads(threads) {
  const fbs::Program *source = plan.raw().programs()->Get(program);
  launches.reserve(sizeOf(source->launches()));
  for (uint32_t i = 0; i < sizeOf(source->launches()); ++i)
    addLaunch(*source->launches()->Get(i), kernels, arenas);
  for (uint32_t i = 0; i < sizeOf(source->copies()); ++i) {
    const fbs::Copy *copy = source->copies()->Get(i);
    transfers.push_back({arenas.of(copy->from_space()) + copy->from_offset(),
                         arenas.of(copy->to_space()) + copy->to_offset(), copy->size(),
                         copy->wait_launches()});
  }
  for (uint32_t i = 0; i < sizeOf(source->collectives()); ++i)
    addCollective(*source->collectives()->Get(i), arenas, rank,
                  static_cast<int>(plan.ranks()));
  for (size_t i = 0; i < launches.size(); ++i) {
    bool nextParallel = i + 1 < launches.size() && launches[i + 1].parallel;
    bool isLast = i + 1 == launches.size(); // the team waits for everyone by itself
    launches[i].barrierAfter = (!isLast && (launches[i].parallel || nextParallel)) ||
                               (launches[i].signal && launches[i].parallel);
    if (launches[i].parallel)
      parallelLaunches.push_back(&launches[i]);
  }
  shares.reset(new Share[2 * static_cast<size_t>(threads)]);
  size_t most = 0;
  for (const Stage &stage : stages)
    most = std::max<size_t>(most, stage.operandCount);
  scratch.resize(static_cast<size_t>(threads));
  for (Scratch &one : scratch)
    one.addresses.resize(most);
}

/// The rows of every rank in turn, each rank's of all parts side by side: so a rank's
/// elements are one range of the message.
static void dealRows(const fbs::Collective &collective, const Arenas &arenas, int rank,
                     int ranks, QueuedCollective &added) {
  bool gathers = added.op == CommOp::allGather;
  uint64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    uint64_t begin = at;
    for (const fbs::CollectivePart *part : *collective.parts()) {
      uint64_t rows = static_cast<uint64_t>(part->rows()), each = part->size() / rows;
      ElementRange own = evenShard(rows, r, ranks);
      uint64_t first = own.begin * each, bytes = (own.end - own.begin) * each;
      uint8_t *from = arenas.of(part->from_space()) + part->from_offset();
      uint8_t *to = arenas.of(part->to_space()) + part->to_offset();
      added.parts.push_back({(gathers ? to : from) + first, bytes});
      at += bytes / added.elementBytes;
      if (r != rank)
        continue;
      uint64_t most =
          (rows + static_cast<uint64_t>(ranks) - 1) / static_cast<uint64_t>(ranks) * each;
      if (gathers)
        added.before.push_back({to + first, from, bytes, 0});
      else
        added.after.push_back({to, from + first, bytes, most - bytes});
    }
    added.shards.push_back({begin, at});
  }
}

void Executor::addCollective(const fbs::Collective &collective, const Arenas &arenas,
                             int rank, int ranks) {
  QueuedCollective added;
  added.type = collective.dtype() == fbs::DType::f32   ? SumType::f32
               : collective.dtype() == fbs::DType::f64 ? SumType::f64
                                                       : SumType::i64;
  added.elementBytes =
      static_cast<uint32_t>(dtypeSize(static_cast<DType>(collective.dtype())));
  added.waitLaunches = collective.wait_launches();
  if (collective.kind() == fbs::CollectiveKind::all_reduce) {
    for (const fbs::CollectivePart *part : *collective.parts()) {
      uint8_t *to = arenas.of(part->to_space()) + part->to_offset();
      added.parts.push_back({to, part->size()});
      added.before.push_back(
          {to, arenas.of(part->from_space()) + part->from_offset(), part->size(), 0});
    }
  } else {
    added.op = collective.kind() == fbs::CollectiveKind::all_gather
                   ? CommOp::allGather
                   : CommOp::reduceScatter;
    dealRows(collective, arenas, rank, ranks, added);
  }
  added.name = viewOf(collective.parts()->Get(0)->name());
  if (size_t more = collective.parts()->size() - 1)
    added.name += "+" + std::to_string(more);
  collectives.push_back(std::move(added));
}

void Executor::addLaunch(const fbs::Launch &launch, const KernelTable &kernels,
                         const Arenas &arenas) {
  Launch added = {};
  added.firstStage = static_cast<uint32_t>(stages.size());
  added.stageCount = sizeOf(launch.stages());
  added.units = launch.units();
  added.chunk = std::min(launch.chunk(), std::max<int64_t>(launch.units(), 1));
  added.chunks = added.units / added.chunk + (added.units % added.chunk != 0);
  added.parallel = threads > 1 && added.chunks > 1;
  added.signal = launch.signal();
  added.waitCopies = launch.wait_copies();
  added.waitCollectives = launch.wait_collectives();
  for (uint32_t i = 0; i < added.stageCount; ++i)
    addStage(*launch.stages()->Get(i), kernels, arenas);
  launches.push_back(added);
}

void Executor::addStage(const fbs::Stage &stage, const KernelTable &kernels,
                        const Arenas &arenas) {
  Stage added = {};
  added.kernel = kernels.functions[stage.kernel()];
  added.firstOperand = static_cast<uint32_t>(operands.size());
  added.operandCount = sizeOf(stage.operands());
  added.firstParam = params.size();
  added.unitScale = stage.unit_scale();
  added.firstUnit = stage.first_unit();
  added.units = stage.units();
  added.fixed = true;
  for (uint32_t i = 0; i < added.operandCount; ++i) {
    const fbs::Operand &operand = *stage.operands()->Get(i);
    uint8_t *address = arenas.of(operand.space()) + operand.offset();
    operands.push_back({address, operand.worker_stride(), operand.unit_stride()});
    fixedAddresses.push_back(address);
    added.fixed &= operand.worker_stride() == 0 && operand.unit_stride() == 0;
  }
  if (stage.params())
    params.insert(params.end(), stage.params()->begin(), stage.params()->end());
  params.resize(params.size() + kAddedParams);
  stages.push_back(added);
}

void Executor::openShare(int worker, size_t parallelIndex) {
  if (parallelIndex >= parallelLaunches.size())
    return;
  int64_t chunks = parallelLaunches[parallelIndex]->chunks;
  // 128 bit: chunks may have 48 bits.
  auto cut = [&](int w) {
    return static_cast<int64_t>(static_cast<__int128>(chunks) * w / threads);
  };
  Share &share = shares[(parallelIndex % 2) * static_cast<size_t>(threads) +
                        static_cast<size_t>(worker)];
  share.end = cut(worker + 1);
  share.next.store(cut(worker), std::memory_order_relaxed);
}

void Executor::runStage(const Stage &stage, int64_t begin, int64_t end, int worker) {
  void *const *addresses = fixedAddresses.data() + stage.firstOperand;
  if (!stage.fixed) {
    void **own = scratch[static_cast<size_t>(worker)].addresses.data();
    for (uint32_t i = 0; i < stage.operandCount; ++i) {
      const Operand &operand = operands[stage.firstOperand + i];
      // Modulo 2^64 on purpose: the kernel adds begin * unitStride back.
      uintptr_t address = reinterpret_cast<uintptr_t>(operand.address);
      address += static_cast<uint64_t>(worker) * operand.workerStride -
                 static_cast<uint64_t>(begin) * operand.unitStride;
      own[i] = reinterpret_cast<void *>(address);
    }
    addresses = own;
  }
  stage.kernel(addresses, params.data() + stage.firstParam, begin * stage.unitScale,
               end * stage.unitScale, worker);
}

void Executor::runParts(const Launch &launch, int64_t begin, int64_t end, int worker) {
  const Stage *stage = stages.data() + launch.firstStage,
              *last = stage + launch.stageCount;
  stage = std::upper_bound(stage, last, begin, [](int64_t unit, const Stage &part) {
    return unit < part.firstUnit + part.units;
  });
  for (; stage != last && stage->firstUnit < end; ++stage)
    runStage(*stage, std::max(begin - stage->firstUnit, int64_t(0)),
             std::min(end - stage->firstUnit, stage->units), worker);
}

void Executor::runChunk(const Launch &launch, int64_t chunk, int worker) {
  int64_t begin = chunk * launch.chunk;
  int64_t end = std::min(begin + launch.chunk, launch.units);
  if (stages[launch.firstStage].units > 0)
    return runParts(launch, begin, end, worker);
  for (uint32_t s = 0; s < launch.stageCount; ++s)
    runStage(stages[launch.firstStage + s], begin, end, worker);
}

void Executor::runShared(const Launch &launch, size_t parallelIndex, int worker) {
  Share *half = shares.get() + (parallelIndex % 2) * static_cast<size_t>(threads);
  for (int offset = 0; offset < threads; ++offset) {
    Share &share = half[(worker + offset) % threads];
    for (;;) {
      int64_t chunk = share.next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= share.end)
        break;
      runChunk(launch, chunk, worker);
    }
  }
  // The other half is free: everyone has left its launch, and nobody enters the next
  // before the barrier.
  openShare(worker, parallelIndex + 1);
}

void Executor::runLaunches(int worker) {
  size_t parallelIndex = 0;
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch &launch = launches[i];
    bool works = launch.parallel || worker == 0;
    if (works && launch.waitCopies > 0)
      copyQueue->waitFor(launch.waitCopies);
    if (works && launch.waitCollectives > 0 && commQueue)
      commQueue->waitFor(launch.waitCollectives);
    if (hook)
      callHook(i, true, worker);
    uint64_t beginNs = trace && works ? nowNs() : 0;
    if (launch.parallel)
      runShared(launch, parallelIndex++, worker);
    else if (worker == 0)
      for (int64_t chunk = 0; chunk < launch.chunks; ++chunk)
        runChunk(launch, chunk, 0);
    if (trace && works)
      trace->record(worker, {programIndex, static_cast<uint32_t>(i), beginNs, nowNs()});
    if (hook)
      callHook(i, false, worker);
    if (launch.barrierAfter)
      team->barrier();
    if (launch.signal && worker == 0 && copyQueue)
      copyQueue->launched(static_cast<uint32_t>(i) + 1);
    if (launch.signal && worker == 0 && commQueue)
      commQueue->launched(static_cast<uint32_t>(i) + 1);
  }
}

void Executor::callHook(size_t launch, bool isBefore, int worker) {
  bool inTeam = !parallelLaunches.empty();
  if (inTeam)
    team->barrier();
  if (worker == 0)
    (*hook)(programIndex, static_cast<uint32_t>(launch), isBefore);
  if (inTeam)
    team->barrier();
}

Status Executor::run(ThreadTeam &runTeam, const Queues &queues) {
  FloatMode mode;
  team = &runTeam;
  copyQueue = hasCopies() ? queues.copies : nullptr;
  commQueue = hasCollectives() ? queues.comm : nullptr;
  if (copyQueue)
    copyQueue->begin(transfers, queues.trace, programIndex, queues.copyHook);
  if (commQueue)
    commQueue->begin(collectives, {"update", programIndex, queues.update, queues.trace,
                                   threads, queues.collectiveHook});
  runTeamOrAlone(queues.trace, queues.hook);
  if (copyQueue)
    copyQueue->finish();
  return commQueue ? commQueue->finish() : Status::success();
}

void Executor::runTeamOrAlone(TraceRing *runTrace, const LaunchHook *runHook) {
  trace = runTrace;
  hook = runHook && *runHook ? runHook : nullptr;
  if (parallelLaunches.empty()) {
    runLaunches(0); // no barrier inside, so nobody else is needed
    return;
  }
  for (int worker = 0; worker < threads; ++worker)
    openShare(worker, 0);
  team->run(
      [](void *self, int worker) { static_cast<Executor *>(self)->runLaunches(worker); },
      this);
}

} // namespace sluice
