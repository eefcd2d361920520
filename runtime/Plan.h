#pragma once
// A plan that was read and checked: everything below may rely on its offsets, sizes and
// indices.

#include "runtime/BatchSource.h"
#include "runtime/DType.h"
#include "runtime/MappedFile.h"
#include "runtime/Status.h"
#include "runtime/plan_generated.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

/// Bytes of the two reservations (law 1).
struct PlanMemory {
  uint64_t stateBytes = 0;
  uint64_t stepBytes = 0;
};

class Plan {
public:
  /// The plan as stored; every vector below may be null when empty.
  const fbs::Plan &raw() const { return *content; }
  std::span<const uint8_t> file() const { return bytes; }
  /// Empty when the plan was read from memory.
  const std::string &path() const { return filePath; }
  /// OUT.safetensors beside OUT.plan; empty when read from memory.
  std::string weightsPath() const;

  PlanMemory memory() const { return {raw().state_bytes(), raw().step_bytes()}; }
  int threads() const { return raw().threads(); }
  int64_t batch() const { return raw().batch(); }
  int64_t accumulate() const { return raw().accumulate(); }
  /// Training and evaluation refuse short batches: the model's own loss counts padding.
  bool fullBatches() const { return raw().full_batches(); }

  /// Null when there is none.
  const fbs::Program *program(std::string_view name) const;
  const fbs::StateTensor *state(std::string_view name) const;
  const fbs::ParamGroup *group(std::string_view name) const;

  /// What a source must deliver for this program, in the order of its inputs; empty for
  /// an unknown program.
  std::vector<InputSpec> inputs(std::string_view program) const;

  /// Names of the programs.
  std::vector<std::string> programNames() const;

private:
  friend class PlanReader;
  Plan() = default;

  std::shared_ptr<const MappedFile> mapping; // one of the two owns the bytes
  std::vector<uint64_t> copy;                // 8-byte aligned, as FlatBuffers needs
  std::span<const uint8_t> bytes;
  const fbs::Plan *content = nullptr;
  std::string filePath;
  std::unordered_map<std::string_view, const fbs::StateTensor *> stateByName;
};

/// A FlatBuffers vector, null or not, as a span-like size.
template <class V> uint32_t sizeOf(const V *vector) {
  return vector ? vector->size() : 0;
}

inline std::string_view viewOf(const flatbuffers::String *text) {
  return text ? std::string_view(text->c_str(), text->size()) : std::string_view();
}

/// "[4, 18, 1024]", for messages.
std::string shapeText(std::span<const int64_t> shape);
std::string shapeText(const flatbuffers::Vector<int64_t> *shape);

} // namespace sluice
