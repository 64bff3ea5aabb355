//===- LoadObject.cpp - Loading a relocatable object ------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the compiler writes for a kernel is one ELF object with code, constants
// and hardly anything else; loading it here means that neither packaging nor
// running needs a linker. Sections are laid out in one mapping, code first,
// relocated, then protected. Every offset in the file is checked before use.
//
//===----------------------------------------------------------------------===//

#include "LoadCode.h"

#include <cstring>
#include <vector>

#if defined(__linux__) && defined(__x86_64__)
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ffd;

namespace {

/// An address outside the object, reachable from all of it: jump through the
/// quadword behind the instruction.
struct Stub {
  uint8_t jump[6] = {0xFF, 0x25, 0, 0, 0, 0};
  uint8_t target[8];
};
static_assert(sizeof(Stub) == 14, "as the processor reads it");

class Loader {
public:
  Loader(const std::string &name, const std::string &bytes)
      : name(name), bytes(bytes) {}
  ~Loader() {
    if (base)
      munmap(base, size);
  }

  Status run(const std::string &symbol, std::shared_ptr<void> &owner,
             CpuEntry &entry) {
    FFD_RETURN_IF_ERROR(readHeaders());
    FFD_RETURN_IF_ERROR(place());
    FFD_RETURN_IF_ERROR(readSymbols());
    for (const Elf64_Shdr &section : sections)
      if (section.sh_type == SHT_RELA)
        FFD_RETURN_IF_ERROR(relocate(section));
      else if (section.sh_type == SHT_REL)
        return corrupt("has relocations without addends");
    uint8_t *found = nullptr;
    FFD_RETURN_IF_ERROR(findEntry(symbol, found));
    if (mprotect(base, dataOffset, PROT_READ | PROT_EXEC) != 0)
      return Status(StatusCode::Unsupported,
                    name + " cannot be made executable: the system forbids "
                           "code that is loaded from memory");
    entry = reinterpret_cast<CpuEntry>(found);
    const size_t mapped = size;
    owner =
        std::shared_ptr<void>(base, [mapped](void *p) { munmap(p, mapped); });
    base = nullptr;
    return Status::success();
  }

private:
  Status corrupt(const std::string &text) const {
    return Status(StatusCode::Corrupt,
                  name + " holds an object file that " + text +
                      ", expected one as the compiler writes it");
  }
  bool inside(uint64_t offset, uint64_t count) const {
    return offset <= bytes.size() && count <= bytes.size() - offset;
  }
  template <typename T>
  T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }

