// The header of a safetensors file: {"NAME": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [0, 24]}, ...,
// "__metadata__": {"KEY": "TEXT", ...}}. A parser of just this, so that nesting, numbers
// and duplicate keys need no further thought.

#include "runtime/Safetensors.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace sluice {

namespace {

constexpr size_t maxRank = 16;

std::optional<DType> dtypeByTag(std::string_view tag) {
  constexpr std::string_view tags[dtypeCount] = {"F32", "F64", "F16", "BF16", "I8",
                                                 "U8",  "I16", "U16", "I32",  "U32",
                                                 "I64", "U64", "BOOL"};
  for (int i = 0; i < dtypeCount; ++i)
    if (tags[i] == tag)
      return static_cast<DType>(i);
  return std::nullopt;
}

class HeaderParser {
public:
  HeaderParser(std::string_view text, std::vector<TensorEntry> &tensors,
               Metadata &metadata)
      : text(text), tensors(tensors), metadata(metadata) {}

  Status parse();

private:
  Status bad(const std::string &what) const {
    return Status::damaged("header: " + what + " at byte " + std::to_string(at));
  }
  void skipSpace() {
    while (at < text.size() &&
           (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r'))
      ++at;
  }
  bool take(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  bool hexDigits(uint32_t &value);
  bool escape(std::string &out);
  bool string(std::string &out);
  bool integer(uint64_t &value);
  bool integers(std::vector<uint64_t> &values, size_t most);
  Status tensor(const std::string &name);
  Status tensorField(const std::string &key, TensorEntry &entry, int &seen);
  Status metadataObject();

  std::string_view text;
  size_t at = 0;
  std::vector<TensorEntry> &tensors;
  Metadata &metadata;
};

bool HeaderParser::hexDigits(uint32_t &value) {
  value = 0;
  for (int i = 0; i < 4; ++i, ++at) {
    if (at >= text.size())
      return false;
    char c = text[at];
    uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                     : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                            : 16;
    if (digit == 16)
      return false;
    value = value * 16 + digit;
  }
  return true;
}

void appendUtf8(std::string &out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 63));
    out += static_cast<char>(0x80 | ((code >> 6) & 63));
    out += static_cast<char>(0x80 | (code & 63));
  }
}

bool HeaderParser::escape(std::string &out) {
  if (at >= text.size())
    return false;
  char c = text[at++];
  constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
  if (size_t i = from.find(c); i != std::string_view::npos) {
    out += to[i];
    return true;
  }
  uint32_t code = 0, low = 0;
  if (c != 'u' || !hexDigits(code) || (code >= 0xdc00 && code < 0xe000))
    return false;
  if (code >= 0xd800 && code < 0xdc00) { // a surrogate pair
    if (at + 2 > text.size() || text[at] != '\\' || text[at + 1] != 'u')
      return false;
    at += 2;
    if (!hexDigits(low) || low < 0xdc00 || low >= 0xe000)
      return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  appendUtf8(out, code);
  return true;
}

bool HeaderParser::string(std::string &out) {
  out.clear();
  if (!take('"'))
    return false;
  while (at < text.size()) {
    char c = text[at++];
    if (c == '"')
      return true;
    if (static_cast<unsigned char>(c) < 0x20)
      return false;
    if (c != '\\')
      out += c;
    else if (!escape(out))
      return false;
  }
  return false;
}

bool HeaderParser::integer(uint64_t &value) {
  skipSpace();
  size_t begin = at;
  value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    if (__builtin_mul_overflow(value, uint64_t(10), &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(text[at] - '0'), &value))
      return false;
  bool leadingZero = at > begin + 1 && text[begin] == '0';
  return at > begin && !leadingZero && value <= uint64_t(INT64_MAX);
}

bool HeaderParser::integers(std::vector<uint64_t> &values, size_t most) {
  values.clear();
  if (!take('['))
    return false;
  if (take(']'))
    return true;
  do {
    uint64_t value = 0;
    if (values.size() == most || !integer(value))
      return false;
    values.push_back(value);
  } while (take(','));
  return take(']');
}

Status HeaderParser::tensorField(const std::string &key, TensorEntry &entry, int &seen) {
  std::vector<uint64_t> values;
  int bit = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
  if (bit == 0 || (seen & bit))
    return bad("tensor '" + entry.name + "' has an unknown or repeated field");
  seen |= bit;
  if (bit == 1) {
    std::string tag;
    if (!string(tag))
      return bad("expected an element type");
    std::optional<DType> type = dtypeByTag(tag);
    if (!type)
      return bad("tensor '" + entry.name + "' has the unknown element type '" +
                 tag.substr(0, 32) + "'");
    entry.dtype = *type;
  } else if (bit == 2) {
    if (!integers(values, maxRank))
      return bad("expected a shape of at most 16 dimensions");
    entry.shape.assign(values.begin(), values.end());
  } else {
    if (!integers(values, 2) || values.size() != 2 || values[0] > values[1])
      return bad("expected two data offsets");
    entry.offset = values[0];
    entry.bytes = values[1] - values[0];
  }
  return Status::success();
}

Status HeaderParser::tensor(const std::string &name) {
  TensorEntry entry;
  entry.name = name;
  int seen = 0;
  if (!take('{'))
    return bad("expected an object");
  do {
    std::string key;
    if (!string(key) || !take(':'))
      return bad("expected a field of tensor '" + name + "'");
    if (Status status = tensorField(key, entry, seen); !status.ok())
      return status;
  } while (take(','));
  if (!take('}') || seen != 7)
    return bad("tensor '" + name + "' needs dtype, shape and data_offsets");
  tensors.push_back(std::move(entry));
  return Status::success();
}

Status HeaderParser::metadataObject() {
  if (!take('{'))
    return bad("expected an object");
  if (take('}'))
    return Status::success();
  do {
    std::string key, value;
    if (!string(key) || !take(':') || !string(value))
      return bad("expected a text in the metadata");
    if (!metadata.emplace(std::move(key), std::move(value)).second)
      return bad("repeated key in the metadata");
  } while (take(','));
  return take('}') ? Status::success() : bad("expected '}'");
}

Status HeaderParser::parse() {
  bool sawMetadata = false;
  if (!take('{'))
    return bad("expected '{'");
  if (!take('}')) {
    do {
      std::string name;
      if (!string(name) || !take(':'))
        return bad("expected a name");
      bool isMetadata = name == "__metadata__";
      if (isMetadata && sawMetadata)
        return bad("repeated metadata");
      sawMetadata |= isMetadata;
      Status status = isMetadata ? metadataObject() : tensor(name);
      if (!status.ok())
        return status;
    } while (take(','));
    if (!take('}'))
      return bad("expected '}'");
  }
  skipSpace();
  return at == text.size() ? Status::success() : bad("unexpected text behind the end");
}

std::optional<uint64_t> sizeOfShape(const TensorEntry &entry) {
  bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
  uint64_t bytes = empty ? 0 : dtypeSize(entry.dtype);
  for (int64_t dimension : entry.shape)
    if (!empty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes))
      return std::nullopt;
  return bytes;
}

} // namespace

