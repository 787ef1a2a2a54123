#include "daemon/unwind/python_runtime.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/probe/elf_builder.h"
#include "tests/unit/unwind/fake_memory.h"
#include "tests/unit/unwind/python_offsets.h"

namespace gpuperf {
namespace {

using elf_builder::append_section;
using elf_builder::ElfImage;
using elf_builder::make_file;
using elf_builder::make_library;
using elf_builder::Symbol;

constexpr uint64_t kRuntimeVaddr = 0x600000;
constexpr uint64_t kVersionVaddr = 0x500000;
constexpr uint64_t kEvalVaddr = 0x401100;
constexpr uint64_t kBias = 0x7f0000000000;

const Symbol kRuntime{.name = "_PyRuntime", .vaddr = kRuntimeVaddr, .type = STT_OBJECT};
const Symbol kVersion{.name = "Py_Version", .vaddr = kVersionVaddr, .type = STT_OBJECT};
const Symbol kEval{.name = "_PyEval_EvalFrameDefault", .vaddr = kEvalVaddr, .size_bytes = 0x200};

Result<std::optional<PythonFile>> find_in(const std::string& bytes) {
  const Fd fd = make_file(bytes);
  return find_python(fd.get());
}

// One that exports nothing, with a section of the runtime; `type`: of its symbol table.
std::string make_hidden_python(const std::vector<Symbol>& symbols, Elf64_Word type = SHT_SYMTAB) {
  ElfImage image(symbols, type);
  image.header.e_shstrndx = 4;
  append_section(image, {.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_addr = kRuntimeVaddr}, "");
  return append_section(image, {.sh_type = SHT_STRTAB}, std::string("\0.PyRuntime\0", 12));
}

TEST(FindPythonTest, SaysThatALibraryHoldsNone) {
  EXPECT_EQ(find_in(make_library({kEval})).value(), std::nullopt);
  EXPECT_EQ(find_in(ElfImage({}).build()).value(), std::nullopt);
}

TEST(FindPythonTest, DoesNotTakeAnExtensionModuleForOne) {
  Symbol used = kRuntime;
  used.section = SHN_UNDEF;

  EXPECT_EQ(find_in(make_library({used})).value(), std::nullopt);
}

TEST(FindPythonTest, FindsOneThatExportsItsVersion) {
  EXPECT_EQ(find_in(make_library({kRuntime, kVersion, kEval})).value(),
            (PythonFile{.runtime_vaddr = kRuntimeVaddr,
                        .version_vaddr = kVersionVaddr,
                        .eval_vaddr = kEvalVaddr,
                        .eval_size_bytes = 0x200}));
}

TEST(FindPythonTest, KnowsOlderVersionsByWhatCameWithThem) {
  std::vector<Symbol> symbols{kRuntime, kEval};
  EXPECT_TRUE(absl::IsUnimplemented(find_in(make_library(symbols)).status()));
  symbols.push_back({.name = "PyCode_NewWithPosOnlyArgs", .vaddr = 0x401000});
  EXPECT_EQ((*find_in(make_library(symbols)))->version, 0x0308);
  symbols.push_back({.name = "PyObject_CallNoArgs", .vaddr = 0x401000});
  EXPECT_EQ((*find_in(make_library(symbols)))->version, 0x0309);
  symbols.push_back({.name = "PyModule_AddObjectRef", .vaddr = 0x401000});
  EXPECT_EQ((*find_in(make_library(symbols)))->version, 0x030a);
}

TEST(FindPythonTest, FindsOneThatExportsNothing) {
  EXPECT_EQ(find_in(make_hidden_python({kRuntime, kVersion, kEval})).value(),
            (PythonFile{.runtime_vaddr = kRuntimeVaddr,
                        .version_vaddr = kVersionVaddr,
                        .eval_vaddr = kEvalVaddr,
                        .eval_size_bytes = 0x200}));
  // Stripped.
  EXPECT_EQ(find_in(make_hidden_python({}, SHT_PROGBITS)).value(),
            PythonFile{.runtime_vaddr = kRuntimeVaddr});
}

class LoadPythonRuntimeTest : public testing::Test {
 protected:
  void put_version(uint64_t version_hex) { memory_.put(kVersionVaddr + kBias, version_hex); }
  Result<PythonRuntime> load() { return load_python_runtime(file_, kBias, memory_.reader()); }

  PythonFile file_{.runtime_vaddr = kRuntimeVaddr,
                   .version_vaddr = kVersionVaddr,
                   .eval_vaddr = kEvalVaddr,
                   .eval_size_bytes = 0x200};
  FakeMemory memory_;
};

TEST_F(LoadPythonRuntimeTest, TakesTheLayoutOfTheVersion) {
  put_version(0x030b02f0);

  const auto runtime = load();

  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ(runtime->address, kRuntimeVaddr + kBias);
  EXPECT_EQ(runtime->layout.version, 0x030b);
  EXPECT_EQ(runtime->eval_begin, kEvalVaddr + kBias);
  EXPECT_EQ(runtime->eval_end, kEvalVaddr + kBias + 0x200);
}

TEST_F(LoadPythonRuntimeTest, NeedsNoMemoryForAVersionThatTheFileTells) {
  file_.version_vaddr.reset();
  file_.version = 0x0309;

  EXPECT_EQ(load()->layout.version, 0x0309);
}

TEST_F(LoadPythonRuntimeTest, ReadsTheTableOfOneThatDescribesItself) {
  put_version(0x030d05f0);
  memory_.put(kRuntimeVaddr + kBias, make_python_313_offsets());
  EXPECT_EQ(load()->layout.version, 0x030d);

  file_.version_vaddr.reset();  // stripped
  EXPECT_EQ(load()->layout.version, 0x030d);
}

TEST_F(LoadPythonRuntimeTest, SaysWhatItDoesNotSupport) {
  put_version(0x030712f0);
  EXPECT_EQ(load().status(), absl::UnimplementedError("Python 3.7: supported since 3.8"));

  file_.version_vaddr.reset();
  memory_.put(kRuntimeVaddr + kBias, PythonDebugOffsets{});
  EXPECT_EQ(load().status(),
            absl::UnimplementedError("Python 3.11 or 3.12, stripped: its version is not known"));
}

TEST_F(LoadPythonRuntimeTest, RefusesWhatContradictsItself) {
  put_version(0x030e00f0);
  memory_.put(kRuntimeVaddr + kBias, make_python_313_offsets());
  EXPECT_TRUE(absl::IsDataLoss(load().status()));

  put_version(uint64_t{0x030b02f0} << 32);
  EXPECT_TRUE(absl::IsDataLoss(load().status()));
}

TEST_F(LoadPythonRuntimeTest, SaysWhatItCouldNotRead) {
  EXPECT_EQ(load().status(),
            absl::UnavailableError("Py_Version: the process's memory cannot be read; it has ended, "
                                   "or gpuperfd lacks CAP_SYS_PTRACE"));
  put_version(0x030d05f0);
  EXPECT_EQ(load().status(), absl::UnavailableError("read _PyRuntime"));
}

}  // namespace
}  // namespace gpuperf