  Status readHeaders() {
    if (!inside(0, sizeof(Elf64_Ehdr)))
      return corrupt("ends in its header");
    const auto header = at<Elf64_Ehdr>(0);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_machine != EM_X86_64 ||
        header.e_shentsize != sizeof(Elf64_Shdr))
      return corrupt("is not of this machine");
    if (!inside(header.e_shoff, uint64_t(header.e_shnum) * sizeof(Elf64_Shdr)))
      return corrupt("is cut short");
    for (int i = 0; i < header.e_shnum; ++i) {
      sections.push_back(
          at<Elf64_Shdr>(header.e_shoff + uint64_t(i) * sizeof(Elf64_Shdr)));
      const Elf64_Shdr &s = sections.back();
      if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL &&
          !inside(s.sh_offset, s.sh_size))
        return corrupt("is cut short");
    }
    return Status::success();
  }

  /// Code, stubs, a page boundary, everything else.
  Status place() {
    offsets.assign(sections.size(), -1);
    const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
    uint64_t end = 0;
    for (const bool code : {true, false}) {
      for (size_t i = 0; i < sections.size(); ++i) {
        const Elf64_Shdr &s = sections[i];
        if (!(s.sh_flags & SHF_ALLOC) ||
            bool(s.sh_flags & SHF_EXECINSTR) != code)
          continue;
        const uint64_t align = s.sh_addralign ? s.sh_addralign : 1;
        if ((align & (align - 1)) != 0 || align > page ||
            s.sh_size > (uint64_t(1) << 28) || (s.sh_flags & SHF_TLS))
          return corrupt("has a section of unusual size or alignment");
        end = (end + align - 1) / align * align;
        offsets[i] = int64_t(end);
        end += s.sh_size;
        if (end > (uint64_t(1) << 30))
          return corrupt("is too large");
      }
      if (code) {
        stubOffset = end = (end + 15) / 16 * 16;
        end += sizeof(Stub) * kMostStubs;
        dataOffset = end = (end + page - 1) / page * page;
      }
    }
    size = (end + page) / page * page; // at least one page of data
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return Status(StatusCode::OutOfMemory,
                    "cannot map " + std::to_string(size) +
                        " bytes for the code of " + name);
    base = static_cast<uint8_t *>(memory);
    for (size_t i = 0; i < sections.size(); ++i)
      if (offsets[i] >= 0 && sections[i].sh_type != SHT_NOBITS)
        std::memcpy(base + offsets[i], bytes.data() + sections[i].sh_offset,
                    sections[i].sh_size);
    return Status::success();
  }

  Status readSymbols() {
    for (const Elf64_Shdr &s : sections) {
      if (s.sh_type != SHT_SYMTAB)
        continue;
      if (s.sh_link >= sections.size() || !symbols.empty())
        return corrupt("has no single table of symbols");
      const Elf64_Shdr &strings = sections[s.sh_link];
      names.assign(bytes, strings.sh_offset, strings.sh_size);
      for (uint64_t i = 0; i + sizeof(Elf64_Sym) <= s.sh_size;
           i += sizeof(Elf64_Sym))
        symbols.push_back(at<Elf64_Sym>(s.sh_offset + i));
    }
    return Status::success();
  }

  std::string nameOf(const Elf64_Sym &symbol) const {
    // names ends where its section does: c_str() ends in any case.
    return symbol.st_name < names.size() ? names.c_str() + symbol.st_name : "";
  }

  /// Where a defined symbol or the stub of an outer one is.
  Status address(uint32_t index, uint8_t *&result) {
    if (index >= symbols.size())
      return corrupt("refers to a symbol that it does not have");
    const Elf64_Sym &symbol = symbols[index];
    if (symbol.st_shndx == SHN_UNDEF)
      return stub(nameOf(symbol), result);
    if (symbol.st_shndx >= sections.size() || offsets[symbol.st_shndx] < 0 ||
        symbol.st_value > sections[symbol.st_shndx].sh_size)
      return corrupt("has a symbol outside its sections");
    result = base + offsets[symbol.st_shndx] + symbol.st_value;
    return Status::success();
  }

  Status stub(const std::string &symbol, uint8_t *&result) {
    static const struct {
      const char *name;
      void *address;
    } known[kMostStubs] = {
        {"memset", reinterpret_cast<void *>(&std::memset)},
        {"memcpy", reinterpret_cast<void *>(&std::memcpy)},
        {"memmove", reinterpret_cast<void *>(&std::memmove)}};
    for (size_t i = 0; i < kMostStubs; ++i) {
      if (symbol != known[i].name)
        continue;
      Stub code;
      std::memcpy(code.target, &known[i].address, 8);
      result = base + stubOffset + i * sizeof code;
      std::memcpy(result, &code, sizeof code);
      return Status::success();
    }
    return corrupt("needs the function '" + symbol.substr(0, 60) +
                   "', which is not there");
  }

  Status relocate(const Elf64_Shdr &section) {
    if (section.sh_info >= sections.size())
      return corrupt("relocates a section that it does not have");
    if (offsets[section.sh_info] < 0) // notes, debug information
      return Status::success();
    const uint64_t limit = sections[section.sh_info].sh_size;
    uint8_t *to = base + offsets[section.sh_info];
    for (uint64_t i = 0; i + sizeof(Elf64_Rela) <= section.sh_size;
         i += sizeof(Elf64_Rela)) {
      const auto r = at<Elf64_Rela>(section.sh_offset + i);
      const uint32_t type = ELF64_R_TYPE(r.r_info);
      const uint64_t width =
          type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (r.r_offset > limit || width > limit - r.r_offset)
        return corrupt("relocates outside a section");
      uint8_t *place = to + r.r_offset, *target = nullptr;
      FFD_RETURN_IF_ERROR(address(uint32_t(ELF64_R_SYM(r.r_info)), target));
      const uint64_t absolute =
          uint64_t(reinterpret_cast<uintptr_t>(target)) + uint64_t(r.r_addend);
      const int64_t relative =
          int64_t(absolute - uint64_t(reinterpret_cast<uintptr_t>(place)));
      switch (type) {
      case R_X86_64_64:
        std::memcpy(place, &absolute, 8);
        break;
      case R_X86_64_PC64:
        std::memcpy(place, &relative, 8);
        break;
      case R_X86_64_PC32:
      case R_X86_64_PLT32: {
        const int32_t near = int32_t(relative);
        if (near != relative)
          return corrupt("refers to something out of reach");
        std::memcpy(place, &near, 4);
        break;
      }
      default:
        return corrupt("has a relocation of type " + std::to_string(type));
      }
    }
    return Status::success();
  }

  Status findEntry(const std::string &symbol, uint8_t *&found) {
    for (uint32_t i = 0; i < symbols.size(); ++i) {
      const Elf64_Sym &s = symbols[i];
      if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
          nameOf(s) != symbol)
        continue;
      FFD_RETURN_IF_ERROR(address(i, found));
      if (found < base + stubOffset)
        return Status::success();
    }
    return Status(StatusCode::Corrupt,
                  name + " lacks its entry '" + symbol + "'");
  }

  static constexpr size_t kMostStubs = 3;
  const std::string &name, &bytes;
  std::vector<Elf64_Shdr> sections;
  std::vector<int64_t> offsets; ///< of sections in the mapping, or -1
  std::vector<Elf64_Sym> symbols;
  std::string names;
  uint8_t *base = nullptr;
  size_t size = 0, stubOffset = 0, dataOffset = 0;
};

} // namespace

Status ffd::loadRelocatable(const std::string &name, const std::string &bytes,
                            const std::string &symbol,
                            std::shared_ptr<void> &owner, CpuEntry &entry) {
  return Loader(name, bytes).run(symbol, owner, entry);
}

#else

ffd::Status ffd::loadRelocatable(const std::string &name, const std::string &,
                                 const std::string &, std::shared_ptr<void> &,
                                 CpuEntry &) {
  return Status(StatusCode::Unsupported,
                name + " holds code for x86-64 Linux, expected this machine's");
}

#endif
