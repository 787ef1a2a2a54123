#include "daemon/resolve/kernel_symbols.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string>

#include "tests/unit/files.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

constexpr uint64_t kText = 0xffffffff81000000;
constexpr uint64_t kModule = 0xffffffffc0001000;
constexpr int64_t kNow = 1'000'000'000;
constexpr int64_t kMinuteNs = 60'000'000'000;

StackFrame make_frame(const std::string& symbol, const std::string& module, uint64_t offset_bytes,
                      uint64_t address) {
  return {.symbol = symbol,
          .module = module,
          .offset_bytes = offset_bytes,
          .address = address,
          .kind = StackFrameKind::kKernel};
}

StackFrame make_unknown(uint64_t address) { return make_frame("", "", 0, address); }

class KernelSymbolsTest : public testing::Test {
 protected:
  std::string get_path() const { return folder_ / "kallsyms"; }
  void write(const std::string& lines) { std::ofstream(get_path()) << lines; }
  StackFrame find(uint64_t address, int64_t now_mono_ns = kNow) {
    return find_all({address}, now_mono_ns).at(0);
  }
  std::vector<StackFrame> find_all(const std::vector<uint64_t>& addresses,
                                   int64_t now_mono_ns = kNow) {
    return symbols_.find_frames(to_return_addresses(addresses), now_mono_ns);
  }

  const TempFolder folder_;
  KernelSymbols symbols_{get_path()};
};

TEST_F(KernelSymbolsTest, NamesFunctionsOfTheKernelAndOfModules) {
  write(
      "ffffffff81000000 T startup\n"
      "ffffffff81000100 t do_wait\n"
      "ffffffffc0001000 t nv_open\t[nvidia]\n"
      "ffffffffc0001200 T nv_close\t[nvidia]\n"
      "ffffffffc0009000 t uvm_ioctl\t[nvidia_uvm]\n");

  EXPECT_THAT(find_all({kText + 0x105, kModule + 0x10, kModule + 0x8042}),
              ElementsAre(make_frame("do_wait", "[kernel]", 5, kText + 0x105),
                          make_frame("nv_open", "[nvidia]", 0x10, kModule + 0x10),
                          make_frame("uvm_ioctl", "[nvidia_uvm]", 0x42, kModule + 0x8042)));
}

TEST_F(KernelSymbolsTest, NamesReturnAddressesByTheCallBeforeThem) {
  write(
      "ffffffff81000000 T never_returns\n"
      "ffffffff81000100 T next\n");

  EXPECT_EQ(find(kText + 0x100), make_frame("never_returns", "[kernel]", 0x100, kText + 0x100));
  EXPECT_EQ(find(kText + 0x101), make_frame("next", "[kernel]", 1, kText + 0x101));
}

TEST_F(KernelSymbolsTest, NamesExactAddressesByTheCodeAtThem) {
  write(
      "ffffffff81000000 T never_returns\n"
      "ffffffff81000100 T next\n");
  const std::vector<CodeAddress> interrupted = {{kText + 0x100, true}};

  EXPECT_THAT(symbols_.find_frames(interrupted, kNow),
              ElementsAre(make_frame("next", "[kernel]", 0, kText + 0x100)));
}

TEST_F(KernelSymbolsTest, SortsWhatTheFileHasInAnyOrder) {
  write(
      "ffffffffc0001000 t module_function\t[m]\n"
      "ffffffff81000100 T second\n"
      "ffffffff81000000 T first\n");

  EXPECT_EQ(find(kText + 0x10).symbol, "first");
  EXPECT_EQ(find(kText + 0x110).symbol, "second");
  EXPECT_EQ(find(kModule + 0x10).symbol, "module_function");
}

TEST_F(KernelSymbolsTest, TakesCodeOnly) {
  write(
      "ffffffff81000000 T function\n"
      "ffffffff81000010 D data\n"
      "ffffffff81000020 b bss\n"
      "ffffffff81000030 R constant\n"
      "ffffffff81000040 A absolute\n"
      "ffffffff81000080 W weak_function\n");

  EXPECT_EQ(find(kText + 0x50), make_frame("function", "[kernel]", 0x50, kText + 0x50));
  EXPECT_EQ(find(kText + 0x90).symbol, "weak_function");
}

TEST_F(KernelSymbolsTest, GivesAddressesAloneWhereTheKernelHidesItsOwn) {
  write(
      "0000000000000000 T startup\n"
      "0000000000000000 t nv_open\t[nvidia]\n");

  EXPECT_THAT(find_all({kText + 1, 1, 0x10}),
              ElementsAre(make_unknown(kText + 1), make_unknown(1), make_unknown(0x10)));
}

TEST_F(KernelSymbolsTest, NamesAFunctionOfSeveralNamesByOneOfThem) {
  write(
      "ffffffff81000000 T before\n"
      "ffffffff81000100 T __do_sys_read\n"
      "ffffffff81000100 T __se_sys_read\n"
      "ffffffff81000200 T after\n");

  EXPECT_EQ(find(kText + 0x110), make_frame("__se_sys_read", "[kernel]", 0x10, kText + 0x110));
}

