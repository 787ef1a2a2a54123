// What forbids attaching, by texts of /proc as they are on other hosts.

#include "daemon/attach/target.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/files.h"

namespace gpuperf {
namespace {

constexpr uint32_t kPid = 71;
constexpr const char* kGlibc =
    "7f01000-7f02000 r-xp 00000000 08:01 5 /lib/x86_64-linux-gnu/libc.so.6\n";
constexpr const char* kCuda =
    "7f03000-7f04000 r-xp 00000000 08:01 6 /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n";

class AttachRefusalByProcTest : public testing::Test {
 protected:
  AttachRefusalByProcTest() { std::filesystem::create_directory(folder_ / "71"); }

  // Of a process that may be attached to but for what the texts say.
  Refused refuse(const std::string& more_status, const std::string& maps) {
    std::ofstream(folder_ / "71/status")
        << "Name:\tpython\nState:\tS (sleeping)\nTgid:\t71\nPid:\t71\n"
        << more_status;
    std::ofstream(folder_ / "71/maps") << maps;
    const ProcFiles files(folder_.path().string());
    const auto target = read_attach_target(files, kPid);
    EXPECT_TRUE(target.ok()) << target.status();
    return target.ok() ? find_refusal(files, *target) : Refused{};
  }
  void expect(AttachRefusal why, const std::string& more_status, const std::string& maps) {
    const Refused refused = refuse(more_status, maps);
    EXPECT_EQ(get_refusal_name(refused.why), get_refusal_name(why));
    EXPECT_EQ(refused.text.empty(), why == AttachRefusal::kNone);
  }

  TempFolder folder_;
};

TEST_F(AttachRefusalByProcTest, RefusesThreadsWithShadowStacks) {
  const std::string maps = std::string(kGlibc) + kCuda;

  expect(AttachRefusal::kNone, "", maps);
  expect(AttachRefusal::kNone, "x86_Thread_features:\t\n", maps);
  expect(AttachRefusal::kNone, "x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk \n",
         maps);
  expect(AttachRefusal::kShadowStack, "x86_Thread_features:\tshstk wrss \n", maps);
}

TEST_F(AttachRefusalByProcTest, TellsTheCLibrariesApart) {
  const auto map_of = [](const std::string& path) {
    return "7f05000-7f06000 r-xp 00000000 08:01 7 " + path + "\n";
  };

  expect(AttachRefusal::kNone, "", map_of("/lib/x86_64-linux-gnu/libc-2.31.so") + kCuda);
  expect(AttachRefusal::kMusl, "", map_of("/lib/ld-musl-x86_64.so.1") + kCuda);            // Alpine
  expect(AttachRefusal::kMusl, "", map_of("/usr/lib/x86_64-linux-musl/libc.so") + kCuda);  // Debian
  expect(AttachRefusal::kStatic, "", map_of("/usr/bin/program") + kCuda);
  expect(AttachRefusal::kNoCuda, "", kGlibc);
}

TEST_F(AttachRefusalByProcTest, RefusesProgramsOfOtherArchitectures) {
  // The ELF header of a 64-bit ARM program.
  std::string program(64, '\0');
  std::ifstream("/proc/self/exe", std::ios::binary).read(program.data(), 64);
  program[18] = static_cast<char>(183);
  std::ofstream(folder_ / "71/exe", std::ios::binary) << program;

  expect(AttachRefusal::kArchitecture, "", std::string(kGlibc) + kCuda);
}

TEST_F(AttachRefusalByProcTest, SaysWhoTraces) {
  EXPECT_EQ(refuse("TracerPid:\t4242\n", std::string(kGlibc) + kCuda).text,
            "another program traces it: pid 4242");
}

TEST_F(AttachRefusalByProcTest, RefusesWhatHasEndedAndKernelThreads) {
  expect(AttachRefusal::kNoCuda, "", "");
  std::filesystem::remove_all(folder_ / "71");

  EXPECT_TRUE(
      absl::IsNotFound(read_attach_target(ProcFiles(folder_.path().string()), kPid).status()));
}

TEST(AttachRefusalTest, EachHasANameAndSaysWhatToDo) {
  for (size_t i = 1; i < kAttachRefusals; ++i) {
    EXPECT_NE(get_refusal_name(static_cast<AttachRefusal>(i)), "");
    EXPECT_NE(get_refusal_hint(static_cast<AttachRefusal>(i)), "");
  }
}

}  // namespace
}  // namespace gpuperf
