// If, Loop, Scan and calls of the model's own functions: flattened. A branch is chosen, a
// loop unrolled, by what is known when compiling.
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// Emits a subgraph with `inputs` bound to its inputs; the values of its outputs, or
/// nothing (whose cause is reported already, or is in the emitter).
std::optional<llvm::SmallVector<Value>> importBody(Node &n, onnx::GraphProto &body,
                                                   llvm::ArrayRef<Value> inputs) {
  Scope scope;
  scope.parent = &n.scope;
  scope.depth = n.scope.depth + 1;
  scope.path = n.scope.path + nodeName(n.proto) + "/";
  mlir::Location loc = n.e.loc;
  if (static_cast<size_t>(body.input_size()) < inputs.size()) {
    n.e.fail("the body has too few inputs");
    return std::nullopt;
  }
  for (auto [i, value] : llvm::enumerate(inputs))
    scope.entries[body.input(i).name()].value = value;
  if (!n.importer.importGraph(body, scope)) {
    n.reason = "reported";
    return std::nullopt;
  }
  n.e.begin(loc);
  llvm::SmallVector<Value> results;
  for (const auto &output : body.output()) {
    Value value = n.importer.read(scope, output.name(), {nullptr, 0});
    if (!value) {
      n.e.fail("output '" + output.name() + "' of the body is computed by no node");
      return std::nullopt;
    }
    results.push_back(value);
  }
  return results;
}

LogicalResult outAll(Node &n, llvm::ArrayRef<Value> values) {
  for (int i = 0; i < n.outputs(); ++i)
    if (i >= static_cast<int>(values.size()) || failed(n.out(i, values[i])))
      return n.reason.empty() ? n.fail("has more outputs than the body") : failure();
  return success();
}

/// Both branches are computed and each element chosen, if the results have equal types.
LogicalResult selectBranches(Node &n, onnx::GraphProto &thenBody,
                             onnx::GraphProto &elseBody) {
  Value condition = n.in(0);
  auto whenTrue = importBody(n, thenBody, {});
  auto whenFalse = whenTrue ? importBody(n, elseBody, {}) : std::nullopt;
  if (!whenTrue || !whenFalse)
    return failure();
  if (whenTrue->size() != whenFalse->size() || !condition)
    return n.fail("the branches differ in their number of results");
  condition = n.e.reshape(condition, {});
  llvm::SmallVector<Value> results;
  for (auto [a, b] : llvm::zip(*whenTrue, *whenFalse)) {
    if (a.getType() != b.getType())
      return n.fail("the condition '" + n.proto.input(0) +
                    "' depends on data and the branches give different shapes; fix the "
                    "input it comes from (values)");
    results.push_back(n.e.select(condition, a, b));
  }
  n.importer.note("If", "'" + nodeName(n.proto) +
                            "' depends on data: both branches are "
                            "computed");
  return outAll(n, results);
}

LogicalResult importIf(Node &n) {
  onnx::GraphProto *thenBody = n.g("then_branch"), *elseBody = n.g("else_branch");
  if (!thenBody || !elseBody)
    return n.fail("a branch is missing");
  auto condition = n.maybeConstant(0);
  if (!condition)
    return selectBranches(n, *thenBody, *elseBody);
  if (condition->size() != 1 || condition->isReal())
    return n.fail("the condition is no truth value");
  auto results = importBody(n, condition->integers[0] ? *thenBody : *elseBody, {});
  return results ? outAll(n, *results) : failure();
}

/// Rows collected by iterations, joined along a new dimension.
Value stack(Emitter &e, llvm::ArrayRef<Value> rows, int64_t axis) {
  llvm::SmallVector<Value> parts;
  for (Value row : rows)
    parts.push_back(row && axis <= rankOf(row) ? e.unsqueeze(row, axis) : Value());
  return e.concat(parts, axis);
}

