// The data of --data as one source: for a plan of several shapes, each set of data goes
// to the smallest bucket that takes it.

#include "runtime/Buckets.h"
#include "runtime/data/DataSource.h"
#include "runtime/data/DataSpec.h"
#include "runtime/data/MixedSource.h"
#include "tools/sluice/RunOptions.h"

#include <set>

namespace sluice::cli {
namespace {

using DataSet = std::vector<std::string>;

/// An input that has data already begins the next set.
Result<std::vector<DataSet>> setsOf(const std::vector<std::string> &data) {
  std::vector<DataSet> sets(1);
  std::set<std::string> given;
  for (const std::string &text : data) {
    auto spec = DataSpec::parse(text);
    if (!spec)
      return spec.status();
    if (!given.insert(spec->input).second) {
      given = {spec->input};
      sets.emplace_back();
    }
    sets.back().push_back(text);
  }
  return sets;
}

class SourceOpener {
public:
  SourceOpener(const Session &session, std::string_view program,
               const DataOptions &options)
      : session(session), plan(session.plan()), program(program), options(options) {}

  Result<MixedSource::Part> open(const DataSet &set, const std::string &bucketName) {
    std::string reasons;
    for (uint32_t bucket : bucketsBySize(plan, program)) {
      const PlanVariant &variant = plan.variant(bucket);
      if (!bucketName.empty() && variant.bucketName != bucketName)
        continue;
      std::vector<InputSpec> inputs = plan.inputs(program, bucket);
      auto source = openData(set, withoutFill(inputs), options);
      if (!source) {
        source = openData(set, inputs, options);
        if (source)
          session.log("samples are filled up to the shapes '" + variant.bucketName +
                      "'; outputs have these shapes");
      }
      if (source)
        return MixedSource::Part{std::move(*source), bucket, variant.batch};
      reasons += "\n  '" + variant.bucketName + "': " + source.status().message;
    }
    if (reasons.empty())
      return Status::usage("--bucket '" + bucketName + "': the plan has " +
                           bucketList(plan, program));
    return Status::refused("the data goes into none of the plan's shapes:" + reasons);
  }

private:
  static std::vector<InputSpec> withoutFill(std::vector<InputSpec> inputs) {
    for (InputSpec &input : inputs)
      input.fill.reset();
    return inputs;
  }

  const Session &session;
  const Plan &plan;
  std::string_view program;
  DataOptions options;
};

} // namespace

Result<std::unique_ptr<BatchSource>> openSource(const Session &session,
                                                std::string_view program,
                                                const std::vector<std::string> &data,
                                                const std::vector<std::string> &buckets,
                                                bool shuffle) {
  DataOptions options;
  options.shuffle = shuffle;
  options.seed = session.seed();
  options.labelsInput = viewOf(session.plan().raw().labels_input());
  options.ignoreUnused = program == "infer";
  if (session.plan().buckets() == 1) {
    if (!buckets.empty())
      return Status::usage("--bucket: the plan has one shape");
    auto source = openData(data, session.plan().inputs(program), options);
    if (!source)
      return source.status();
    return std::unique_ptr<BatchSource>(std::move(*source));
  }
  auto sets = setsOf(data);
  if (!sets)
    return sets.status();
  if (buckets.size() > 1 && buckets.size() != sets->size())
    return Status::usage("--bucket is given " + std::to_string(buckets.size()) +
                         " times for " + std::to_string(sets->size()) +
                         " sets of data; give one, or one for each");
  SourceOpener opener(session, program, options);
  std::vector<MixedSource::Part> parts;
  for (size_t i = 0; i < sets->size(); ++i) {
    std::string name = buckets.empty() ? "" : buckets[std::min(i, buckets.size() - 1)];
    auto part = opener.open((*sets)[i], name);
    if (!part)
      return part.status();
    parts.push_back(std::move(*part));
  }
  return std::unique_ptr<BatchSource>(
      std::make_unique<MixedSource>(std::move(parts), shuffle, session.seed()));
}

} // namespace sluice::cli
