// From the texts of --data to a source: reads each file and finds its input.

#include "runtime/data/Csv.h"
#include "runtime/data/DataSource.h"
#include "runtime/data/Standardize.h"
#include "runtime/data/Text.h"

#include <algorithm>
#include <new>

namespace sluice {
namespace {

class DataOpener {
public:
  DataOpener(const std::vector<InputSpec> &inputs, const DataOptions &options)
      : inputs(inputs), options(options), columns(inputs.size()),
        given(inputs.size(), false) {}

  Result<std::vector<Column>> open(const std::vector<DataSpec> &specs) {
    all = &specs;
    for (const DataSpec &spec : specs) {
      Status status = openOne(spec);
      if (!status.ok())
        return status;
    }
    std::string missing;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!given[i])
        missing += (missing.empty() ? "'" : ", '") + inputs[i].name + "'";
    if (!missing.empty())
      return Status::refused("no data for input " + missing +
                             "; give --data NAME=KIND:FILE for each");
    return std::move(columns);
  }

private:
  Status openOne(const DataSpec &spec) {
    if (spec.kind == "csv")
      return openCsv(spec);
    if (spec.kind == "text" || spec.kind == "tokens")
      return openWindows(spec);
    auto array = readArray(spec.kind, spec.file, spec.member);
    if (!array)
      return array.status();
    if (spec.find("lengths"))
      return openRagged(spec, std::move(*array));
    return place(spec, spec.input, [&](const InputSpec &input) {
      return makeColumn(spec, std::move(*array), input);
    });
  }

  static Result<StoredArray> readArray(const std::string &kind, const std::string &file,
                                       const std::string &member) {
    return kind == "idx"   ? readIdx(file)
           : kind == "npy" ? readNpy(file)
           : kind == "npz" ? readNpz(file, member)
                           : readSafetensorsMember(file, member);
  }

  /// lengths=FILE.npy, FILE.npz#name or FILE.safetensors#name
  Status openRagged(const DataSpec &spec, StoredArray array) {
    auto text = spec.single("lengths", "");
    if (!text)
      return text.status();
    size_t hash = text->rfind('#');
    std::string file = text->substr(0, hash);
    std::string member = hash == std::string::npos ? "" : text->substr(hash + 1);
    std::string kind = member.empty()                   ? "npy"
                       : file.ends_with(".safetensors") ? "safetensors"
                                                        : "npz";
    auto lengths = readArray(kind, file, member);
    if (!lengths)
      return lengths.status();
    return place(spec, spec.input, [&](const InputSpec &input) {
      return makeRaggedColumn(spec, std::move(array), *lengths, input);
    });
  }

  /// Makes the column of the named input and puts it in its place.
  template <class Make>
  Status place(const DataSpec &spec, const std::string &name, Make make) {
    auto found = std::find_if(inputs.begin(), inputs.end(),
                              [&](const InputSpec &input) { return input.name == name; });
    if (found == inputs.end()) {
      if (options.ignoreUnused)
        return Status::success();
      std::string names;
      for (const InputSpec &input : inputs)
        names += (names.empty() ? "'" : ", '") + input.name + "'";
      return spec.refuse("the model has no input '" + name + "'; its inputs are " +
                         names);
    }
    size_t index = size_t(found - inputs.begin());
    if (given[index])
      return spec.refuse("input '" + name + "' has data already");
    Result<Column> column = make(*found);
    if (!column)
      return column.status();
    columns[index] = std::move(*column);
    given[index] = true;
    return Status::success();
  }

  Status openWindows(const DataSpec &spec) {
    auto array = readIds(spec);
    if (!array)
      return array.status();
    int64_t largestShift = 0;
    for (const DataSpec &other : *all)
      if (other.kind == spec.kind && other.file == spec.file) {
        auto shift = other.integer("shift", 0, 0);
        if (!shift)
          return shift.status();
        largestShift = std::max(largestShift, *shift);
      }
    return place(spec, spec.input, [&](const InputSpec &input) {
      return makeWindowColumn(spec, std::move(*array), input, largestShift);
    });
  }

  Result<StoredArray> readIds(const DataSpec &spec) {
    if (spec.kind == "tokens") {
      auto dtype = spec.single("dtype", "uint16");
      if (!dtype)
        return dtype.status();
      if (*dtype == "uint16")
        return readTokens(spec.file, DType::u16);
      if (*dtype == "int32" || *dtype == "uint32")
        return readTokens(spec.file, *dtype == "int32" ? DType::i32 : DType::u32);
      return spec.refuse("the dtype is '" + *dtype +
                         "', expected uint16, int32 or uint32");
    }
    auto vocabulary = spec.single("vocab", "bytes"), from = spec.single("vocab_from", "");
    for (const auto *option : {&vocabulary, &from})
      if (!option->ok())
        return option->status();
    if (*vocabulary == "raw" && !from->empty())
      return spec.refuse("vocab=raw takes no vocabulary from a file");
    if (*vocabulary == "raw")
      return readText(spec.file, Vocabulary::Raw, "");
    if (*vocabulary != "bytes" && *vocabulary != "chars")
      return spec.refuse("the vocabulary is '" + *vocabulary +
                         "', expected bytes, chars or raw");
    return readText(
        spec.file, *vocabulary == "bytes" ? Vocabulary::Bytes : Vocabulary::Chars, *from);
  }