/// Inputs: trip count, condition, carried values. Body: iteration, condition, carried ->
/// condition, carried, scanned.
LogicalResult importLoop(Node &n) {
  Emitter &e = n.e;
  onnx::GraphProto *body = n.g("body");
  if (!body)
    return n.fail("the body is missing");
  int64_t trips = INT64_MAX;
  bool running = true;
  if (n.has(0)) {
    auto count = n.constant(0);
    if (!count || count->size() != 1 || count->isReal())
      return n.fail("the trip count '" + n.proto.input(0) +
                    "' depends on data; fix the input it comes from (values)");
    trips = count->integers[0];
  }
  auto conditionOf = [&](Value value) {
    auto known = e.host(value);
    return known && known->size() == 1 && !known->isReal()
               ? std::optional<bool>(known->integers[0] != 0)
               : std::nullopt;
  };
  if (n.has(1)) {
    auto known = n.maybeConstant(1);
    if (!known || known->size() != 1 || known->isReal())
      return n.fail("the condition '" + n.proto.input(1) +
                    "' depends on data; fix the input it comes from (values)");
    running = known->integers[0] != 0;
  }
  llvm::SmallVector<Value> carried;
  for (int i = 2; i < n.inputs(); ++i)
    carried.push_back(n.in(i));
  if (llvm::is_contained(carried, Value()))
    return failure();
  size_t state = carried.size();
  int64_t scans = body->output_size() - 1 - static_cast<int64_t>(state);
  if (scans < 0 || body->input_size() < static_cast<int>(state) + 2)
    return n.fail("the body does not fit the loop's operands");
  std::vector<llvm::SmallVector<Value>> rows(scans);
  for (int64_t trip = 0; running && trip < trips; ++trip) {
    if (trip >= maxTripCount)
      return n.fail("runs more than " + llvm::Twine(maxTripCount) + " times");
    llvm::SmallVector<Value> inputs = {e.splat({}, e.i64Type(), double(trip)),
                                       e.splat({}, e.boolType(), 1)};
    inputs.append(carried);
    auto results = importBody(n, *body, inputs);
    if (!results)
      return failure();
    auto next = conditionOf((*results)[0]);
    if (!next)
      return n.fail("its condition depends on data, so its number of iterations does");
    running = *next;
    carried.assign(results->begin() + 1, results->begin() + 1 + state);
    for (int64_t i = 0; i < scans; ++i)
      rows[i].push_back((*results)[1 + state + i]);
  }
  llvm::SmallVector<Value> outputs(carried);
  for (auto &scanned : rows) {
    if (scanned.empty())
      return n.fail(
          "runs no iteration, so the shape of its scanned results is not known");
    outputs.push_back(stack(e, scanned, 0));
  }
  return outAll(n, outputs);
}

int64_t listed(Node &n, llvm::StringRef name, int64_t index) {
  auto list = n.is(name);
  return list && index < static_cast<int64_t>(list->size()) ? (*list)[index] : 0;
}

