#include "frontend/onnx/Inputs.h"
#include "frontend/onnx/Limits.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice::frontend {

using namespace mlir;

namespace {

class Binder {
public:
  Binder(const onnx::GraphProto &graph, MLIRContext *context,
         const ImportOptions &options, ImportReport &report)
      : graph(graph), context(context), options(options), report(report) {
    for (auto &[name, size] : options.dimensions)
      dimensions[name] = size;
    for (const auto &tensor : graph.initializer())
      initializers.insert(tensor.name());
  }

  BoundInputs run() {
    // IR 3 lists initializers among the inputs: those are parameters.
    for (const auto &input : graph.input())
      if (!initializers.contains(input.name()))
        names.push_back(input.name());
    checkNames();
    for (const auto &input : graph.input())
      if (llvm::is_contained(names, input.name()))
        learn(input);
    BoundInputs bound;
    for (const auto &input : graph.input())
      if (llvm::is_contained(names, input.name()))
        bind(input, bound);
    return bound;
  }

private:
  void error(const std::string &text) { report.errors.push_back(text); }

  void checkNames() {
    llvm::StringSet<> symbols;
    for (const auto &input : graph.input())
      for (const auto &dim : input.type().tensor_type().shape().dim())
        symbols.insert(dim.dim_param());
    auto unknown = [&](const std::string &key, const std::string &name) {
      error("`" + key + "` names '" + name +
            "', which is no input of the model; its inputs are " +
            (names.empty() ? "none" : "'" + llvm::join(names, "', '") + "'"));
    };
    for (auto &[name, shape] : options.shapes)
      if (!llvm::is_contained(names, name))
        unknown("shapes", name);
    for (auto &[name, value] : options.values)
      if (!llvm::is_contained(names, name))
        unknown("values", name);
    for (auto &[name, size] : options.dimensions)
      if (!symbols.contains(name))
        error("`shapes` names dimension '" + name + "', which no input has");
  }

  const std::vector<int64_t> *asked(const std::string &name) const {
    auto found = options.shapes.find(name);
    return found == options.shapes.end() ? nullptr : &found->second;
  }

  /// Symbolic dimensions take their size from the shapes that are given.
  void learn(const onnx::ValueInfoProto &input) {
    auto *shape = asked(input.name());
    const auto &dims = input.type().tensor_type().shape().dim();
    if (!shape || static_cast<int>(shape->size()) != dims.size())
      return;
    for (auto [size, dim] : llvm::zip(*shape, dims)) {
      if (dim.dim_param().empty())
        continue;
      auto [known, inserted] = dimensions.try_emplace(dim.dim_param(), size);
      if (!inserted && known->second != size)
        error("input '" + input.name() + "' binds dimension '" + dim.dim_param() +
              "' to " + std::to_string(size) + ", but it is " +
              std::to_string(known->second) + " elsewhere; give one size to both");
    }
  }

  int64_t bindDimension(const std::string &input, int index,
                        const onnx::TensorShapeProto::Dimension &dim,
                        BoundInputs &bound) {
    auto *shape = asked(input);
    bool fixed = dim.has_dim_value() && dim.dim_value() > 0;
    if (!shape) {
      if (dim.has_dim_value())
        return dim.dim_value();
      auto known = dimensions.find(dim.dim_param());
      return known == dimensions.end() || dim.dim_param().empty() ? -1 : known->second;
    }
    int64_t size = (*shape)[index];
    if (!fixed || size == dim.dim_value())
      return size;
    if (index == 0 && dim.dim_value() == 1) {
      bound.rebatch = size;
      rebatched.insert(input);
      report.notes.push_back("batch: input '" + input +
                             "' has batch 1 in the model and " + std::to_string(size) +
                             " here");
      return size;
    }
    error("input '" + input + "' has size " + std::to_string(dim.dim_value()) +
          " in dimension " + std::to_string(index) + ", but `shapes` gives " +
          std::to_string(size));
    return size;
  }