  static Result<CsvOptions> csvOptions(const DataSpec &spec) {
    CsvOptions csv;
    auto header = spec.single("header", "detect"),
         delimiter = spec.single("delimiter", "comma");
    for (const auto *option : {&header, &delimiter})
      if (!option->ok())
        return option->status();
    if (*header != "detect" && *header != "yes" && *header != "no")
      return spec.refuse("the header is '" + *header + "', expected detect, yes or no");
    csv.header = *header == "detect" ? CsvHeader::Detect
                 : *header == "yes"  ? CsvHeader::Yes
                                     : CsvHeader::No;
    constexpr std::pair<std::string_view, char> names[] = {
        {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"space", ' '}};
    for (auto [name, character] : names)
      if (*delimiter == name) {
        csv.delimiter = character;
        return csv;
      }
    return spec.refuse("the delimiter is '" + *delimiter +
                       "', expected comma, semicolon, tab or space");
  }

  /// Where `columns` go when the spec names no input: the only one that is not for
  /// labels.
  Result<std::string> featuresInput(const DataSpec &spec, const std::string &labels) {
    if (!spec.input.empty())
      return spec.input;
    std::vector<std::string> others;
    for (const InputSpec &input : inputs)
      if (input.batched && input.name != labels)
        others.push_back(input.name);
    if (others.size() != 1)
      return spec.refuse("the model has " + std::to_string(others.size()) +
                         " inputs besides the labels; write NAME=csv:FILE");
    return others[0];
  }

  Status openCsv(const DataSpec &spec) {
    const DataOption *features = spec.find("columns"), *target = spec.find("target");
    if (!features)
      return spec.refuse("the option 'columns' is missing, as in columns=1-20");
    auto csv = csvOptions(spec);
    if (!csv)
      return csv.status();
    std::vector<CsvColumns> lists = {features->values};
    if (target)
      lists.push_back(target->values);
    auto table = readCsv(spec.file, lists, *csv);
    if (!table)
      return table.status();
    Status status = standardizeColumns(spec, table->rows, table->values[0]);
    if (!status.ok())
      return status;

    std::string labels = options.labelsInput;
    if (labels.empty() && !inputs.empty())
      labels = inputs.back().name;
    auto name = featuresInput(spec, labels);
    if (!name)
      return name.status();
    status = placeCsv(spec, *name, table->rows, std::move(table->values[0]));
    if (!status.ok() || !target)
      return status;
    DataSpec targetSpec = spec; // the target is taken as it is
    std::erase_if(targetSpec.options,
                  [](const DataOption &o) { return o.key != "range"; });
    return placeCsv(targetSpec, labels, table->rows, std::move(table->values[1]));
  }

  Status placeCsv(const DataSpec &spec, const std::string &name, int64_t rows,
                  std::vector<double> values) {
    StoredArray array;
    array.origin = spec.file;
    array.dtype = DType::f64;
    array.shape = {rows, int64_t(values.size()) / rows};
    auto owner = std::make_shared<std::vector<double>>(std::move(values));
    array.data = reinterpret_cast<const uint8_t *>(owner->data());
    array.owner = std::move(owner);
    return place(spec, name, [&](const InputSpec &input) {
      return makeColumn(spec, std::move(array), input);
    });
  }

  const std::vector<InputSpec> &inputs;
  const DataOptions &options;
  const std::vector<DataSpec> *all = nullptr;
  std::vector<Column> columns; // by input
  std::vector<bool> given;
};

} // namespace

Result<std::vector<Column>> openColumns(std::span<const std::string> texts,
                                        const std::vector<InputSpec> &inputs,
                                        const DataOptions &options) {
  try {
    std::vector<DataSpec> specs;
    for (const std::string &text : texts) {
      auto spec = DataSpec::parse(text);
      if (!spec)
        return spec.status();
      specs.push_back(std::move(*spec));
    }
    return DataOpener(inputs, options).open(specs);
  } catch (const std::bad_alloc &) {
    return Status::doesNotFit("not enough memory to read the data");
  }
}

Result<std::unique_ptr<DataSource>> openData(std::span<const std::string> texts,
                                             const std::vector<InputSpec> &inputs,
                                             const DataOptions &options) {
  auto columns = openColumns(texts, inputs, options);
  if (!columns)
    return columns.status();
  std::vector<bool> taken;
  takeFitting(*columns, taken);
  if (std::string left = firstLeft(*columns, taken); !left.empty())
    return Status::refused(left + ", which fits no shape of the plan; shorter samples "
                                  "need the spec's 'pad' or an ignored label");
  return DataSource::make(std::move(*columns), options);
}

} // namespace sluice
