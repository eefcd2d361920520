#include "frontend/onnx/ModelFile.h"
#include "frontend/onnx/Limits.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace sluice::frontend {

namespace {

/// Feeds the parser from a file and hashes what passes: the hash of the hashes of 1 MiB
/// chunks.
class HashingFile : public google::protobuf::io::CopyingInputStream {
public:
  explicit HashingFile(int descriptor) : descriptor(descriptor), chunk(1 << 20) {}
  ~HashingFile() override { ::close(descriptor); }

  int Read(void *buffer, int size) override {
    if (position == filled && !fill())
      return failed ? -1 : 0;
    size_t count = std::min<size_t>(size, filled - position);
    std::memcpy(buffer, chunk.data() + position, count);
    position += count;
    return static_cast<int>(count);
  }
  std::string finish() {
    while (fill())
      ;
    uint64_t value = llvm::xxh3_64bits(llvm::ArrayRef<uint8_t>(
        reinterpret_cast<const uint8_t *>(hashes.data()), hashes.size() * 8));
    std::string digits = llvm::utohexstr(value, /*LowerCase=*/true);
    return std::string(16 - digits.size(), '0') + digits;
  }
  bool failed = false;

private:
  bool fill() {
    position = filled = 0;
    while (filled < chunk.size()) {
      ssize_t count = ::read(descriptor, chunk.data() + filled, chunk.size() - filled);
      if (count < 0)
        failed = true;
      if (count <= 0)
        break;
      filled += count;
    }
    if (filled > 0)
      hashes.push_back(llvm::xxh3_64bits(llvm::ArrayRef<uint8_t>(chunk.data(), filled)));
    return filled > 0;
  }

  int descriptor;
  std::vector<uint8_t> chunk;
  size_t position = 0, filled = 0;
  std::vector<uint64_t> hashes;
};

std::optional<std::string> checkVersions(const onnx::ModelProto &model) {
  if (!model.has_graph())
    return "is not an ONNX model: it holds no graph";
  if (model.ir_version() > maxIrVersion)
    return "has IR version " + std::to_string(model.ir_version()) +
           ", newer than the newest known, " + std::to_string(maxIrVersion);
  int64_t opset = opsetOf(model, "");
  if (opset > maxOpset)
    return "uses opset " + std::to_string(opset) + ", newer than the newest known, " +
           std::to_string(maxOpset) + "; export it with an opset up to that";
  return std::nullopt;
}

} // namespace

std::optional<std::string> readModelFile(const std::string &path, ModelFile &file) {
  auto error = [&](const std::string &text) { return "'" + path + "' " + text; };
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    return error(std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return error("is not a file");
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return error(std::string("cannot be read: ") + std::strerror(errno));
  HashingFile source(descriptor);
  if (status.st_size >= int64_t(1) << 31)
    return error("is larger than 2 GiB, more than a protobuf holds; store its tensors as "
                 "external data");
  file.path = path;
  file.folder = std::filesystem::path(path).parent_path().string();
  file.proto = std::make_unique<onnx::ModelProto>();
  bool parsed;
  {
    google::protobuf::io::CopyingInputStreamAdaptor adaptor(&source);
    google::protobuf::io::CodedInputStream coded(&adaptor);
    coded.SetTotalBytesLimit(INT32_MAX);
    parsed = file.proto->ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
  }
  if (source.failed)
    return error("cannot be read to its end");
  if (!parsed || status.st_size == 0)
    return error("is not an ONNX model, or is cut off or damaged");
  file.hash = source.finish();
  if (auto problem = checkVersions(*file.proto))
    return error(*problem);
  return std::nullopt;
}

int64_t opsetOf(const onnx::ModelProto &model, llvm::StringRef domain) {
  int64_t version = 0;
  auto normal = [](llvm::StringRef d) { return d == "ai.onnx" ? llvm::StringRef() : d; };
  for (const auto &import : model.opset_import())
    if (normal(import.domain()) == normal(domain))
      version = std::max(version, import.version());
  if (version == 0 && normal(domain).empty() && model.opset_import().empty())
    return 1; // IR versions before 3
  return version;
}

std::optional<std::string> ExternalFiles::open(const std::string &location, Bytes &file) {
  namespace fs = std::filesystem;
  auto known = files.find(location);
  if (known != files.end()) {
    file = known->second;
    return std::nullopt;
  }
  fs::path relative(location), base(folder.empty() ? "." : folder);
  if (location.empty() || location.find('\0') != std::string::npos ||
      relative.is_absolute())
    return "its external data location '" + location + "' is not a path beside the model";
  std::error_code code;
  fs::path root = fs::weakly_canonical(base, code);
  fs::path full = fs::weakly_canonical(base / relative, code);
  auto [end, unused] = std::mismatch(root.begin(), root.end(), full.begin(), full.end());
  if (code || end != root.end())
    return "its external data location '" + location + "' leaves the model's folder";
  if (!fs::is_regular_file(full, code))
    return "its external data file '" + location + "' is missing beside the model";
  auto buffer = llvm::MemoryBuffer::getFile(full.string(), /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer)
    return "its external data file '" + location +
           "' cannot be read: " + buffer.getError().message();
  std::shared_ptr<llvm::MemoryBuffer> owner(std::move(*buffer));
  file = {owner->getBufferStart(), owner->getBufferSize(), owner};
  files[location] = file;
  return std::nullopt;
}

bool ExternalFiles::isAbsent(const onnx::TensorProto &tensor) const {
  namespace fs = std::filesystem;
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL)
    return false;
  for (const auto &entry : tensor.external_data()) {
    fs::path relative(entry.value());
    std::error_code code;
    if (entry.key() == "location" && !relative.empty() && !relative.is_absolute())
      return !fs::exists(fs::path(folder.empty() ? "." : folder) / relative, code);
  }
  return false;
}

std::optional<std::string> ExternalFiles::find(const onnx::TensorProto &tensor,
                                               int64_t expected, Bytes &bytes) {
  std::string location;
  int64_t offset = 0, length = 0;
  for (const auto &entry : tensor.external_data()) {
    llvm::StringRef value = entry.value();
    bool number = entry.key() == "offset" || entry.key() == "length";
    if (entry.key() == "location")
      location = value.str();
    else if (number &&
             (value.getAsInteger(10, entry.key() == "offset" ? offset : length) ||
              offset < 0 || length < 0))
      return "its external data has " + entry.key() + " '" + value.str() +
             "', expected a number of bytes";
  }
  Bytes file;
  if (auto problem = open(location, file))
    return problem;
  if (length == 0) // absent or 0: as long as the shape says
    length = expected;
  if (length != expected)
    return "its external data has " + std::to_string(length) +
           " bytes, its shape needs " + std::to_string(expected);
  if (offset > static_cast<int64_t>(file.size) ||
      length > static_cast<int64_t>(file.size) - offset)
    return "external data file '" + location + "' has " + std::to_string(file.size) +
           " bytes, the tensor needs bytes " + std::to_string(offset) + " to " +
           std::to_string(offset + length);
  bytes = {file.data + offset, static_cast<size_t>(length), file.owner};
  return std::nullopt;
}

} // namespace sluice::frontend
