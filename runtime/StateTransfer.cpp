#include "runtime/StateTransfer.h"

#include "runtime/StoredCodes.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace sluice {

namespace {

constexpr std::string_view parameterPrefix = "param/", masterPrefix = "master/",
                           lowSuffix = "/low", momentPrefix = "opt/",
                           scaleSuffix = "/scale", rangeSuffix = "/range";

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

DType typeOf(const fbs::StateTensor &tensor) {
  return static_cast<DType>(tensor.dtype());
}

bool sameShape(const fbs::StateTensor &a, const fbs::StateTensor &b) {
  return wholeShapeOf(a) == wholeShapeOf(b);
}

/// What files have a tensor as.
std::vector<int64_t> fileShapeOf(const fbs::StateTensor &tensor) {
  return codedFormat(tensor) ? valueShapeOf(tensor) : wholeShapeOf(tensor);
}

bool sameShape(const TensorEntry &entry, const fbs::StateTensor &tensor) {
  return entry.shape == fileShapeOf(tensor);
}

/// What forms go by: of tensors of plans and of files.
struct TypeAndCount {
  DType type;
  uint64_t count;
};

std::optional<TypeAndCount> briefOf(const fbs::StateTensor *tensor) {
  if (!tensor)
    return std::nullopt;
  return TypeAndCount{typeOf(*tensor), wholeElements(*tensor)};
}

std::optional<TypeAndCount> briefOf(const TensorEntry *entry) {
  if (!entry)
    return std::nullopt;
  return TypeAndCount{entry->dtype, entry->bytes / dtypeSize(entry->dtype)};
}

/// Whether a tensor completes another one in this way.
bool completes(Completion completion, TypeAndCount by, TypeAndCount tensor) {
  switch (completion) {
  case Completion::nothing:
    break;
  case Completion::low:
    return by.type == DType::i16 && tensor.type == DType::bf16;
  case Completion::master:
    return by.type == DType::f32 &&
           (tensor.type == DType::bf16 || tensor.type == DType::f16);
  case Completion::scale:
  case Completion::range:
    return by.type == DType::f32 && tensor.type == DType::i8 && by.count > 0 &&
           tensor.count % by.count == 0 && tensor.count / by.count > 0 &&
           tensor.count / by.count <= maxStoredBlock;
  }
  return false;
}

/// The form of a tensor by what `find` gives for the names that would complete it.
template <class Find>
StoredForm formOf(std::string_view name, TypeAndCount tensor, Find find) {
  StoredForm form;
  form.dtype = tensor.type;
  for (Completion completion :
       {Completion::master, Completion::low, Completion::scale, Completion::range}) {
    std::string rest = completionName(name, completion);
    std::optional<TypeAndCount> by = rest.empty() ? std::nullopt : find(rest);
    if (!by || !completes(completion, *by, tensor))
      continue;
    form.completion = completion;
    if (form.hasBlocks()) {
      form.block = tensor.count / by->count;
      form.isPositive = isPositiveMoment(name);
    }
    break;
  }
  return form;
}

/// A tensor that would complete a parameter.
bool isMaster(const fbs::StateTensor &tensor) {
  return tensor.role() == fbs::Role::master ||
         viewOf(tensor.name()).starts_with(masterPrefix);
}

} // namespace

std::string completionName(std::string_view name, Completion completion) {
  bool isScale = completion == Completion::scale;
  if ((isScale || completion == Completion::range) && name.starts_with(momentPrefix))
    return std::string(name).append(isScale ? scaleSuffix : rangeSuffix);
  bool isMaster = completion == Completion::master || completion == Completion::low;
  if (!isMaster || !name.starts_with(parameterPrefix))
    return {};
  std::string rest(masterPrefix);
  rest += name.substr(parameterPrefix.size());
  return completion == Completion::low ? rest.append(lowSuffix) : rest;
}

