#include "runtime/CodeImage.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <sys/mman.h>
#include <vector>

namespace sluice {

constexpr uint64_t pageBytes = 4096;
constexpr size_t maxSymbolBytes = 1024;
constexpr uint64_t maxZeroBytes =
    16 << 20; // memory an image may ask for beyond its own size

class ImageLoader {
public:
  ImageLoader(std::span<const uint8_t> file, const std::string &name)
      : file(file), name(name) {}

  Status load();
  std::shared_ptr<CodeImage> image{new CodeImage};

private:
  Status bad(const std::string &why) const {
    return Status::damaged("machine code '" + name + "' refused: " + why);
  }
  template <class T> bool read(uint64_t offset, T &value) const {
    if (offset > file.size() || sizeof(T) > file.size() - offset)
      return false;
    std::memcpy(&value, file.data() + offset, sizeof(T));
    return true;
  }
  /// From the mapped image, by virtual address.
  template <class T> bool peek(uint64_t address, T &value) const {
    if (address > image->size || sizeof(T) > image->size - address)
      return false;
    std::memcpy(&value, image->base + address, sizeof(T));
    return true;
  }

  Status readHeader();
  Status checkSegments();
  Status mapSegments();
  Status readDynamic();
  Status checkDynamicTag(const Elf64_Dyn &entry);
  Status checkSymbols();
  Status protect();

  std::span<const uint8_t> file;
  const std::string &name;
  Elf64_Ehdr header = {};
  std::vector<Elf64_Phdr> segments;
  Elf64_Phdr dynamic = {};
  uint64_t hashTable = 0, symbolTable = 0, symbolCount = 0, stringTable = 0,
           stringBytes = 0;
};

Status ImageLoader::readHeader() {
  if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return bad("not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN || header.e_machine != EM_X86_64)
    return bad("not a shared image for x86-64");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > 64)
    return bad("malformed program headers");
  segments.resize(header.e_phnum);
  for (size_t i = 0; i < segments.size(); ++i)
    if (header.e_phoff > file.size() ||
        !read(header.e_phoff + i * sizeof(Elf64_Phdr), segments[i]))
      return bad("program headers outside the file");
  return Status::success();
}

Status ImageLoader::checkSegments() {
  uint64_t end = 0;
  for (const Elf64_Phdr &segment : segments) {
    if (segment.p_type == PT_TLS || segment.p_type == PT_INTERP)
      return bad("it has thread-local storage or an interpreter");
    if (segment.p_type == PT_DYNAMIC)
      dynamic = segment;
    if (segment.p_type != PT_LOAD)
      continue;
    if (segment.p_offset > file.size() ||
        segment.p_filesz > file.size() - segment.p_offset ||
        segment.p_filesz > segment.p_memsz)
      return bad("a segment lies outside the file");
    uint64_t limit = 4 * file.size() + maxZeroBytes;
    if (segment.p_vaddr > limit || segment.p_memsz > limit - segment.p_vaddr)
      return bad("a segment asks for more memory than the file justifies");
    if ((segment.p_flags & PF_X) && (segment.p_flags & PF_W))
      return bad("a segment is both writable and executable");
    end = std::max(end, segment.p_vaddr + segment.p_memsz);
  }
  if (end == 0 || dynamic.p_type != PT_DYNAMIC)
    return bad("it has no loadable segment or no dynamic section");
  image->size = (end + pageBytes - 1) / pageBytes * pageBytes;
  return Status::success();
}

Status ImageLoader::mapSegments() {
  void *memory = mmap(nullptr, image->size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status::doesNotFit("no memory for " + std::to_string(image->size) +
                              " bytes of machine code");
  image->base = static_cast<uint8_t *>(memory);
  for (const Elf64_Phdr &segment : segments)
    if (segment.p_type == PT_LOAD && segment.p_filesz > 0)
      std::memcpy(image->base + segment.p_vaddr, file.data() + segment.p_offset,
                  segment.p_filesz);
  return Status::success();
}

Status ImageLoader::checkDynamicTag(const Elf64_Dyn &entry) {
  switch (entry.d_tag) {
  case DT_SYMTAB:
    symbolTable = entry.d_un.d_ptr;
    return Status::success();
  case DT_STRTAB:
    stringTable = entry.d_un.d_ptr;
    return Status::success();
  case DT_STRSZ:
    stringBytes = entry.d_un.d_val;
    return Status::success();
  case DT_HASH:
    hashTable = entry.d_un.d_ptr;
    return Status::success();
  case DT_NEEDED:
    return bad("it needs another library");
  case DT_RELASZ:
  case DT_RELSZ:
  case DT_PLTRELSZ:
  case DT_RELRSZ:
    return entry.d_un.d_val == 0 ? Status::success() : bad("it has relocations");
  case DT_INIT:
  case DT_FINI:
  case DT_INIT_ARRAY:
  case DT_FINI_ARRAY:
  case DT_PREINIT_ARRAY:
    return bad("it has initialisers");
  default:
    return Status::success();
  }
}

Status ImageLoader::readDynamic() {
  for (uint64_t at = dynamic.p_vaddr, end = 0;; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    if (__builtin_add_overflow(dynamic.p_vaddr, dynamic.p_memsz, &end) || at >= end ||
        !peek(at, entry))
      return bad("its dynamic section has no end");
    if (entry.d_tag == DT_NULL)
      break;
    if (Status status = checkDynamicTag(entry); !status.ok())
      return status;
  }
  uint32_t buckets[2]; // number of buckets, number of symbols
  if (hashTable == 0 || !peek(hashTable, buckets))
    return bad("it has no DT_HASH table (link with --hash-style=both)");
  symbolCount = buckets[1];
  return Status::success();
}

Status ImageLoader::checkSymbols() {
  uint64_t tableBytes = symbolCount * sizeof(Elf64_Sym);
  if (symbolTable > image->size || tableBytes > image->size - symbolTable ||
      stringTable > image->size || stringBytes > image->size - stringTable ||
      stringBytes == 0 || image->base[stringTable + stringBytes - 1] != 0)
    return bad("its symbol table lies outside the image");
  for (uint64_t i = 1; i < symbolCount; ++i) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, image->base + symbolTable + i * sizeof symbol, sizeof symbol);
    if (symbol.st_name >= stringBytes)
      return bad("a symbol has no name");
    const char *text =
        reinterpret_cast<const char *>(image->base) + stringTable + symbol.st_name;
    // Names may share their bytes, so one name's length alone bounds nothing.
    if (strnlen(text, maxSymbolBytes) == maxSymbolBytes)
      return bad("a symbol has a name of " + std::to_string(maxSymbolBytes) +
                 " bytes or more");
    if (symbol.st_shndx == SHN_UNDEF)
      return bad("it calls '" + std::string(text).substr(0, 200) +
                 "', which it does not define; generated code may use nothing from "
                 "outside");
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value < image->size)
      image->functions.emplace(text, symbol.st_value);
  }
  return Status::success();
}

