// The data of --data as one source: for a plan of several shapes, each set of data goes
// to the smallest bucket that takes it; where a file says the lengths of its samples,
// each sample does.

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

  Status open(const DataSet &set, const std::string &bucketName,
              std::vector<MixedSource::Part> &parts) {
    for (const std::string &text : set)
      if (auto spec = DataSpec::parse(text); spec && spec->find("lengths"))
        return openByLength(set, bucketName, parts);
    auto part = openWhole(set, bucketName);
    if (!part)
      return part.status();
    parts.push_back(std::move(*part));
    return Status::success();
  }

private:
  /// The samples in the file's order, each in the first bucket that takes it; a bucket's
  /// samples are a part like a file of their own.
  Status openByLength(const DataSet &set, const std::string &bucketName,
                      std::vector<MixedSource::Part> &parts) {
    std::vector<bool> taken;
    std::vector<Column> last;
    for (uint32_t bucket : bucketsBySize(plan, program)) {
      const PlanVariant &variant = plan.variant(bucket);
      if (!bucketName.empty() && variant.bucketName != bucketName)
        continue;
      auto columns = openColumns(set, plan.inputs(program, bucket), options);
      if (!columns)
        return columns.status();
      last = *columns;
      std::vector<int64_t> chosen = takeFitting(*columns, taken);
      if (chosen.empty())
        continue;
      session.log(std::to_string(chosen.size()) + " samples go to the shapes '" +
                  variant.bucketName + "'");
      auto source = DataSource::make(std::move(*columns), options, std::move(chosen));
      if (!source)
        return source.status();
      parts.push_back({std::move(*source), bucket, variant.batch});
    }
    if (last.empty())
      return unknownBucket(bucketName);
    std::string left = firstLeft(last, taken);
    if (left.empty())
      return Status::success();
    return Status::refused(left + ", which goes into none of the plan's shapes: " +
                           bucketList(plan, program) +
                           "; shorter samples need the spec's 'pad' or an ignored label");
  }

  Status unknownBucket(const std::string &name) const {
    return Status::usage("--bucket '" + name + "': the plan has " +
                         bucketList(plan, program));
  }

  Result<MixedSource::Part> openWhole(const DataSet &set, const std::string &bucketName) {
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
          session.log("samples are filled up to the shapes '" + variant.bucketName + "'");
      }
      if (source)
        return MixedSource::Part{std::move(*source), bucket, variant.batch};
      reasons += "\n  '" + variant.bucketName + "': " + source.status().message;
    }
    if (reasons.empty())
      return unknownBucket(bucketName);
    return Status::refused("the data goes into none of the plan's shapes:" + reasons);
  }

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
  if (program == "infer" && sets->size() > 1)
    return Status::usage("infer takes one set of data: outputs of several sets do not go "
                         "into one file");
  if (buckets.size() > 1 && buckets.size() != sets->size())
    return Status::usage("--bucket is given " + std::to_string(buckets.size()) +
                         " times for " + std::to_string(sets->size()) +
                         " sets of data; give one, or one for each");
  SourceOpener opener(session, program, options);
  std::vector<MixedSource::Part> parts;
  for (size_t i = 0; i < sets->size(); ++i) {
    std::string name = buckets.empty() ? "" : buckets[std::min(i, buckets.size() - 1)];
    if (Status status = opener.open((*sets)[i], name, parts); !status.ok())
      return status;
  }
  return std::unique_ptr<BatchSource>(
      std::make_unique<MixedSource>(std::move(parts), shuffle, session.seed()));
}

} // namespace sluice::cli
