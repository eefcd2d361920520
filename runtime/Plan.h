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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice {

constexpr size_t maxRank = 16;

/// Bytes of the two reservations of each memory (law 1).
struct PlanMemory {
  uint64_t stateBytes = 0;
  uint64_t stepBytes = 0;
  uint64_t hostStateBytes = 0; // of what lies in the host's memory
  uint64_t hostStepBytes = 0;
};

/// One way to run the entries: the programs of one bucket of shapes, planned for one rung
/// of the memory ladder. All variants share the state.
struct PlanVariant {
  std::string name, bucketName; // both empty in a plan without variants
  uint32_t bucket = 0, rung = 0;
  int64_t batch = 0; // samples of one micro-batch
  uint64_t stepBytes = 0;
  double memoryFraction = 1; // of the rung
  uint64_t budgetBytes = 0;  // 0: none
  std::vector<uint32_t> programs;
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

  PlanMemory memory() const {
    return {raw().state_bytes(), raw().step_bytes(), raw().host_state_bytes(),
            raw().host_step_bytes()};
  }
  /// True if some program moves bytes between the device and the host.
  bool hasCopies() const;
  /// True if some program has collectives.
  bool hasCollectives() const;
  /// True if ranks hold state in shards: only all of them together can save it.
  bool hasShards() const;
  /// Ranks that share an update.
  int64_t ranks() const { return raw().ranks(); }
  /// What a session on this rung of the memory ladder reserves: its largest bucket.
  PlanMemory memory(uint32_t rung) const;
  int threads() const { return raw().threads(); }
  int64_t batch() const { return raw().batch(); } // of the first bucket
  int64_t accumulate() const { return raw().accumulate(); }
  /// What runs forward and backward part: "micro" adds to sums, "step" updates too.
  const char *trainingProgram() const {
    return accumulate() > 1 || raw().update_every() > 1 ? "micro" : "step";
  }
  /// Training and evaluation refuse short batches: the model's own loss counts padding.
  bool fullBatches() const { return raw().full_batches(); }

  /// At least one; the first is bucket 0 on rung 0.
  std::span<const PlanVariant> variants() const { return variantList; }
  uint32_t buckets() const { return bucketCount; }
  uint32_t rungs() const { return rungCount; }
  const PlanVariant &variant(uint32_t bucket, uint32_t rung = 0) const {
    return variantList[variantIndex[bucket * rungCount + rung]];
  }
  /// The index of a program in raw().programs(); nothing when the variant has none of
  /// that name.
  std::optional<uint32_t> programIndex(std::string_view name,
                                       const PlanVariant &variant) const;

  /// Null when there is none.
  const fbs::Program *program(std::string_view name, uint32_t bucket = 0,
                              uint32_t rung = 0) const;
  const fbs::StateTensor *state(std::string_view name) const;
  const fbs::ParamGroup *group(std::string_view name) const;

  /// What a source must deliver for this program, in the order of its inputs; empty for
  /// an unknown program.
  std::vector<InputSpec> inputs(std::string_view program, uint32_t bucket = 0) const;

  /// Names of the programs of a variant: every variant has the same.
  std::vector<std::string> programNames() const;

private:
  friend class PlanReader;
  Plan() = default;
  void listVariants();

  std::shared_ptr<const MappedFile> mapping; // one of the two owns the bytes
  std::vector<uint64_t> copy;                // 8-byte aligned, as FlatBuffers needs
  std::span<const uint8_t> bytes;
  const fbs::Plan *content = nullptr;
  std::string filePath;
  std::unordered_map<std::string_view, const fbs::StateTensor *> stateByName;
  std::vector<PlanVariant> variantList;
  std::vector<size_t> variantIndex; // by bucket, then rung
  uint32_t bucketCount = 1, rungCount = 1;
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
