#pragma once
// From batches of a task into a replay buffer.

#include "runtime/Session.h"
#include "runtime/replay/ReplayMix.h"

#include <functional>

namespace sluice {

/// One sample of a batch, as a buffer takes it: a pointer per field.
using OfferSample =
    std::function<Status(std::span<const void *const> fields, int64_t label)>;

/// Gives every sample of a batch of the data inputs (ReplayMix.h, dataInputs). Where the
/// plan holds logits (DER++) they are those of the weights now, by the program 'eval'.
/// The label is the integer of the plan's labels input; 0 where that is none.
Status offerBatch(Session &session, const Batch &batch, const OfferSample &offer);

/// One epoch of the source, in its order.
Status offerTask(Session &session, BatchSource &data, int64_t task, ReplayBuffer &buffer);

} // namespace sluice