  std::optional<Ints> bindShape(const onnx::ValueInfoProto &input, BoundInputs &bound) {
    const auto &type = input.type().tensor_type();
    auto *shape = asked(input.name());
    if (!type.has_shape()) {
      if (shape)
        return Ints(shape->begin(), shape->end());
      error("input '" + input.name() + "' has no shape in the model; set `shapes: {" +
            input.name() + ": [...]}` in the spec or --shape " + input.name() + "=...");
      return std::nullopt;
    }
    int rank = type.shape().dim_size();
    if (shape && static_cast<int>(shape->size()) != rank) {
      error("input '" + input.name() + "' has " + std::to_string(rank) +
            " dimensions, but `shapes` gives " + std::to_string(shape->size()));
      return std::nullopt;
    }
    Ints sizes;
    bool complete = true;
    for (int i = 0; i < rank; ++i) {
      const auto &dim = type.shape().dim(i);
      int64_t size = bindDimension(input.name(), i, dim, bound);
      if (size < 0) {
        std::string symbol =
            dim.dim_param().empty() ? "" : " ('" + dim.dim_param() + "')";
        std::string byName =
            dim.dim_param().empty() ? "" : " or `shapes: {" + dim.dim_param() + ": N}`";
        error("input '" + input.name() + "' has dimension " + std::to_string(i) + symbol +
              " unbound; set `shapes: {" + input.name() + ": [...]}`" + byName +
              " in the spec, or --shape " + input.name() + "=...");
        complete = false;
      }
      sizes.push_back(size);
    }
    return complete ? std::optional<Ints>(sizes) : std::nullopt;
  }

  void bind(const onnx::ValueInfoProto &input, BoundInputs &bound) {
    if (!input.type().has_tensor_type()) {
      error("input '" + input.name() + "' is no tensor");
      return;
    }
    auto onnxType = input.type().tensor_type().elem_type();
    Type element = elementType(context, onnxType);
    if (!element)
      error("input '" + input.name() + "' is of " + onnxTypeName(onnxType) +
            ", which is not supported");
    BoundInput result;
    result.name = input.name();
    result.onnxType = onnxType;
    auto value = options.values.find(input.name());
    std::optional<Ints> shape;
    if (value != options.values.end() && !asked(input.name()) &&
        input.type().tensor_type().shape().dim_size() <= 1)
      shape =
          input.type().tensor_type().shape().dim_size() == 0 && value->second.size() == 1
              ? Ints{}
              : Ints{static_cast<int64_t>(value->second.size())};
    else
      shape = bindShape(input, bound);
    if (!element || !shape)
      return;
    if (elementCount(*shape) > maxElements ||
        static_cast<int64_t>(shape->size()) > maxRank ||
        llvm::any_of(*shape, [](int64_t d) { return d < 0; })) {
      error("input '" + input.name() + "' has shape " + shapeText(*shape) +
            ", which passes the limit of 2^36 elements or is negative");
      return;
    }
    result.type = RankedTensorType::get(*shape, element);
    result.rebatched = rebatched.contains(input.name());
    if (value != options.values.end())
      fix(result, value->second);
    bound.inputs.push_back(std::move(result));
  }

  void fix(BoundInput &input, const std::vector<double> &values) {
    if (static_cast<int64_t>(values.size()) != input.type.getNumElements()) {
      error("`values` gives " + std::to_string(values.size()) + " elements for input '" +
            input.name + "' of shape " + shapeText(input.type.getShape()));
      return;
    }
    graph::HostTensor tensor = graph::HostTensor::zeros(input.type);
    if (tensor.isReal())
      tensor.reals = values;
    else
      tensor.integers.assign(values.begin(), values.end());
    input.value = std::move(tensor);
    report.notes.push_back("values: input '" + input.name + "' is fixed");
  }

  const onnx::GraphProto &graph;
  MLIRContext *context;
  const ImportOptions &options;
  ImportReport &report;
  std::map<std::string, int64_t> dimensions;
  llvm::StringSet<> initializers, rebatched;
  std::vector<std::string> names;
};

} // namespace

BoundInputs bindInputs(const onnx::GraphProto &graph, MLIRContext *context,
                       const ImportOptions &options, ImportReport &report) {
  return Binder(graph, context, options, report).run();
}

} // namespace sluice::frontend
