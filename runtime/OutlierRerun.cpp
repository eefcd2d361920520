#include "runtime/OutlierRerun.h"

#include <cstring>

namespace sluice {

template <class T> static bool sameBits(const T &a, const T &b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

Status runJudged(Session &session, BatchSource &source, const WindowRun &window,
                 StepResult &result, double &computeUs, std::vector<std::string> &notes) {
  int64_t firstSample = session.samples();
  Status status = window(result, computeUs);
  if (!status.ok() || !result.outlier || !session.plan().raw().reruns_outliers())
    return status;
  double lossBefore = result.windowLoss(), usBefore = computeUs;
  float normBefore = result.gradNorm.value_or(0);
  session.takeBackOutlier(firstSample);
  status = source.seek(firstSample);
  if (status.ok())
    status = window(result, computeUs);
  computeUs += usBefore;
  if (!status.ok() || notes.size() >= maxRerunNotes)
    return status;
  bool isSame = sameBits(lossBefore, result.windowLoss()) &&
                sameBits(normBefore, result.gradNorm.value_or(0));
  notes.push_back("update " + std::to_string(session.updates()) +
                  (isSame ? " has an unusual gradient, the same again: it was skipped"
                          : " gave other values when it ran again: check the machine" +
                                std::string(result.outlier ? "; it was skipped"
                                                           : "; the second run counts")));
  return status;
}

} // namespace sluice
