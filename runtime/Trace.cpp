#include "runtime/Trace.h"

#include "runtime/AtomicFile.h"
#include "runtime/CommQueue.h"
#include "runtime/CopyQueue.h"
#include "runtime/JsonText.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace sluice {

uint64_t nowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u +
         static_cast<uint64_t>(now.tv_nsec);
}

std::vector<TraceEvent> TraceRing::events(int worker) const {
  const Ring &ring = rings[static_cast<size_t>(worker)];
  std::vector<TraceEvent> sorted;
  for (uint64_t i = ring.count - std::min<uint64_t>(ring.count, capacity); i < ring.count;
       ++i)
    sorted.push_back(ring.events[i % capacity]);
  return sorted;
}

static std::string copyJson(const TraceEvent &event, int worker, uint64_t startNs,
                            const fbs::Program &program) {
  const fbs::Copy *copy = program.copies()->Get(event.launch & ~traceCopyBit);
  bool toHost = copy->to_space() >= fbs::Space::host_state;
  char numbers[256];
  std::snprintf(numbers, sizeof numbers,
                "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"copy\":%u,\"bytes\":%llu,"
                "\"predicted_us\":%.3f}",
                static_cast<double>(event.beginNs - startNs) / 1e3,
                static_cast<double>(event.endNs - event.beginNs) / 1e3,
                event.launch & ~traceCopyBit,
                static_cast<unsigned long long>(copy->size()), copy->predicted_us());
  std::string what = std::string(toHost ? "to host: " : "to device: ");
  return "{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(worker) +
         ",\"name\":" + jsonText(what + std::string(viewOf(copy->name()))) +
         ",\"cat\":" + jsonText(viewOf(program.name())) + "," + numbers + "}";
}

static std::string collectiveJson(const TraceEvent &event, int worker, uint64_t startNs,
                                  const fbs::Program &program) {
  uint32_t index = event.launch & ~traceCollectiveBit;
  const fbs::Collective *collective = program.collectives()->Get(index);
  unsigned long long bytes = 0;
  for (const fbs::CollectivePart *part : *collective->parts())
    bytes += part->size();
  char numbers[256];
  std::snprintf(numbers, sizeof numbers,
                "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"collective\":%u,\"parts\":%u,"
                "\"bytes\":%llu,\"predicted_us\":%.3f}",
                static_cast<double>(event.beginNs - startNs) / 1e3,
                static_cast<double>(event.endNs - event.beginNs) / 1e3, index,
                sizeOf(collective->parts()), bytes, collective->predicted_us());
  std::string what =
      "all_reduce: " + std::string(viewOf(collective->parts()->Get(0)->name()));
  return "{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(worker) +
         ",\"name\":" + jsonText(what) + ",\"cat\":" + jsonText(viewOf(program.name())) +
         "," + numbers + "}";
}

static std::string eventJson(const TraceEvent &event, int worker, uint64_t startNs,
                             const Plan &plan) {
  const fbs::Program *program = plan.raw().programs()->Get(event.program);
  if (event.launch & traceCopyBit)
    return copyJson(event, worker, startNs, *program);
  if (event.launch & traceCollectiveBit)
    return collectiveJson(event, worker, startNs, *program);
  const fbs::Launch *launch = program->launches()->Get(event.launch);
  char times[128];
  std::snprintf(times, sizeof times, "\"ts\":%.3f,\"dur\":%.3f",
                static_cast<double>(event.beginNs - startNs) / 1e3,
                static_cast<double>(event.endNs - event.beginNs) / 1e3);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "\"launch\":%u,\"flops\":%.0f,\"bytes\":%.0f,\"predicted_us\":%.3f",
                event.launch, launch->flops(), launch->bytes(), launch->predicted_us());
  return "{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(worker) + "," + times +
         ",\"name\":" + jsonText(viewOf(launch->op())) +
         ",\"cat\":" + jsonText(viewOf(program->name())) +
         ",\"args\":{\"node\":" + jsonText(viewOf(launch->node())) + "," + numbers + "}}";
}

std::string traceJson(const TraceRing &ring, const Plan &plan) {
  uint64_t startNs = UINT64_MAX;
  for (int worker = 0; worker < ring.workers(); ++worker)
    for (const TraceEvent &event : ring.events(worker))
      startNs = std::min(startNs, event.beginNs);
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  for (int worker = 0; worker < ring.workers(); ++worker) {
    std::vector<TraceEvent> events = ring.events(worker);
    bool copies = !events.empty() && (events[0].launch & traceCopyBit);
    bool comm = !copies && !events.empty() && (events[0].launch & traceCollectiveBit);
    text += std::string(worker ? ",\n" : "\n") +
            "{\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(worker) +
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"" +
            (copies ? "copies"
             : comm ? "collectives"
                    : "worker " + std::to_string(worker)) +
            "\"}}";
    for (const TraceEvent &event : events)
      text += ",\n" + eventJson(event, worker, startNs, plan);
  }
  return text + "\n]}\n";
}

Status writeTrace(const TraceRing &ring, const Plan &plan, const std::string &path) {
  std::string text = traceJson(ring, plan);
  AtomicFile file(path);
  Status status = file.open();
  if (status.ok())
    status = file.write(text.data(), text.size());
  if (status.ok())
    status = file.commit();
  return status;
}

} // namespace sluice
