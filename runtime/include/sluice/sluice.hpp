// The C API for C++17 and later: handles that end themselves, statuses as exceptions of
// the caller's side.
#ifndef SLUICE_SLUICE_HPP
#define SLUICE_SLUICE_HPP

#include <sluice/sluice.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sluice::api {

/// Thrown by this wrapper, inside the caller's own code; the library itself throws
/// nothing.
class Error : public std::runtime_error {
public:
  Error(sluice_status status, const std::string &message)
      : std::runtime_error(message), code(status) {}
  sluice_status status() const { return code; }

private:
  sluice_status code;
};

/// An input or output of a program, or a piece of state.
struct TensorInfo {
  std::string name;
  sluice_dtype dtype;
  std::vector<int64_t> shape;
  size_t bytes;
  bool batched, trainable, saved;

  explicit TensorInfo(const sluice_tensor_info &info)
      : name(info.name), dtype(info.dtype), shape(info.shape, info.shape + info.rank),
        bytes(info.bytes), batched(info.batched), trainable(info.trainable),
        saved(info.saved) {}
};

/// A tensor of the caller's with its shape.
struct Tensor {
  const void *data = nullptr;
  std::vector<int64_t> shape;
};

/// As the C API takes them.
inline std::vector<sluice_tensor> tensors(const std::vector<Tensor> &inputs) {
  std::vector<sluice_tensor> list;
  for (const Tensor &input : inputs)
    list.push_back({input.data, input.shape.size(), input.shape.data()});
  return list;
}

class Plan {
public:
  explicit Plan(const std::string &path) {
    check(sluice_plan_open(path.c_str(), &handle));
  }
  Plan(const void *data, size_t size) {
    check(sluice_plan_open_memory(data, size, &handle));
  }
  ~Plan() { sluice_plan_close(handle); }
  Plan(Plan &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Plan &operator=(Plan &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }

  sluice_plan *get() const { return handle; }
  int64_t batch() const { return sluice_plan_batch(handle); }
  int64_t accumulate() const { return sluice_plan_accumulate(handle); }
  void checkHere() const { check(sluice_plan_check(handle)); }

  sluice_memory memory() const {
    sluice_memory memory;
    check(sluice_plan_memory(handle, &memory));
    return memory;
  }
  std::vector<TensorInfo> inputs(const std::string &program) const {
    return list(sluice_plan_input_count(handle, program.c_str()),
                [&](size_t i, auto *info) {
                  return sluice_plan_input(handle, program.c_str(), i, info);
                });
  }
  std::vector<TensorInfo> outputs(const std::string &program) const {
    return list(sluice_plan_output_count(handle, program.c_str()),
                [&](size_t i, auto *info) {
                  return sluice_plan_output(handle, program.c_str(), i, info);
                });
  }
  size_t buckets() const { return sluice_plan_bucket_count(handle); }
  std::string bucket(size_t index) const {
    const char *name = sluice_plan_bucket(handle, index);
    return name ? name : "";
  }
  int64_t batch(size_t bucket) const { return sluice_plan_bucket_batch(handle, bucket); }
  std::vector<TensorInfo> inputs(const std::string &program, size_t bucket) const {
    return list(
        sluice_plan_input_count(handle, program.c_str()), [&](size_t i, auto *info) {
          return sluice_plan_bucket_input(handle, bucket, program.c_str(), i, info);
        });
  }
  std::vector<TensorInfo> outputs(const std::string &program, size_t bucket) const {
    return list(
        sluice_plan_output_count(handle, program.c_str()), [&](size_t i, auto *info) {
          return sluice_plan_bucket_output(handle, bucket, program.c_str(), i, info);
        });
  }
  /// The bucket with the smallest inputs that takes these tensors.
  size_t findBucket(const std::string &program, const std::vector<Tensor> &inputs) const {
    size_t bucket = 0;
    std::vector<sluice_tensor> list = tensors(inputs);
    check(sluice_plan_find_bucket(handle, program.c_str(), list.data(), list.size(),
                                  &bucket));
    return bucket;
  }
  /// Rungs of the memory ladder.
  size_t variants() const { return sluice_plan_variant_count(handle); }
  sluice_variant_info variant(size_t index) const {
    sluice_variant_info info;
    check(sluice_plan_variant(handle, index, &info));
    return info;
  }
  std::vector<TensorInfo> state() const {
    return list(sluice_plan_state_count(handle),
                [&](size_t i, auto *info) { return sluice_plan_state(handle, i, info); });
  }

private:
  template <class Get> static std::vector<TensorInfo> list(size_t count, Get get) {
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < count; ++i) {
      sluice_tensor_info info;
      check(get(i, &info));
      infos.emplace_back(info);
    }
    return infos;
  }
  static void check(sluice_status status) {
    if (status != SLUICE_OK)
      throw Error(status, sluice_last_error());
  }

  sluice_plan *handle = nullptr;
};

class Session {
public:
  using Inputs = std::vector<const void *>;

