#include "runtime/data/Standardize.h"

#include <cmath>

namespace sluice {

Status standardizeColumns(const DataSpec &spec, int64_t rows,
                          std::vector<double> &values) {
  auto option = spec.single("standardize", "no"), range = spec.single("range", ":");
  for (const auto *value : {&option, &range})
    if (!value->ok())
      return value->status();
  if (*option == "no")
    return Status::success();
  if (*option != "yes" && option->find(':') == std::string::npos)
    return spec.refuse("standardize is '" + *option +
                       "', expected no, yes or rows as first:end");
  auto part = parseRange(*option == "yes" ? *range : *option, rows);
  if (!part)
    return spec.refuse(part.status().message);

  size_t columns = values.size() / size_t(rows);
  double count = double(part->second - part->first);
  for (size_t c = 0; c < columns; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = part->first; r < part->second; ++r)
      sum += values[size_t(r) * columns + c];
    double mean = sum / count;
    for (int64_t r = part->first; r < part->second; ++r) {
      double distance = values[size_t(r) * columns + c] - mean;
      squares += distance * distance;
    }
    double deviation = std::sqrt(squares / count);
    for (int64_t r = 0; r < rows; ++r) {
      double &value = values[size_t(r) * columns + c];
      value = (value - mean) / (deviation > 0 ? deviation : 1);
    }
  }
  return Status::success();
}

} // namespace sluice
