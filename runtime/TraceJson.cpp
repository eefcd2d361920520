// Timelines as Trace Event Format, for Perfetto: what ran, and beside it what was planned
// from the moment each program began.

#include "runtime/AtomicFile.h"
#include "runtime/CommQueue.h"
#include "runtime/CopyQueue.h"
#include "runtime/JsonText.h"
#include "runtime/Timeline.h"
#include "runtime/Trace.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace sluice {
namespace {

enum Process { measured = 1, planned = 2 };

/// An event of a queue, in microseconds from the start of the trace.
struct Span {
  Process process = measured;
  int row = 0;
  double beginUs = 0, endUs = 0;
};

std::string numberText(const char *format, double a, double b = 0) {
  char text[96];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

std::string eventJson(const Span &span, const std::string &name, std::string_view program,
                      const std::string &arguments) {
  return "{\"ph\":\"X\",\"pid\":" + std::to_string(span.process) +
         ",\"tid\":" + std::to_string(span.row) +
         numberText(",\"ts\":%.3f,\"dur\":%.3f", span.beginUs,
                    span.endUs - span.beginUs) +
         ",\"name\":" + jsonText(name) + ",\"cat\":" + jsonText(program) + ",\"args\":{" +
         arguments + "}}";
}

std::string launchJson(const Span &span, uint32_t index, const fbs::Program &program) {
  const fbs::Launch *launch = program.launches()->Get(index);
  return eventJson(
      span, std::string(viewOf(launch->op())), viewOf(program.name()),
      "\"node\":" + jsonText(viewOf(launch->node())) +
          ",\"launch\":" + std::to_string(index) +
          numberText(",\"flops\":%.0f,\"bytes\":%.0f", launch->flops(), launch->bytes()) +
          numberText(",\"predicted_us\":%.3f", launch->predicted_us()));
}

std::string copyJson(const Span &span, uint32_t index, const fbs::Program &program) {
  const fbs::Copy *copy = program.copies()->Get(index);
  bool toHost = copy->to_space() >= fbs::Space::host_state;
  std::string what = toHost ? "to host: " : "to device: ";
  return eventJson(span, what + std::string(viewOf(copy->name())), viewOf(program.name()),
                   "\"copy\":" + std::to_string(index) +
                       ",\"bytes\":" + std::to_string(copy->size()) +
                       numberText(",\"predicted_us\":%.3f", copy->predicted_us()));
}

std::string collectiveJson(const Span &span, uint32_t index,
                           const fbs::Program &program) {
  const fbs::Collective *collective = program.collectives()->Get(index);
  uint64_t bytes = 0;
  for (const fbs::CollectivePart *part : *collective->parts())
    bytes += part->size();
  std::string what =
      "all_reduce: " + std::string(viewOf(collective->parts()->Get(0)->name()));
  return eventJson(span, what, viewOf(program.name()),
                   "\"collective\":" + std::to_string(index) +
                       ",\"parts\":" + std::to_string(sizeOf(collective->parts())) +
                       ",\"bytes\":" + std::to_string(bytes) +
                       numberText(",\"predicted_us\":%.3f", collective->predicted_us()));
}

std::string nameJson(const char *kind, int process, int row, const std::string &name) {
  return std::string("{\"ph\":\"M\",\"pid\":") + std::to_string(process) +
         ",\"tid\":" + std::to_string(row) + ",\"name\":\"" + kind +
         "\",\"args\":{\"name\":" + jsonText(name) + "}}";
}

Queue queueOf(const TraceEvent &event) {
  return event.launch & traceCopyBit         ? Queue::copies
         : event.launch & traceCollectiveBit ? Queue::collectives
                                             : Queue::launches;
}

/// Intervals of the queues, for what share of one lies beside another.
struct Busy {
  std::vector<Interval> launches, copies, collectives;
  std::vector<Interval> &of(Queue queue) {
    return queue == Queue::copies        ? copies
           : queue == Queue::collectives ? collectives
                                         : launches;
  }
  /// "collectives 84% beside launches, ..." and the same as JSON members.
  std::string text() const {
    std::string all;
    for (auto [name, own] : {std::pair("collectives", &collectives), {"copies", &copies}})
      if (!own->empty())
        all += (all.empty() ? "" : ", ") + std::string(name) +
               numberText(" %.0f%% beside launches", 100 * overlapShare(*own, launches));
    return all;
  }
  std::string json() const {
    std::string all;
    for (auto [name, own] : {std::pair("collectives", &collectives), {"copies", &copies}})
      if (!own->empty())
        all += (all.empty() ? "\"" : ",\"") + std::string(name) +
               numberText("\":%.4f", overlapShare(*own, launches));
    return all;
  }
};

class TraceWriter {
public:
  TraceWriter(const Plan &plan) : plan(plan) {}

  void add(const std::string &event) { text += (text.empty() ? "\n" : ",\n") + event; }

  void addMeasured(const TraceRing &ring) {
    findStart(ring);
    for (int worker = 0; worker < ring.workers(); ++worker) {
      std::vector<TraceEvent> events = ring.events(worker);
      Queue queue = events.empty() ? Queue::launches : queueOf(events[0]);
      add(nameJson("thread_name", measured, worker,
                   queue == Queue::copies        ? "copies"
                   : queue == Queue::collectives ? "collectives"
                                                 : "worker " + std::to_string(worker)));
      for (const TraceEvent &event : events) {
        Span span{measured, worker, double(event.beginNs - startNs) / 1e3,
                  double(event.endNs - startNs) / 1e3};
        constexpr uint32_t bits = traceCopyBit | traceCollectiveBit;
        addSpan(span, queueOf(event), event.launch & ~bits, event.program);
        measuredBusy.of(queueOf(event)).push_back({span.beginUs, span.endUs});
        if (worker == 0 && queue == Queue::launches)
          noteBegin(event, span.beginUs);
      }
    }
  }

  /// The programs at `begins`, as planned.
  void addPlanned() {
    for (auto [program, beginUs] : begins) {
      auto [found, isNew] = timelines.try_emplace(program);
      if (isNew)
        found->second = plannedTimeline(*plan.raw().programs()->Get(program));
      for (const TimelineEvent &event : found->second) {
        Span span{planned, static_cast<int>(event.queue), beginUs + event.beginUs,
                  beginUs + event.endUs};
        addSpan(span, event.queue, event.index, program);
        plannedBusy.of(event.queue).push_back({span.beginUs, span.endUs});
      }
    }
    add(nameJson("thread_name", planned, static_cast<int>(Queue::launches), "launches"));
    if (!plannedBusy.copies.empty())
      add(nameJson("thread_name", planned, static_cast<int>(Queue::copies), "copies"));
    if (!plannedBusy.collectives.empty())
      add(nameJson("thread_name", planned, static_cast<int>(Queue::collectives),
                   "collectives"));
  }
  void planAt(uint32_t program) { begins.push_back({program, 0}); }

  std::string finish(bool hasMeasured) {
    if (hasMeasured)
      add(nameJson("process_name", measured, 0, titled("measured", measuredBusy)));
    add(nameJson("process_name", planned, 0, titled("planned", plannedBusy)));
    std::string shares;
    if (hasMeasured)
      shares = "\"measured\":{" + measuredBusy.json() + "},";
    shares += "\"planned\":{" + plannedBusy.json() + "}";
    return "{\"displayTimeUnit\":\"ns\",\"overlap\":{" + shares + "},\"traceEvents\":[" +
           text + "\n]}\n";
  }

private:
  static std::string titled(const char *name, const Busy &busy) {
    std::string shares = busy.text();
    return shares.empty() ? name : std::string(name) + ": " + shares;
  }

  void findStart(const TraceRing &ring) {
    for (int worker = 0; worker < ring.workers(); ++worker)
      for (const TraceEvent &event : ring.events(worker))
        startNs = std::min(startNs, event.beginNs);
  }

  /// A run begins where a worker's launches count up from the start again.
  void noteBegin(const TraceEvent &event, double beginUs) {
    bool isNext = !begins.empty() && begins.back().first == event.program &&
                  event.launch > lastLaunch;
    if (!isNext)
      begins.push_back({event.program, beginUs});
    lastLaunch = event.launch;
  }

  void addSpan(const Span &span, Queue queue, uint32_t index, uint32_t programIndex) {
    const fbs::Program &program = *plan.raw().programs()->Get(programIndex);
    add(queue == Queue::copies        ? copyJson(span, index, program)
        : queue == Queue::collectives ? collectiveJson(span, index, program)
                                      : launchJson(span, index, program));
  }

  const Plan &plan;
  std::string text;
  uint64_t startNs = UINT64_MAX;
  uint32_t lastLaunch = 0;
  std::vector<std::pair<uint32_t, double>> begins; // program, us
  std::map<uint32_t, std::vector<TimelineEvent>> timelines;
  Busy measuredBusy, plannedBusy;
};

} // namespace

std::string traceJson(const TraceRing &ring, const Plan &plan) {
  TraceWriter writer(plan);
  writer.addMeasured(ring);
  writer.addPlanned();
  return writer.finish(/*hasMeasured=*/true);
}

std::string plannedTraceJson(const Plan &plan, uint32_t program) {
  TraceWriter writer(plan);
  writer.planAt(program);
  writer.addPlanned();
  return writer.finish(/*hasMeasured=*/false);
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
