#pragma once
// When what lies in the host's memory is on the device: the launches of a program run in
// one queue, copies between the two memories in another one beside it. Bytes are taken
// from the begin of the copy that brings them to the end of the one that takes them away.

#include <cstdint>
#include <vector>

namespace sluice {

/// Of one direction at a time; copies run one after the other.
struct LinkRates {
  double bytesPerSecond = 10e9, latencyUs = 2;
  double copyUs(int64_t bytes) const {
    return latencyUs + double(bytes) / bytesPerSecond * 1e6;
  }
};

/// One program. Instants are indices of launches.
struct StreamProblem {
  struct Access {
    int32_t launch = 0;
    bool written = false;
  };
  struct Tensor {
    int64_t sizeBytes = 0;
    bool isState = false;   ///< its value is there before and behind the program
    bool offloaded = false; ///< lies in the host's memory while no launch needs it
    bool atOnce = false; ///< launches wait for its copies: fewest bytes, not least time
    std::vector<Access> accesses; ///< rising launches
  };
  std::vector<double> launchUs;
  std::vector<Tensor> tensors;
  LinkRates link;
};

struct StreamSchedule {
  /// A stretch of the life of an offloaded tensor on the device.
  struct Part {
    int32_t tensor = 0;
    int32_t first = 0, last = 0;       ///< launches that use it
    int32_t copyIn = -1, copyOut = -1; ///< indices of copies
    int32_t begin = 0, end = 0;        ///< instants at which it takes bytes
  };
  struct Copy {
    int32_t part = 0;
    bool toHost = false;
    int32_t waitLaunches = 0; ///< launches that must be done before it begins
    double us = 0;
  };
  std::vector<Part> parts; ///< by tensor, then by time
  std::vector<Copy> copies;
  std::vector<int32_t> waitCopies; ///< by launch: copies that must be done before it
  double timeUs = 0;               ///< of the program, waits included
  double linkUs = 0;               ///< sum over the copies
};

/// Where a tensor leaves the device between two launches that use it: wherever the
/// launches between take at least as long as its copies, and in any case where they take
/// longest. Copies to the host begin when the launch before is done; those to the device
/// as late as the predicted times allow without keeping a launch waiting. With `atOnce`
/// it leaves wherever it can, and nothing runs beside its copies.
StreamSchedule scheduleCopies(const StreamProblem &problem);

} // namespace sluice