  explicit Session(const Plan &plan, const sluice_session_options &options = {}) {
    sluice_status status = sluice_session_create(plan.get(), &options, &handle);
    if (status != SLUICE_OK)
      throw Error(status, sluice_last_error());
  }
  ~Session() { sluice_session_destroy(handle); }
  Session(Session &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Session &operator=(Session &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }

  sluice_session *get() const { return handle; }

  sluice_step_result step(const Inputs &inputs, int64_t samples) {
    sluice_step_result result;
    check(sluice_session_step(handle, inputs.data(), inputs.size(), samples, &result));
    return result;
  }
  void applyPending() { check(sluice_session_apply_pending(handle)); }
  sluice_step_result flush() {
    sluice_step_result result;
    check(sluice_session_flush(handle, &result));
    return result;
  }
  sluice_step_result eval(const Inputs &inputs, int64_t samples) {
    sluice_step_result result;
    check(sluice_session_eval(handle, inputs.data(), inputs.size(), samples, &result));
    return result;
  }
  // Gradients as outputs "grad/NAME".
  sluice_step_result probe(const Inputs &inputs, int64_t samples) {
    sluice_step_result result;
    check(sluice_session_probe(handle, inputs.data(), inputs.size(), samples, &result));
    return result;
  }
  // A task's end: batches of its data, then consolidate.
  void fisher(const Inputs &inputs, int64_t samples) {
    check(sluice_session_fisher(handle, inputs.data(), inputs.size(), samples));
  }
  void consolidate() { check(sluice_session_consolidate(handle)); }
  double penalty() {
    double value = 0;
    check(sluice_session_penalty(handle, &value));
    return value;
  }
  void infer(const Inputs &inputs, int64_t samples) {
    check(sluice_session_infer(handle, inputs.data(), inputs.size(), samples));
  }
  // The bucket is chosen by the shapes.
  sluice_step_result step(const std::vector<Tensor> &inputs) {
    sluice_step_result result;
    std::vector<sluice_tensor> list = tensors(inputs);
    check(sluice_session_step_tensors(handle, list.data(), list.size(), &result));
    return result;
  }
  sluice_step_result eval(const std::vector<Tensor> &inputs) {
    sluice_step_result result;
    std::vector<sluice_tensor> list = tensors(inputs);
    check(sluice_session_eval_tensors(handle, list.data(), list.size(), &result));
    return result;
  }
  void infer(const std::vector<Tensor> &inputs) {
    std::vector<sluice_tensor> list = tensors(inputs);
    check(sluice_session_infer_tensors(handle, list.data(), list.size()));
  }
  size_t bucket() const { return sluice_session_bucket(handle); }

  /// Goes on with another rung of the memory ladder; throws and changes nothing when its
  /// memory cannot be had.
  void useVariant(size_t variant) { check(sluice_session_use_variant(handle, variant)); }
  size_t variant() const { return sluice_session_variant(handle); }

  /// Elements of an output of the last call, copied; T has to be its element type.
  template <class T> std::vector<T> output(const std::string &name) {
    const void *data = nullptr;
    size_t bytes = 0;
    check(sluice_session_output(handle, name.c_str(), &data, &bytes));
    const T *begin = static_cast<const T *>(data);
    return std::vector<T>(begin, begin + bytes / sizeof(T));
  }

  std::vector<int64_t> outputShape(const std::string &name) {
    std::vector<int64_t> shape(16); // more than any rank
    size_t rank = 0;
    check(sluice_session_output_shape(handle, name.c_str(), shape.data(), shape.size(),
                                      &rank));
    shape.resize(rank);
    return shape;
  }

  int64_t updates() const { return sluice_session_updates(handle); }
  int64_t samples() const { return sluice_session_samples(handle); }

  void readState(const std::string &name, void *data, size_t bytes) {
    check(sluice_session_read_state(handle, name.c_str(), data, bytes));
  }
  void writeState(const std::string &name, const void *data, size_t bytes) {
    check(sluice_session_write_state(handle, name.c_str(), data, bytes));
  }
  /// f32 values of a parameter of `count` elements, by the model's name.
  std::vector<float> readParameter(const std::string &name, size_t count) {
    std::vector<float> values(count);
    check(sluice_session_read_parameter(handle, name.c_str(), values.data(), count));
    return values;
  }
  void writeParameter(const std::string &name, const std::vector<float> &values) {
    check(sluice_session_write_parameter(handle, name.c_str(), values.data(),
                                         values.size()));
  }
  void setLr(const std::string &group, double lr) {
    check(sluice_session_set_lr(handle, group.c_str(), lr));
  }
  /// An empty group stands for what is outside groups ("clip_max").
  void setHyper(const std::string &group, const std::string &name, double value) {
    check(sluice_session_set_hyper(handle, group.c_str(), name.c_str(), value));
  }
  double hyper(const std::string &group, const std::string &name) {
    double value = 0;
    check(sluice_session_get_hyper(handle, group.c_str(), name.c_str(), &value));
    return value;
  }
  void freeze(const std::string &group) {
    check(sluice_session_freeze(handle, group.c_str()));
  }
  void unfreeze(const std::string &group) {
    check(sluice_session_unfreeze(handle, group.c_str()));
  }
  bool isFrozen(const std::string &group) {
    bool frozen = false;
    check(sluice_session_is_frozen(handle, group.c_str(), &frozen));
    return frozen;
  }
  void loadWeights(const std::string &path) {
    check(sluice_session_load_weights(handle, path.c_str()));
  }
  void save(const std::string &folder) {
    check(sluice_session_save(handle, folder.c_str()));
  }
  void load(const std::string &folder) {
    check(sluice_session_load(handle, folder.c_str()));
  }

private:
  void check(sluice_status status) const {
    if (status != SLUICE_OK)
      throw Error(status, sluice_session_error(handle));
  }

  sluice_session *handle = nullptr;
};

} // namespace sluice::api

#endif
