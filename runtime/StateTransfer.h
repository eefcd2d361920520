#pragma once
// State from a file into a plan that may store it in another form (law 5): what of the
// file a tensor of the plan comes from, and the conversion.

#include "runtime/PlanCheck.h"
#include "runtime/Safetensors.h"
#include "runtime/Session.h"
#include "runtime/StateShard.h"
#include "runtime/StoredForm.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {

/// The name of what completes "param/NAME": "master/NAME/low" or "master/NAME"; of what
/// completes "opt/NAME/m": "opt/NAME/m/scale" or "opt/NAME/m/range". Empty for other
/// tensors.
std::string completionName(std::string_view name, Completion completion);

/// What completes a parameter has the parameter's shape, and a type that completes its
/// type; moments in codes have scales of whole blocks. The plan's state has been checked
/// otherwise.
Status checkStoredForms(const fbs::Plan &plan, VisitBudget &budget);

StoredForm storedForm(const Plan &plan, const fbs::StateTensor &tensor);

/// A tensor of the session's state with what completes it. Of a parameter whose master
/// the ranks hold in shards it has the parameter alone, as if there were no master.
StoredTensor<const uint8_t> storedTensor(const Session &session,
                                         const fbs::StateTensor &tensor);

/// True for tensors of the plan that complete another one, with which they are handled.
bool isCompletion(const Plan &plan, const fbs::StateTensor &tensor);

/// A tensor of the plan, and what a file has for it.
struct StateSource {
  const fbs::StateTensor *tensor = nullptr;
  const TensorEntry *entry = nullptr;      // null: the file has none
  const TensorEntry *completion = nullptr; // of the entry
  StoredForm from, to;
};

/// Looks for `name` and what completes it.
StateSource findSource(const Plan &plan, const fbs::StateTensor &tensor,
                       const SafetensorsFile &file, std::string_view name);

/// Why the entry cannot be stored in the tensor: "'NAME' is i64[2], the plan expects
/// f32[3]". Empty when it can.
std::string mismatch(const StateSource &source);

/// Stores what was found and matches; of what ranks hold in shards the own part. Gives
/// how many values were rounded.
uint64_t transfer(Session &session, const StateSource &source,
                  const SafetensorsFile &file);

/// True for a parameter whose master ranks hold in shards: a session knows its exact
/// values in part only.
bool hasSharedMaster(const Plan &plan, const fbs::StateTensor &tensor);

/// The f32 values of what was found in a file and matches: exact where the file has a
/// master, whole or in slices.
std::vector<float> valuesOf(const StateSource &source, const SafetensorsFile &file);

/// Stores f32 values in a tensor, and in what completes it.
void storeExact(Session &session, const fbs::StateTensor &tensor,
                std::span<const float> values);

/// Collects what was converted, a line for each pair of forms.
class ConversionNotes {
public:
  void add(const StateSource &source, uint64_t rounded);
  std::vector<std::string> lines() const;

private:
  struct Group {
    std::vector<std::string> names; // the first of them
    uint64_t tensors = 0, values = 0, rounded = 0;
    bool isExact = false; // before
  };
  std::map<std::pair<std::string, std::string>, Group> groups; // by what, and forms
};

} // namespace sluice