Status ImageLoader::protect() {
  if (mprotect(image->base, image->size, PROT_READ) != 0)
    return bad("its memory cannot be made read-only");
  for (const Elf64_Phdr &segment : segments) {
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) || segment.p_memsz == 0)
      continue;
    uint64_t begin = segment.p_vaddr / pageBytes * pageBytes;
    uint64_t end = segment.p_vaddr + segment.p_memsz;
    if (mprotect(image->base + begin, end - begin, PROT_READ | PROT_EXEC) != 0)
      return Status::cannotRunHere("this system does not let a program map machine code "
                                   "(mprotect refuses PROT_EXEC)");
  }
  return Status::success();
}

Status ImageLoader::load() {
  Status status = readHeader();
  if (status.ok())
    status = checkSegments();
  if (status.ok())
    status = mapSegments();
  if (status.ok())
    status = readDynamic();
  if (status.ok())
    status = checkSymbols();
  if (status.ok())
    status = protect();
  return status;
}

Result<std::shared_ptr<const CodeImage>> CodeImage::load(std::span<const uint8_t> file,
                                                         const std::string &name) {
  ImageLoader loader(file, name);
  if (Status status = loader.load(); !status.ok())
    return status;
  return std::shared_ptr<const CodeImage>(std::move(loader.image));
}

CodeImage::~CodeImage() {
  if (base)
    munmap(base, size);
}

void *CodeImage::symbol(std::string_view name) const {
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : base + found->second;
}

} // namespace sluice