/// Opset 8 has a leading sequence-length operand and a batch dimension in front of all.
LogicalResult importScan(Node &n) {
  Emitter &e = n.e;
  onnx::GraphProto *body = n.g("body");
  int64_t scans = n.i("num_scan_inputs", 0), first = n.version < 9 ? 1 : 0;
  if (scans < 1 || scans > n.inputs())
    return n.fail("num_scan_inputs does not fit the operands");
  int64_t state = n.inputs() - first - scans;
  if (!body || state < 0 || body->output_size() < state ||
      body->input_size() < state + scans)
    return n.fail("the body does not fit the operands");
  if (first == 1) {
    if (n.has(0))
      return n.fail("sequence lengths are not supported");
    Value any = n.in(1);
    if (!any || rankOf(any) < 1 || dimOf(any, 0) != 1)
      return n.fail("a batch dimension other than 1 is not supported");
  }
  llvm::SmallVector<Value> carried, sequences;
  for (int64_t i = 0; i < state + scans; ++i) {
    Value value = n.in(first + i);
    if (value && first == 1)
      value = e.squeeze(value, 0);
    if (!value)
      return failure();
    (i < state ? carried : sequences).push_back(value);
  }
  int64_t length = -1;
  Ints axes, outputAxes;
  for (int64_t i = 0; i < scans; ++i) {
    auto axis = n.axis(listed(n, "scan_input_axes", i), rankOf(sequences[i]));
    if (!axis || (length >= 0 && dimOf(sequences[i], *axis) != length))
      return n.fail("the scanned operands differ in length");
    length = dimOf(sequences[i], *axis);
    axes.push_back(*axis);
  }
  if (length > maxTripCount || length == 0)
    return n.fail("runs " + llvm::Twine(length) + " times, expected 1 to " +
                  llvm::Twine(maxTripCount));
  llvm::StringRef inDirections = first ? "directions" : "scan_input_directions";
  std::vector<llvm::SmallVector<Value>> rows(body->output_size() - state);
  for (int64_t step = 0; step < length; ++step) {
    llvm::SmallVector<Value> inputs(carried);
    for (int64_t i = 0; i < scans; ++i) {
      int64_t at = listed(n, inDirections, i) ? length - 1 - step : step;
      inputs.push_back(e.squeeze(e.sliceAxis(sequences[i], axes[i], at, 1), axes[i]));
    }
    auto results = importBody(n, *body, inputs);
    if (!results)
      return failure();
    carried.assign(results->begin(), results->begin() + state);
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i].push_back((*results)[state + i]);
  }
  llvm::SmallVector<Value> outputs(carried);
  for (auto [i, collected] : llvm::enumerate(rows)) {
    if (listed(n, "scan_output_directions", i))
      std::reverse(collected.begin(), collected.end());
    int64_t axis = listed(n, "scan_output_axes", i);
    int64_t rank = rankOf(collected[0]) + 1;
    auto normal = n.axis(axis, rank);
    if (!normal)
      return failure();
    outputs.push_back(stack(e, collected, *normal));
  }
  if (first == 1)
    for (Value &value : outputs)
      value = e.unsqueeze(value, 0);
  return outAll(n, outputs);
}

} // namespace

void bindAttributes(onnx::NodeProto &node, const onnx::NodeProto &call,
                    const onnx::FunctionProto &function) {
  google::protobuf::RepeatedPtrField<onnx::AttributeProto> bound;
  for (auto &attribute : *node.mutable_attribute()) {
    if (attribute.has_g())
      for (auto &inner : *attribute.mutable_g()->mutable_node())
        bindAttributes(inner, call, function);
    if (attribute.ref_attr_name().empty()) {
      *bound.Add() = attribute;
      continue;
    }
    for (const auto &given : call.attribute())
      if (given.name() == attribute.ref_attr_name()) {
        *bound.Add() = given;
        bound.rbegin()->set_name(attribute.name());
      }
  }
  node.mutable_attribute()->Swap(&bound);
}

LogicalResult importCall(Node &n) {
  const onnx::FunctionProto *function = n.importer.findFunction(n.proto);
  Scope scope;
  scope.depth = n.scope.depth + 1;
  scope.path = n.scope.path + nodeName(n.proto) + "/";
  mlir::Location loc = n.e.loc;
  for (int i = 0; i < function->input_size() && i < n.inputs(); ++i)
    if (n.has(i)) {
      Value value = n.in(i);
      if (!value)
        return failure();
      scope.entries[function->input(i)].value = value;
    }
  if (!n.importer.importFunction(*function, n.proto, scope)) {
    if (n.e.error().empty())
      n.reason = "reported";
    return failure();
  }
  n.e.begin(loc);
  for (int i = 0; i < function->output_size(); ++i) {
    Entry *entry = scope.find(function->output(i));
    if (n.wants(i) && (!entry || !entry->value))
      return n.fail("output '" + function->output(i) +
                    "' of the function is not computed");
    if (n.wants(i) && failed(n.out(i, entry->value)))
      return failure();
  }
  return success();
}

void addControlFlow(OpTable &table) {
  table["If"] = importIf;
  table["Loop"] = importLoop;
  table["Scan"] = importScan;
}

} // namespace sluice::frontend
