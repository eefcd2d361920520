#include "tools/sluice/Calibration.h"

#include "codegen/Compile.h"
#include "passes/LaunchCosts.h"
#include "runtime/PlanReader.h"
#include "runtime/Session.h"
#include "tools/sluice/ProbeNetworks.h"
#include "tools/sluice/ProductRate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <unistd.h>

namespace sluice::cli {
namespace {

/// A folder that is gone at the end.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "sluice-XXXXXX").string();
    if (char *made = ::mkdtemp(name.data()))
      path = made;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty())
      std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

/// Times of one network's step at one number of threads.
struct ProbeRun {
  std::vector<MeasuredLaunch> launches;
  double stepUs = 0; ///< of the launches and what lies between them
};

Result<PlanPtr> compileProbe(const ProbeNetwork &network, int threads,
                             const std::string &folder) {
  mlir::MLIRContext context;
  context.loadDialect<graph::GraphDialect, mlir::func::FuncDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(network.text, &context);
  if (!module)
    return Status::failed("the network '" + network.name + "' is malformed");
  CompileOptions options;
  options.spec.threads = threads;
  options.spec.entries = {"step"};
  options.spec.loss.kind = "cross_entropy";
  options.spec.loss.logits = "logits";
  options.spec.loss.labels = "labels";
  options.spec.init.emplace_back().from = "normal";
  options.outPath = folder + "/" + network.name + ".plan";
  CompileReport report;
  if (Status status = compileModule(*module, options, report); !status.ok())
    return status;
  return PlanReader::readFile(options.outPath);
}

/// Random inputs, as a batch takes them.
class RandomBatch {
public:
  explicit RandomBatch(const Plan &plan) {
    std::mt19937 random(1);
    for (const InputSpec &input : plan.inputs("step")) {
      size_t count = 1;
      for (int64_t size : input.shape)
        count *= size_t(size);
      std::vector<char> bytes(count * dtypeSize(input.dtype));
      for (size_t i = 0; i < count; ++i)
        if (input.dtype == DType::f32)
          reinterpret_cast<float *>(bytes.data())[i] = float(random() % 2001) / 1000 - 1;
        else
          reinterpret_cast<int64_t *>(bytes.data())[i] =
              int64_t(random() % (input.bounded ? uint64_t(input.upper) + 1 : 2));
      values.push_back(std::move(bytes));
    }
    for (const std::vector<char> &value : values)
      batch.data.push_back(value.data());
    batch.count = plan.batch();
  }
  Batch batch;

private:
  std::vector<std::vector<char>> values;
};

/// By launch: from the first worker's start to the last one's end, in each of the steps.
std::vector<std::vector<double>> launchTimes(const TraceRing &ring, size_t launches) {
  std::vector<std::vector<double>> times(launches);
  std::vector<std::vector<TraceEvent>> byWorker;
  for (int worker = 0; worker < ring.workers(); ++worker)
    byWorker.push_back(ring.events(worker));
  std::vector<size_t> at(byWorker.size());
  // Worker 0 takes part in every launch; the others' events of it overlap its own.
  for (const TraceEvent &own : byWorker[0]) {
    uint64_t begin = own.beginNs, end = own.endNs;
    for (size_t worker = 1; worker < byWorker.size(); ++worker) {
      std::vector<TraceEvent> &events = byWorker[worker];
      while (at[worker] < events.size() && events[at[worker]].endNs <= begin)
        ++at[worker];
      if (at[worker] < events.size() && events[at[worker]].launch == own.launch)
        end = std::max(end, events[at[worker]].endNs);
    }
    times[own.launch].push_back(double(end - begin) / 1e3);
  }
  return times;
}

/// Low enough to leave out what other programs on the machine did to a measurement.
double usual(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 4];
}

/// The work of a launch as the plan file states it.
MeasuredLaunch workOfLaunch(const fbs::Launch &launch, const fbs::Plan &plan,
                            const DeviceRates &rates) {
  MeasuredLaunch measured;
  LaunchWork work(rates);
  for (uint32_t s = 0; s < sizeOf(launch.stages()); ++s) {
    const fbs::Stage &stage = *launch.stages()->Get(s);
    const fbs::Kernel &kernel = *plan.kernels()->Get(stage.kernel());
    KernelWork own;
    if (!kernel.generated()) {
      std::vector<int64_t> params(stage.params()->begin(), stage.params()->end());
      params.resize(params.size() + kAddedParams);
      own = workOf(viewOf(kernel.name()), params.data(), launch.chunk());
    }
    work.addStage(own);
    if (sizeOf(launch.stages()) == 1) {
      measured.isOnlyGenerated = kernel.generated();
      measured.isOnlyProduct = own.kind == WorkKind::Product ||
                               own.kind == WorkKind::Conv ||
                               own.kind == WorkKind::ConvWeightGrad;
    }
  }
  measured.cost =
      work.cost(launch.flops(), launch.bytes(), launch.units(), launch.chunk());
  return measured;
}

