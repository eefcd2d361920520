#include "runtime/data/Csv.h"

#include "runtime/MappedFile.h"
#include "runtime/data/DataSpec.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace sluice {
namespace {

/// Cuts the text into rows of fields. Fields without quotes are views of the text.
class CsvScanner {
public:
  CsvScanner(std::string_view text, char delimiter) : text(text), delimiter(delimiter) {
    if (text.substr(0, 3) == "\xef\xbb\xbf") // byte order mark
      at = 3;
  }

  /// False at the end. Blank lines are skipped. `unclosed` is set when a quote is.
  bool next(std::vector<std::string_view> &fields, bool &unclosed) {
    fields.clear();
    unquoted.clear();
    while (at < text.size() && (text[at] == '\n' || text[at] == '\r'))
      line += text[at++] == '\n';
    if (at >= text.size())
      return false;
    rowLine = line + 1;
    for (;;) {
      fields.push_back(text[at] == '"' ? quotedField(unclosed) : plainField());
      if (at >= text.size() || text[at] != delimiter)
        break;
      if (++at >= text.size()) { // the file ends in a delimiter
        fields.emplace_back();
        break;
      }
    }
    return true;
  }
  int64_t lineOfRow() const { return rowLine; }

private:
  std::string_view plainField() {
    size_t begin = at;
    while (at < text.size() && text[at] != delimiter && text[at] != '\n')
      ++at;
    size_t end = at;
    while (end > begin && (text[end - 1] == '\r' || text[end - 1] == ' '))
      --end;
    while (begin < end && text[begin] == ' ')
      ++begin;
    return text.substr(begin, end - begin);
  }

  std::string_view quotedField(bool &unclosed) {
    size_t begin = ++at;
    std::string *copy = nullptr; // only when a doubled quote must be undone
    for (;; ++at) {
      if (at >= text.size()) {
        unclosed = true;
        return {};
      }
      line += text[at] == '\n';
      if (text[at] == '"') {
        if (at + 1 >= text.size() || text[at + 1] != '"')
          break;
        if (!copy)
          copy = &unquoted.emplace_back(text.substr(begin, at - begin));
        ++at;
      }
      if (copy)
        copy->push_back(text[at]);
    }
    std::string_view field =
        copy ? std::string_view(*copy) : text.substr(begin, at - begin);
    for (++at; at < text.size() && text[at] != delimiter && text[at] != '\n';)
      ++at; // blanks behind the quote
    return field;
  }

  std::string_view text;
  char delimiter;
  size_t at = 0;
  int64_t line = 0, rowLine = 0;
  std::deque<std::string> unquoted; // of the present row; a deque keeps views valid
};

Result<size_t> columnByName(const std::string &name,
                            const std::vector<std::string_view> &header, bool hasHeader,
                            const std::string &path) {
  auto found = std::find(header.begin(), header.end(), name);
  if (hasHeader && found != header.end())
    return size_t(found - header.begin());
  std::string names;
  for (std::string_view known : header)
    if (names.size() < 300)
      names += (names.empty() ? "'" : ", '") + std::string(known) + "'";
  return Status::refused("'" + path + "' has no column '" + name + "'; " +
                         (hasHeader ? "its header has " + names
                                    : "it has no header, so columns go by number"));
}

/// Positions from 0 of the columns of one list.
Result<std::vector<size_t>> resolve(const CsvColumns &columns,
                                    const std::vector<std::string_view> &firstRow,
                                    bool hasHeader, const std::string &path) {
  std::vector<size_t> positions;
  for (const std::string &item : columns) {
    size_t dash = item.find('-');
    auto first = parseInteger(std::string_view(item).substr(0, dash));
    auto last = dash == std::string::npos
                    ? first
                    : parseInteger(std::string_view(item).substr(dash + 1));
    if (!first || !last) {
      auto position = columnByName(item, firstRow, hasHeader, path);
      if (!position)
        return position.status();
      positions.push_back(*position);
      continue;
    }
    if (*first < 1 || *last < *first || *last > int64_t(firstRow.size()))
      return Status::refused("column '" + item + "' is not among the " +
                             std::to_string(firstRow.size()) + " columns of '" + path +
                             "', which are counted from 1");
    for (int64_t c = *first; c <= *last; ++c)
      positions.push_back(size_t(c) - 1);
  }
  return positions;
}

/// Whether the first row is a header, and so where data begins.
bool isHeader(const std::vector<CsvColumns> &columns,
              const std::vector<std::string_view> &row, CsvHeader header,
              const std::string &path) {
  if (header != CsvHeader::Detect)
    return header == CsvHeader::Yes;
  for (const CsvColumns &list : columns) {
    auto positions = resolve(list, row, true, path);
    if (!positions)
      return true; // the error is told by the caller
    for (size_t p : *positions)
      if (!parseNumber(row[p]))
        return true;
  }
  return false;
}

Status readRow(const std::vector<std::string_view> &row, int64_t line,
               const std::vector<std::vector<size_t>> &positions, CsvTable &table,
               const std::string &path) {
  for (size_t list = 0; list < positions.size(); ++list)
    for (size_t p : positions[list]) {
      auto value = parseNumber(row[p]);
      if (!value)
        return Status::damaged("'" + path + "' has " +
                               (row[p].empty()
                                    ? "an empty cell"
                                    : "'" + std::string(row[p].substr(0, 40)) + "'") +
                               " in line " + std::to_string(line) + ", column " +
                               std::to_string(p + 1) + ", expected a number");
      table.values[list].push_back(*value);
    }
  ++table.rows;
  return Status::success();
}

} // namespace

Result<CsvTable> readCsv(const std::string &path, const std::vector<CsvColumns> &columns,
                         const CsvOptions &options) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.status();
  auto bytes = (*file)->bytes();
  CsvScanner scanner({reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                     options.delimiter);
  CsvTable table;
  table.values.resize(columns.size());
  std::vector<std::vector<size_t>> positions;
  std::vector<std::string_view> row;
  size_t width = 0;
  for (bool unclosed = false; scanner.next(row, unclosed);) {
    if (unclosed)
      return Status::damaged("'" + path + "' has a quote in line " +
                             std::to_string(scanner.lineOfRow()) +
                             " that is never closed");
    if (positions.empty()) {
      width = row.size();
      bool header = isHeader(columns, row, options.header, path);
      for (const CsvColumns &list : columns) {
        auto resolved = resolve(list, row, header, path);
        if (!resolved)
          return resolved.status();
        positions.push_back(*resolved);
      }
      if (header)
        continue;
    }
    if (row.size() != width)
      return Status::damaged("'" + path + "' has " + std::to_string(row.size()) +
                             " fields in line " + std::to_string(scanner.lineOfRow()) +
                             ", expected " + std::to_string(width) +
                             " as in its first row");
    Status status = readRow(row, scanner.lineOfRow(), positions, table, path);
    if (!status.ok())
      return status;
  }
  if (table.rows == 0)
    return Status::damaged("'" + path + "' has no rows of data");
  return table;
}

} // namespace sluice
