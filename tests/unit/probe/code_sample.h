#pragma once

// Files whose code tests ask about.

#include <fcntl.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/probe/code/code_map.h"
#include "daemon/probe/elf/elf_symbols.h"

namespace gpuperf {

// One file, open, with its symbols looked up by name.
class CodeSample {
 public:
  explicit CodeSample(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
        symbols_(ElfSymbols::load(fd_.get(), ElfSymbols::Tables::kBoth)),
        code_(CodeMap::open(fd_.get())) {
    if (!code_.ok()) throw std::runtime_error(path + ": " + std::string(code_.status().message()));
  }

  int fd() const { return fd_.get(); }
  CodeMap& code() { return *code_; }
  const ElfSymbols& symbols() const { return *symbols_; }
  std::optional<FunctionSymbol> find(const std::string& name) const {
    return symbols_->find_function(name);
  }
  FunctionSymbol get(const std::string& name) const {
    const auto found = find(name);
    if (!found) throw std::runtime_error("no symbol " + name);
    return *found;
  }

 private:
  Fd fd_;
  Result<ElfSymbols> symbols_;
  Result<CodeMap> code_;
};

}  // namespace gpuperf