Status runProbe(PlanPtr plan, int threads, double seconds, ProbeRun &run) {
  size_t count = sizeOf(plan->program("step")->launches());
  constexpr size_t mostSteps = 400;
  SessionOptions options;
  options.threads = threads;
  options.traceEvents = count * mostSteps;
  Result<std::unique_ptr<Session>> session = Session::create(plan, options);
  if (!session.ok())
    return session.status();
  RandomBatch input(*plan);
  StepResult result;
  std::vector<double> steps;
  uint64_t begin = nowNs();
  while (steps.size() < 5 ||
         (double(nowNs() - begin) < seconds * 1e9 && steps.size() < mostSteps)) {
    uint64_t start = nowNs();
    if (Status status = (*session)->step(input.batch, result); !status.ok())
      return status;
    steps.push_back(double(nowNs() - start) / 1e3);
  }
  run.stepUs = usual(steps);
  std::vector<std::vector<double>> times = launchTimes(*(*session)->trace(), count);
  DeviceRates rates;
  for (size_t i = 0; i < count; ++i) {
    MeasuredLaunch measured = workOfLaunch(
        *plan->program("step")->launches()->Get(uint32_t(i)), plan->raw(), rates);
    measured.us = usual(times[i]);
    run.launches.push_back(measured);
  }
  return Status::success();
}

/// How many times faster the launches of a kind are with more workers: of the sums, since
/// long launches matter.
double speedUp(const std::vector<MeasuredLaunch> &one,
               const std::vector<MeasuredLaunch> &many, double most,
               bool (*isKind)(const MeasuredLaunch &)) {
  double before = 0, after = 0;
  for (size_t i = 0; i < one.size(); ++i)
    if (isKind(one[i]) && one[i].cost.chunks > 4)
      before += one[i].us, after += many[i].us;
  return after > 0 ? std::clamp(before / after, 0.5, most) : 1;
}

ThreadScaling scalingOf(int threads, const std::vector<MeasuredLaunch> &one,
                        const std::vector<MeasuredLaunch> &many) {
  ThreadScaling at;
  at.threads = threads;
  at.matrix = speedUp(one, many, threads,
                      [](const MeasuredLaunch &l) { return l.isOnlyProduct; });
  at.vector = speedUp(one, many, threads, [](const MeasuredLaunch &l) {
    return l.isOnlyGenerated && l.cost.vectorFlops > 4 * l.cost.bytes;
  });
  at.memory = speedUp(one, many, threads, [](const MeasuredLaunch &l) {
    return l.isOnlyGenerated && l.cost.vectorFlops <= 2 * l.cost.bytes;
  });
  return at;
}

/// What launches that do next to nothing take; `shared`: only those that all workers
/// join.
double overheadUs(const std::vector<MeasuredLaunch> &launches, bool shared) {
  std::vector<double> values;
  for (const MeasuredLaunch &launch : launches)
    if (launch.isOnlyGenerated && launch.cost.bytes < 1 << 15 &&
        (launch.cost.chunks > 1 || !shared))
      values.push_back(launch.us);
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 4];
}

double predictedUs(const std::vector<MeasuredLaunch> &launches, DeviceRates rates,
                   int threads) {
  rates.threads = threads;
  double sum = 0;
  for (const MeasuredLaunch &launch : launches)
    sum += predictLaunch(launch.cost, rates).us;
  return sum;
}

std::vector<int> threadCounts(int most) {
  std::vector<int> counts = {1};
  while (counts.back() * 2 < most)
    counts.push_back(counts.back() * 2);
  if (most > 1)
    counts.push_back(most);
  return counts;
}

} // namespace

Status calibrate(const CalibrationOptions &options, DeviceProfile &profile,
                 std::vector<CalibrationError> &errors) {
  TemporaryFolder folder;
  if (folder.path.empty())
    return Status::cannotRunHere("cannot make a temporary folder");
  std::vector<int> counts = threadCounts(options.threads);
  std::vector<std::vector<MeasuredLaunch>> all(counts.size()); // of all networks together
  std::vector<ProbeNetwork> networks = probeNetworks();
  std::vector<std::pair<size_t, size_t>> ranges;
  std::vector<std::vector<double>> stepUs(counts.size());
  for (const ProbeNetwork &network : networks) {
    if (options.progress)
      options.progress("measuring '" + network.name + "'");
    Result<PlanPtr> plan = compileProbe(network, options.threads, folder.path);
    if (!plan.ok())
      return plan.status();
    ranges.push_back({all[0].size(), 0});
    for (size_t i = 0; i < counts.size(); ++i) {
      ProbeRun run;
      if (Status status = runProbe(*plan, counts[i], options.seconds, run); !status.ok())
        return status;
      all[i].insert(all[i].end(), run.launches.begin(), run.launches.end());
      stepUs[i].push_back(run.stepUs);
    }
    ranges.back().second = all[0].size();
  }
  DeviceRates &rates = profile.rates;
  rates.launchUs = overheadUs(all[0], false);
  fitRates(all[0], rates);
  double speedUp = bf16SpeedUp();
  rates.bf16Flops *= speedUp, rates.conv16Flops *= speedUp;
  rates.scaling = {{1, 1, 1, 1}};
  for (size_t i = 1; i < counts.size(); ++i) {
    rates.scaling.push_back(scalingOf(counts[i], all[0], all[i]));
    rates.syncUs = std::max(0.0, overheadUs(all[i], true) - rates.launchUs);
  }
  for (size_t n = 0; n < networks.size(); ++n)
    for (size_t i = 0; i < counts.size(); ++i) {
      auto begin = all[i].begin();
      std::vector<MeasuredLaunch> own(begin + ranges[n].first, begin + ranges[n].second);
      errors.push_back({networks[n].name, counts[i], stepUs[i][n],
                        predictedUs(own, rates, counts[i])});
    }
  return Status::success();
}

} // namespace sluice::cli
