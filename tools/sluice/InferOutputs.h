#pragma once
// The outputs of infer over a whole data set, as .npy files.

#include "runtime/BatchSource.h"
#include "runtime/Session.h"

#include <map>
#include <string>
#include <vector>

namespace sluice::cli {

struct WrittenOutput {
  std::string name, path;
  std::string shapesPath; // of parts of different shapes; else empty
};

class OutputCollector {
public:
  /// The outputs of the batch that has just run: each sample's part, without what the
  /// sample was filled up with.
  Status add(const Session &session, const Batch &batch);

  /// OUT.npy for one output, OUT-NAME.npy for several; the samples in the order of the
  /// data. Parts that differ in dimension 0 alone follow each other; those that differ in
  /// others are filled up with zeros to the largest, and OUT-NAME-shapes.npy says how
  /// large each is.
  Result<std::vector<WrittenOutput>> write(const std::string &out);

private:
  /// What one sample has of an output.
  struct Part {
    std::vector<int64_t> shape; // dimension 0: its rows
    std::string bytes;
  };
  struct Output {
    DType type = DType::f32;
    bool batched = false;
    std::map<int64_t, Part> parts; // by sample; one in all when not batched
  };

  Status addOutput(const Session &session, const Batch &batch, const fbs::Port &port);
  Status writeOutput(const Output &output, WrittenOutput &file) const;

  std::vector<std::pair<std::string, Output>> outputs;
  int64_t samplesSeen = 0;
};

} // namespace sluice::cli