Status checkStoredForms(const fbs::Plan &plan, VisitBudget &budget) {
  std::unordered_map<std::string_view, const fbs::StateTensor *> state;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    state[viewOf(plan.state()->Get(i)->name())] = plan.state()->Get(i);
  std::unordered_set<const fbs::StateTensor *> completed;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i) {
    const fbs::StateTensor &tensor = *plan.state()->Get(i);
    if (!isMaster(tensor))
      continue;
    std::string_view name = viewOf(tensor.name());
    std::string parameter(parameterPrefix);
    if (name.starts_with(masterPrefix))
      parameter += name.substr(masterPrefix.size());
    Completion completion = Completion::master;
    if (typeOf(tensor) == DType::i16 && parameter.ends_with(lowSuffix)) {
      completion = Completion::low;
      parameter.resize(parameter.size() - lowSuffix.size());
    }
    auto found = state.find(parameter);
    if (found != state.end() && codedFormat(*found->second))
      continue; // checkCodes
    bool fits = found != state.end() && budget.take(sizeOf(wholeShape(tensor))) &&
                sameShape(tensor, *found->second) &&
                completes(completion, *briefOf(&tensor), *briefOf(found->second)) &&
                tensor.saved() == found->second->saved();
    if (!fits || !completed.insert(found->second).second)
      return Status::damaged("plan refused: state " + quoted(name) +
                             " completes no parameter of its shape, or one that another "
                             "tensor completes");
  }
  return Status::success();
}

StoredForm storedForm(const Plan &plan, const fbs::StateTensor &tensor) {
  if (auto format = codedFormat(tensor)) {
    StoredForm form = {.dtype = typeOf(tensor)};
    form.format = *format;
    if (plan.state(completionName(viewOf(tensor.name()), Completion::master)))
      form.completion = Completion::master;
    return form;
  }
  return formOf(viewOf(tensor.name()), *briefOf(&tensor),
                [&](const std::string &rest) { return briefOf(plan.state(rest)); });
}

StoredTensor<const uint8_t> storedTensor(const Session &session,
                                         const fbs::StateTensor &tensor) {
  StoredTensor<const uint8_t> stored;
  const Plan &plan = session.plan();
  std::string_view name = viewOf(tensor.name());
  stored.form = storedForm(plan, tensor);
  stored.count = tensor.size() / dtypeSize(typeOf(tensor));
  stored.data = session.state(name).data();
  if (stored.form.completion == Completion::nothing)
    return stored;
  std::string rest = completionName(name, stored.form.completion);
  if (isShard(*plan.state(rest)) && !isShard(tensor))
    stored.form = {.dtype = stored.form.dtype};
  else
    stored.completion = session.state(rest).data();
  return stored;
}

namespace {

/// Where a tensor of the state and what completes it are put together before each rank
/// takes its part; where there are no shards, the state itself.
class Target {
public:
  Target(Session &session, const fbs::StateTensor &tensor) : session(session) {
    const Plan &plan = session.plan();
    whole.form = storedForm(plan, tensor);
    whole.count = wholeElements(tensor);
    whole.data = open(tensor);
    if (whole.form.completion != Completion::nothing)
      whole.completion =
          open(*plan.state(completionName(viewOf(tensor.name()), whole.form.completion)));
  }
  const StoredTensor<uint8_t> &stored() const { return whole; }
  /// Puts the own parts into the state.
  void close() {
    for (const Room &room : rooms) {
      ElementRange own = ownElements(session.plan(), *room.tensor, session.rank());
      uint64_t each = dtypeSize(typeOf(*room.tensor));
      std::memcpy(session.state(viewOf(room.tensor->name())).data(),
                  room.bytes.data() + own.begin * each, (own.end - own.begin) * each);
    }
  }

private:
  struct Room {
    const fbs::StateTensor *tensor;
    std::vector<uint8_t> bytes;
  };
  uint8_t *open(const fbs::StateTensor &tensor) {
    if (!isShard(tensor))
      return session.state(viewOf(tensor.name())).data();
    rooms.push_back({&tensor, std::vector<uint8_t>(wholeElements(tensor) *
                                                   dtypeSize(typeOf(tensor)))});
    return rooms.back().bytes.data(); // moves keep where vectors have their elements
  }

