#pragma once

// A real library with DWARF, made by the compiler when a test runs, and what packagers make of it.

#include <fcntl.h>
#include <lzma.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/probe/elf/elf_symbols.h"
#include "tests/unit/files.h"

namespace gpuperf {

class SampleLibrary {
 public:
  // Lines of the source that frames are in.
  static constexpr uint32_t kInnerLine = 3;
  static constexpr uint32_t kMiddleLine = 6;
  static constexpr uint32_t kOuterLine = 10;
  static constexpr const char* kSource = R"(namespace sample {
static inline __attribute__((always_inline)) void inner(int) {
  asm volatile("nop; nop; nop; nop");
}
struct Shape {
  inline __attribute__((always_inline)) void middle() { inner(1); }
};
__attribute__((noinline)) void outer(Shape& shape) {
  asm volatile("nop; nop");
  shape.middle();
  asm volatile("nop; nop");
}
}
extern "C" __attribute__((visibility("default"))) void exported(sample::Shape& shape) {
  sample::outer(shape);
  asm volatile("nop");
}
)";

  // `options` go to the compiler: which DWARF, which build id.
  explicit SampleLibrary(const std::string& options = "-gdwarf-5") {
    std::ofstream(folder_ / "sample.cpp") << kSource;
    run("c++ -O2 -fPIC -shared -fvisibility=hidden -Wl,--build-id " + options +
        " -o full.so sample.cpp");
    run("objcopy --only-keep-debug full.so full.debug");
    run("strip --strip-all -o stripped.so full.so");
    remember_functions();
  }

  const std::filesystem::path& folder() const { return folder_.path(); }
  // As compiled; with nothing but exported names; what was stripped from that.
  std::string full() const { return read("full.so"); }
  std::string stripped() const { return read("stripped.so"); }
  std::string debug() const { return read("full.debug"); }
  std::string source_path() const { return folder_ / "sample.cpp"; }

  // The stripped library that says its debug file's name, "full.debug", and checksum.
  std::string linked() {
    run("objcopy --add-gnu-debuglink=full.debug stripped.so linked.so");
    return read("linked.so");
  }

  // The stripped library with the names of local functions in mini debug info.
  std::string with_mini_debug() {
    run("objcopy --strip-debug full.debug mini.debug");
    std::ofstream(folder_ / "mini.xz", std::ios::binary) << compress(read("mini.debug"));
    run("objcopy --add-section .gnu_debugdata=mini.xz stripped.so mini.so");
    return read("mini.so");
  }

  // Hexadecimal.
  std::string build_id() {
    run("readelf -n full.so | sed -n 's/.*Build ID: //p' > id");
    std::string id = read("id");
    return id.substr(0, id.find('\n'));
  }
  // "/usr/lib/debug/.build-id/ab/cdef.debug"
  std::string build_id_path() {
    const std::string id = build_id();
    return "/usr/lib/debug/.build-id/" + id.substr(0, 2) + "/" + id.substr(2) + ".debug";
  }

  // sample::outer, and `exported`, which calls it; offsets are those of the file.
  const FunctionSymbol& outer() const { return functions_[0]; }
  const FunctionSymbol& exported() const { return functions_[1]; }

  // In the library's folder; throws when it fails.
  void run(const std::string& command) const {
    const std::string line = "cd " + folder_.path().string() + " && " + command;
    if (std::system(line.c_str()) != 0) throw std::runtime_error(command);
  }
  std::string read(const std::string& name) const { return read_file(folder_ / name); }

  static std::string compress(const std::string& bytes) {
    std::string compressed(lzma_stream_buffer_bound(bytes.size()), '\0');
    size_t length = 0;
    if (lzma_easy_buffer_encode(6, LZMA_CHECK_CRC32, nullptr,
                                reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                reinterpret_cast<uint8_t*>(compressed.data()), &length,
                                compressed.size()) != LZMA_OK) {
      throw std::runtime_error("xz");
    }
    compressed.resize(length);
    return compressed;
  }

 private:
  void remember_functions() {
    const Fd file(::open((folder_ / "full.so").c_str(), O_RDONLY | O_CLOEXEC));
    const auto symbols = ElfSymbols::load(file.get(), ElfSymbols::Tables::kBoth);
    for (const char* name : {"_ZN6sample5outerERNS_5ShapeE", "exported"}) {
      functions_.push_back(symbols->find_function(name).value());
    }
  }

  gpuperf::TempFolder folder_;
  std::vector<FunctionSymbol> functions_;
};

}  // namespace gpuperf