Status parseSafetensorsHeader(std::string_view json, uint64_t dataBytes,
                              std::vector<TensorEntry> &tensors, Metadata &metadata) {
  if (Status status = HeaderParser(json, tensors, metadata).parse(); !status.ok())
    return status;
  std::vector<const TensorEntry *> byOffset;
  std::unordered_set<std::string_view> names;
  for (const TensorEntry &entry : tensors) {
    if (!names.insert(entry.name).second)
      return Status::damaged("header: two tensors are named '" + entry.name + "'");
    if (sizeOfShape(entry) != entry.bytes)
      return Status::damaged("header: tensor '" + entry.name + "' has " +
                             std::to_string(entry.bytes) +
                             " bytes, which is not its shape");
    byOffset.push_back(&entry);
  }
  std::sort(byOffset.begin(), byOffset.end(), [](auto *a, auto *b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  uint64_t end = 0;
  for (const TensorEntry *entry : byOffset) {
    if (entry->offset != end)
      return Status::damaged("header: tensor '" + entry->name +
                             "' overlaps another or leaves a gap");
    end += entry->bytes;
    if (end > dataBytes)
      break;
  }
  if (end != dataBytes)
    return Status::damaged("the tensors need " + std::to_string(end) +
                           (end > dataBytes ? " bytes or more" : " bytes") +
                           ", the file has " + std::to_string(dataBytes));
  return Status::success();
}

} // namespace sluice