  Session &session;
  StoredTensor<uint8_t> whole;
  std::vector<Room> rooms;
};

/// The bytes of a tensor of a file in one piece.
class WholeBytes {
public:
  WholeBytes(const SafetensorsFile &file, const TensorEntry *entry) {
    if (!entry)
      return;
    if (entry->slices.empty()) {
      view = file.data(*entry).data();
      return;
    }
    room.resize(entry->bytes);
    file.read(*entry, 0, room);
    view = room.data();
  }
  WholeBytes(const WholeBytes &) = delete;
  const uint8_t *data() const { return view; }

private:
  std::vector<uint8_t> room;
  const uint8_t *view = nullptr;
};

/// Of a tensor that is stored as the file has it, without more than the own part of it
/// in memory.
void readOwn(Session &session, const fbs::StateTensor &tensor, const TensorEntry &entry,
             const SafetensorsFile &file) {
  ElementRange own = ownElements(session.plan(), tensor, session.rank());
  uint64_t each = dtypeSize(typeOf(tensor));
  std::span<uint8_t> bytes = session.state(viewOf(tensor.name()));
  file.read(entry, own.begin * each, bytes.first((own.end - own.begin) * each));
}

} // namespace

bool hasSharedMaster(const Plan &plan, const fbs::StateTensor &tensor) {
  StoredForm form = storedForm(plan, tensor);
  if (isShard(tensor) || form.completion == Completion::nothing)
    return false;
  return isShard(*plan.state(completionName(viewOf(tensor.name()), form.completion)));
}

std::vector<float> valuesOf(const StateSource &source, const SafetensorsFile &file) {
  WholeBytes data(file, source.entry), completion(file, source.completion);
  std::vector<float> values(source.entry->bytes / dtypeSize(source.entry->dtype));
  readExact({source.from, values.size(), data.data(), completion.data()}, 0, values);
  return values;
}

void storeExact(Session &session, const fbs::StateTensor &tensor,
                std::span<const float> values) {
  if (codedFormat(tensor)) {
    encodeState(session, tensor, values);
    return;
  }
  Target target(session, tensor);
  writeExact(target.stored(), 0, values);
  target.close();
}

bool isCompletion(const Plan &plan, const fbs::StateTensor &tensor) {
  std::string_view name = viewOf(tensor.name());
  if (isMaster(tensor) || codedOwner(plan, tensor))
    return true;
  for (auto [completion, suffix] : {std::pair(Completion::scale, scaleSuffix),
                                    std::pair(Completion::range, rangeSuffix)})
    if (name.ends_with(suffix)) {
      const fbs::StateTensor *completed =
          plan.state(name.substr(0, name.size() - suffix.size()));
      return completed && storedForm(plan, *completed).completion == completion;
    }
  return false;
}

StateSource findSource(const Plan &plan, const fbs::StateTensor &tensor,
                       const SafetensorsFile &file, std::string_view name) {
  StateSource source;
  source.tensor = &tensor;
  source.to = storedForm(plan, tensor);
  source.entry = file.find(name);
  if (!source.entry)
    return source;
  source.from = formOf(name, *briefOf(source.entry),
                       [&](const std::string &rest) { return briefOf(file.find(rest)); });
  if (source.from.completion != Completion::nothing)
    source.completion = file.find(completionName(name, source.from.completion));
  auto stored = file.metadata().find(formatKey(viewOf(tensor.name())));
  if (stored != file.metadata().end() && source.from.dtype == DType::f32)
    source.from.format = storedFormat(stored->second).value_or(StoredFormat::fp32);
  return source;
}

