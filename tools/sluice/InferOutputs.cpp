#include "tools/sluice/InferOutputs.h"

#include "runtime/Crop.h"
#include "runtime/Fill.h"
#include "tools/sluice/Cli.h"

#include <algorithm>

namespace sluice::cli {
namespace {

/// Format string of NumPy for an element type, or null.
const char *numpyType(DType type) {
  switch (type) {
  case DType::f32:
    return "<f4";
  case DType::f64:
    return "<f8";
  case DType::i32:
    return "<i4";
  case DType::i64:
    return "<i8";
  case DType::i8:
    return "|i1";
  case DType::u8:
    return "|u1";
  case DType::i1:
    return "|b1";
  default:
    return nullptr;
  }
}

/// The header of a version 1.0 .npy file for an array of this shape, padded to 64 bytes.
std::string npyHeader(const char *type, const std::vector<int64_t> &shape) {
  std::string text =
      std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (";
  for (int64_t size : shape)
    text += std::to_string(size) + ",";
  text += "), }";
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string head("\x93NUMPY\x01\x00", 8);
  head += static_cast<char>(text.size() & 0xff);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

std::string outputPath(const std::string &out, std::string name, bool isOnly) {
  if (isOnly)
    return out;
  std::string stem = out.ends_with(".npy") ? out.substr(0, out.size() - 4) : out;
  for (char &c : name)
    if (c == '/' || c == ':' || c == ';')
      c = '_';
  return stem + "-" + name + ".npy";
}

const uint8_t *bytesOf(const std::string &text) {
  return reinterpret_cast<const uint8_t *>(text.data());
}

} // namespace

Status OutputCollector::add(const Session &session, const Batch &batch) {
  const fbs::Program *program = session.plan().program("infer", batch.bucket);
  for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i)
    if (Status status = addOutput(session, batch, *program->outputs()->Get(i));
        !status.ok())
      return status;
  samplesSeen += batch.count;
  return Status::success();
}

Status OutputCollector::addOutput(const Session &session, const Batch &batch,
                                  const fbs::Port &port) {
  std::string name(viewOf(port.name()));
  auto known = std::find_if(outputs.begin(), outputs.end(),
                            [&](const auto &entry) { return entry.first == name; });
  if (known == outputs.end())
    known = outputs.insert(
        known, {name, {static_cast<DType>(port.dtype()), port.batched(), {}}});
  auto view = session.output(name);
  if (!view)
    return view.status();
  const fbs::Program *program = session.plan().program("infer", batch.bucket);
  int64_t count = port.batched() ? batch.count : 1;
  for (int64_t i = 0; i < count; ++i) {
    auto given = [&](uint32_t input, uint32_t dimension) {
      const fbs::Port &source = *program->inputs()->Get(input);
      if (input >= batch.given.size() || batch.given[input].empty())
        return source.shape()->Get(dimension);
      size_t rank = sizeOf(source.shape()) - 1;
      auto sizeIn = [&](int64_t sample) {
        return batch.given[input][static_cast<size_t>(sample) * rank + dimension - 1];
      };
      int64_t size = sizeIn(i);
      for (int64_t k = 1; !port.batched() && k < batch.count; ++k)
        size = std::max(size, sizeIn(k)); // of all samples together
      return size;
    };
    CropShape crop(port, session.batchOf(batch.bucket), 1, given);
    Part part{crop.shape(), std::string(crop.bytes(), '\0')};
    size_t sampleBytes = view->bytes / static_cast<size_t>(count);
    crop.copy(view->data + sampleBytes * static_cast<size_t>(i),
              reinterpret_cast<uint8_t *>(part.bytes.data()));
    int64_t sample = !port.batched()         ? 0
                     : batch.samples.empty() ? samplesSeen + i
                                             : batch.samples[static_cast<size_t>(i)];
    known->second.parts.emplace(sample, std::move(part));
  }
  return Status::success();
}

Status OutputCollector::writeOutput(const Output &output, WrittenOutput &file) const {
  const char *type = numpyType(output.type);
  if (!type)
    return Status::refused("output '" + file.name +
                           "' has an element type that .npy cannot hold");
  std::vector<int64_t> largest;
  int64_t rows = 0;
  bool areFilled = false; // another dimension than the first differs
  for (const auto &[sample, part] : output.parts) {
    std::vector<int64_t> shape = part.shape;
    rows += shape.empty() ? 0 : shape[0];
    if (largest.empty())
      largest = shape;
    for (size_t d = 1; d < shape.size(); ++d)
      areFilled |= shape[d] != largest[d];
    for (size_t d = 0; d < shape.size(); ++d)
      largest[d] = std::max(largest[d], shape[d]);
  }
  std::string body, shapes;
  for (const auto &[sample, part] : output.parts) {
    if (!areFilled) {
      body += part.bytes;
      continue;
    }
    std::vector<int64_t> full = largest;
    full[0] = part.shape[0];
    size_t bytes = dtypeSize(output.type);
    for (int64_t size : full)
      bytes *= static_cast<size_t>(size);
    size_t begin = body.size();
    body.resize(begin + bytes);
    copyFilled(output.type, bytesOf(part.bytes), part.shape,
               reinterpret_cast<uint8_t *>(body.data()) + begin, full, 0);
    shapes.append(reinterpret_cast<const char *>(part.shape.data()),
                  part.shape.size() * sizeof(int64_t));
  }
  if (!largest.empty())
    largest[0] = rows;
  if (Status status = writeWholeFile(file.path, npyHeader(type, largest) + body);
      !status.ok() || !areFilled)
    return status;
  file.shapesPath = file.path.substr(0, file.path.rfind(".npy")) + "-shapes.npy";
  std::vector<int64_t> table = {static_cast<int64_t>(output.parts.size()),
                                static_cast<int64_t>(largest.size())};
  return writeWholeFile(file.shapesPath, npyHeader("<i8", table) + shapes);
}

Result<std::vector<WrittenOutput>> OutputCollector::write(const std::string &out) {
  std::vector<WrittenOutput> files;
  for (const auto &[name, output] : outputs) {
    WrittenOutput file{name, outputPath(out, name, outputs.size() == 1), ""};
    if (Status status = writeOutput(output, file); !status.ok())
      return status;
    files.push_back(std::move(file));
  }
  return files;
}

} // namespace sluice::cli
