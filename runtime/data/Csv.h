#pragma once
// Comma-separated numbers (RFC 4180: quoted fields, doubled quotes, newlines in quotes).

#include "runtime/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class CsvHeader { Detect, Yes, No };

struct CsvOptions {
  char delimiter = ',';
  CsvHeader header = CsvHeader::Detect; ///< Detect: a first row with a cell, among those
                                        ///< asked for, that is not a number
};

/// Columns to take, each "N", "N-M" (from 1) or a name of the header.
using CsvColumns = std::vector<std::string>;

struct CsvTable {
  int64_t rows = 0;
  /// Row-major rows x columns, one array per list of columns asked for.
  std::vector<std::vector<double>> values;
};

/// Reads the columns of each list. An error names row and column as counted from 1 in the
/// file, the header included.
Result<CsvTable> readCsv(const std::string &path, const std::vector<CsvColumns> &columns,
                         const CsvOptions &options);

} // namespace sluice
