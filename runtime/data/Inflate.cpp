#include "runtime/data/Inflate.h"

#include <algorithm>
#include <zlib.h>

namespace sluice {

Result<std::shared_ptr<std::vector<uint8_t>>> inflateBytes(std::span<const uint8_t> bytes,
                                                           Deflated format, size_t limit,
                                                           const std::string &origin) {
  z_stream stream = {};
  // Window bits: 15 with 16 added for a gzip header, negative for none.
  if (inflateInit2(&stream, format == Deflated::Gzip ? 15 + 16 : -15) != Z_OK)
    return Status::failed("no memory to decompress '" + origin + "'");
  std::unique_ptr<z_stream, int (*)(z_stream *)> guard(&stream, inflateEnd);

  auto result = std::make_shared<std::vector<uint8_t>>();
  size_t produced = 0, consumed = 0;
  for (;;) {
    // Grows with what really comes out, so that a lying header costs nothing.
    if (produced == result->size())
      result->resize(std::min(limit + 1, std::max<size_t>(1 << 16, 2 * produced)));
    size_t room = std::min<size_t>(result->size() - produced, 1 << 30);
    size_t given = std::min<size_t>(bytes.size() - consumed, 1 << 30);
    stream.next_in = const_cast<uint8_t *>(bytes.data()) + consumed;
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = result->data() + produced;
    stream.avail_out = static_cast<uInt>(room);
    int code = inflate(&stream, Z_NO_FLUSH);
    consumed += given - stream.avail_in;
    produced += room - stream.avail_out;
    if (produced > limit)
      return Status::damaged("'" + origin + "' decompresses to more than " +
                             std::to_string(limit) + " bytes");
    if (code == Z_STREAM_END)
      break;
    if (code == Z_BUF_ERROR ||
        (code == Z_OK && consumed == bytes.size() && stream.avail_out != 0))
      return Status::damaged("'" + origin +
                             "' ends in the middle of its compressed data, "
                             "after " +
                             std::to_string(produced) + " bytes");
    if (code != Z_OK)
      return Status::damaged("'" + origin + "' is not valid compressed data: " +
                             (stream.msg ? stream.msg : "unknown error"));
  }
  result->resize(produced);
  return result;
}

} // namespace sluice