std::string mismatch(const StateSource &source) {
  std::string expected = shapeText(std::span<const int64_t>(fileShapeOf(*source.tensor)));
  auto differs = [&](const TensorEntry &entry, DType type) {
    return quoted(entry.name) + " is " + std::string(dtypeName(entry.dtype)) +
           shapeText(std::span(entry.shape)) + ", the plan expects " +
           std::string(dtypeName(type)) + expected;
  };
  bool isCoded = source.to.hasCodes();
  DType type = isCoded ? DType::f32 : typeOf(*source.tensor);
  bool converts = source.from.converts() && source.to.converts();
  if (!sameShape(*source.entry, *source.tensor) ||
      (source.entry->dtype != type && !converts))
    return differs(*source.entry, type);
  if (source.from != source.to && !converts) // of one type: only codes can differ here
    return quoted(source.entry->name) + " has codes " +
           (source.completion ? "of blocks, the plan expects plain integers"
                              : "without scales of whole blocks beside them");
  bool isMaster = source.from.completion == Completion::low ||
                  source.from.completion == Completion::master;
  if (isMaster && !sameShape(*source.completion, *source.tensor))
    return differs(*source.completion, source.completion->dtype);
  return {};
}

uint64_t transfer(Session &session, const StateSource &source,
                  const SafetensorsFile &file) {
  if (codedFormat(*source.tensor))
    return encodeState(session, *source.tensor, valuesOf(source, file), &file);
  if (source.from == source.to) {
    readOwn(session, *source.tensor, *source.entry, file);
    if (source.completion)
      readOwn(session,
              *session.plan().state(
                  completionName(viewOf(source.tensor->name()), source.to.completion)),
              *source.completion, file);
    return 0;
  }
  WholeBytes data(file, source.entry), completion(file, source.completion);
  Target target(session, *source.tensor);
  uint64_t rounded =
      convertStored({source.from, target.stored().count, data.data(), completion.data()},
                    target.stored());
  target.close();
  return rounded;
}

void ConversionNotes::add(const StateSource &source, uint64_t rounded) {
  bool isSameFormat = source.to.hasCodes() && source.from.format == source.to.format;
  if (source.from == source.to || isSameFormat)
    return;
  std::string_view name = viewOf(source.tensor->name());
  bool isParameter = name.starts_with(parameterPrefix);
  // Only parameters have masters, or lack one.
  auto text = [&](StoredForm form) {
    bool isNamed = isParameter || form.hasBlocks() || form.hasCodes();
    return isNamed ? formText(form) : std::string(dtypeName(form.dtype));
  };
  std::string what = isParameter                ? "parameter"
                     : name.starts_with("opt/") ? "moment"
                                                : "tensor";
  Group &group =
      groups[{what, "stored as " + text(source.from) + " became " + text(source.to)}];
  if (isParameter)
    name.remove_prefix(parameterPrefix.size());
  if (group.names.size() < 3)
    group.names.push_back(quoted(name));
  group.tensors += 1;
  group.values += wholeElements(*source.tensor);
  group.rounded += rounded;
  group.isExact = source.from.isExact() || !isParameter;
}

std::vector<std::string> ConversionNotes::lines() const {
  std::vector<std::string> lines;
  for (const auto &[key, group] : groups) {
    std::string line = std::to_string(group.tensors) + " " + key.first +
                       (group.tensors == 1 ? " " : "s ") + key.second;
    if (!group.isExact)
      line += "; the f32 is the rounded value";
    if (group.rounded > 0)
      line += "; " + std::to_string(group.rounded) + " of " +
              std::to_string(group.values) + " values were rounded";
    if (group.isExact && group.rounded == 0)
      line += ", no value rounded";
    line += ":";
    for (const std::string &name : group.names)
      line += (name == group.names.front() ? " " : ", ") + name;
    if (group.tensors > group.names.size())
      line += " and " + std::to_string(group.tensors - group.names.size()) + " more";
    lines.push_back(std::move(line));
  }
  return lines;
}

} // namespace sluice