TEST_F(KernelSymbolsTest, SkipsLinesThatAreNone) {
  write(
      "\n"
      "garbage\n"
      "ffffffff81000010\n"
      "ffffffff81000020 \n"
      "ffffffff81000030 T\n"
      "ffffffff81000040 T \n"
      "ffffffff81000050 T \t[m]\n"
      "ffffffffffffffff81000060 T too_long\n"
      "0xffffffff81000070 T prefixed\n"
      "ffffffff81000080 T " +
      std::string(70'000, 'x') +
      "\n"
      "ffffffff81000000 T function\n"
      "ffffffff810000f0 T unfinished_line");

  EXPECT_EQ(find(kText + 0x90), make_frame("function", "[kernel]", 0x90, kText + 0x90));
  EXPECT_EQ(find(kText + 0xf8).symbol, "unfinished_line");
}

TEST_F(KernelSymbolsTest, GivesAddressesOutsideEveryFunctionAlone) {
  constexpr uint64_t kLargest = 1 << 17;  // of a function
  write("ffffffff81000000 T only\n");

  EXPECT_THAT(
      find_all({0, 1, kText - 1, kText, kText + kLargest + 1, UINT64_MAX}),
      ElementsAre(make_unknown(0), make_unknown(1), make_unknown(kText - 1), make_unknown(kText),
                  make_unknown(kText + kLargest + 1), make_unknown(UINT64_MAX)));
  EXPECT_EQ(find(kText + kLargest).symbol, "only");
}

TEST_F(KernelSymbolsTest, ReadsTheFileWhenFirstAskedAndNotAgainForWhatItKnows) {
  write("ffffffff81000000 T before\n");
  ASSERT_EQ(find(kText + 1).symbol, "before");
  write("ffffffff81000000 T after\n");

  EXPECT_EQ(find(kText + 1, kNow + 100 * kMinuteNs).symbol, "before");
}

TEST_F(KernelSymbolsTest, ReadsTheFileAgainForAnAddressItDoesNotKnowOnceAMinute) {
  write("ffffffff81000000 T startup\n");
  ASSERT_EQ(find(kText + 1).symbol, "startup");
  write(
      "ffffffff81000000 T startup\n"
      "ffffffffc0001000 t nv_open\t[nvidia]\n");

  EXPECT_EQ(find(kModule + 1, kNow + kMinuteNs - 1), make_unknown(kModule + 1));
  EXPECT_EQ(find(kModule + 1, kNow + kMinuteNs), make_frame("nv_open", "[nvidia]", 1, kModule + 1));
}

TEST_F(KernelSymbolsTest, WaitsAMinuteFromTheLastReading) {
  write("ffffffff81000000 T startup\n");
  (void)find(kText + 1);
  (void)find(kModule + 1, kNow + kMinuteNs);
  write("ffffffffc0001000 t nv_open\t[nvidia]\n");

  EXPECT_EQ(find(kModule + 1, kNow + 2 * kMinuteNs - 1).symbol, "");
  EXPECT_EQ(find(kModule + 1, kNow + 2 * kMinuteNs).symbol, "nv_open");
}

TEST_F(KernelSymbolsTest, ForgetsModulesThatAreGone) {
  write("ffffffffc0001000 t nv_open\t[nvidia]\n");
  ASSERT_EQ(find(kModule + 1).module, "[nvidia]");
  write("ffffffff81000000 T startup\n");

  (void)find(kText + 1, kNow + kMinuteNs);

  EXPECT_EQ(find(kModule + 1, kNow + kMinuteNs), make_unknown(kModule + 1));
}

TEST_F(KernelSymbolsTest, ManagesWithoutAFile) {
  EXPECT_EQ(find(kText + 1), make_unknown(kText + 1));
}

TEST_F(KernelSymbolsTest, HasNoFramesForNoAddresses) {
  write("ffffffff81000000 T startup\n");

  EXPECT_THAT(find_all({}), IsEmpty());
}

// The address of a function of the running kernel; 0 = it is hidden.
uint64_t read_kernel_address(const std::string& function) {
  std::ifstream kallsyms("/proc/kallsyms");
  for (std::string line; std::getline(kallsyms, line);) {
    if (!line.ends_with(" " + function)) continue;
    uint64_t address = 0;
    std::from_chars(line.data(), line.data() + line.size(), address, 16);
    return address;
  }
  return 0;
}

TEST(RunningKernelTest, HasItsFunctionsNamed) {
  const uint64_t address = read_kernel_address("schedule");
  if (address == 0) GTEST_SKIP() << "/proc/kallsyms hides its addresses: needs root";
  KernelSymbols symbols;

  EXPECT_THAT(symbols.find_frames(to_return_addresses({address + 1}), kNow),
              ElementsAre(make_frame("schedule", "[kernel]", 1, address + 1)));
}

}  // namespace
}  // namespace gpuperf
