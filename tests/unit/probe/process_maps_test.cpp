#include "daemon/probe/discovery/process_maps.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit/matchers.h"
#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

MapEntry make_entry(const std::string& path, uint64_t inode = 1234) {
  return {.start_address = 0x7f01,
          .end_address = 0x7f02,
          .offset_bytes = 0x2000,
          .file = {.device = makedev(0xfe, 1), .inode = inode},
          .path = path};
}

std::string make_line(const std::string& shown) {
  return "7f01-7f02 r-xp 00002000 fe:01 1234                 " + shown + "\n";
}

TEST(ProcessMapsTest, TakesTheExecutableMappingsOfAProcess) {
  const char* text =
      "5574186ba000-5574186bc000 r--p 00000000 fe:00 247498                     /usr/bin/head\n"
      "5574186bc000-5574186c2000 r-xp 00002000 fe:00 247498                     /usr/bin/head\n"
      "55743271b000-55743273c000 rw-p 00000000 00:00 0                          [heap]\n"
      "7f3564076000-7f3564083000 rwxp 00000000 00:00 0 \n"
      "7f3564097000-7f3564099000 r-xp 00000000 00:00 0                          [vdso]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

  EXPECT_THAT(parse_executable_maps(text),
              ElementsAre(MapEntry{.start_address = 0x5574186bc000,
                                   .end_address = 0x5574186c2000,
                                   .offset_bytes = 0x2000,
                                   .file = {.device = makedev(0xfe, 0), .inode = 247498},
                                   .path = "/usr/bin/head"},
                          MapEntry{.start_address = 0x7f3564076000, .end_address = 0x7f3564083000},
                          MapEntry{.start_address = 0x7f3564097000,
                                   .end_address = 0x7f3564099000,
                                   .path = "[vdso]"},
                          MapEntry{.start_address = 0xffffffffff600000,
                                   .end_address = 0xffffffffff601000,
                                   .path = "[vsyscall]"}));
}

TEST(ProcessMapsTest, KeepsNamesWithSpacesColonsAndLinesInThem) {
  EXPECT_THAT(parse_executable_maps(make_line("/a b/c  d ")),
              ElementsAre(make_entry("/a b/c  d ")));
  EXPECT_THAT(parse_executable_maps(make_line("/x\\0127f03-7f04 r-xp 0 0:0 1 /y")),
              ElementsAre(make_entry("/x\n7f03-7f04 r-xp 0 0:0 1 /y")));
  EXPECT_THAT(parse_executable_maps(make_line("/a\\b\\0124")), ElementsAre(make_entry("/a\\b\n4")));
  EXPECT_THAT(parse_executable_maps(make_line("/\xff\xfe\x01")),
              ElementsAre(make_entry("/\xff\xfe\x01")));
}

TEST(ProcessMapsTest, MarksDeletedFiles) {
  MapEntry deleted = make_entry("/tmp/lib (1).so");
  deleted.deleted = true;

  EXPECT_THAT(parse_executable_maps(make_line("/tmp/lib (1).so (deleted)")), ElementsAre(deleted));
  EXPECT_THAT(parse_executable_maps(make_line("/tmp/(deleted)")),
              ElementsAre(make_entry("/tmp/(deleted)")));
}

TEST(ProcessMapsTest, TakesTheLastLineWithoutItsEnd) {
  std::string line = make_line("/a");
  line.pop_back();

  EXPECT_THAT(parse_executable_maps(line), ElementsAre(make_entry("/a")));
}

TEST(ProcessMapsTest, SkipsWhatIsNoMapping) {
  for (const char* text :
       {"", "\n\n", "garbage\n", "7f01-7f02\n", "7f01-7f02 r-xp\n", "7f01-7f02 r-xp 0\n",
        "7f01-7f02 r-xp 0 fe\n", "7f01-7f02 r-xp 0 fe:01\n", "7f01-7f02 r-xp 0 fe:01 x\n",
        "7f02-7f01 r-xp 0 fe:01 1 /a\n", "7f01-7f01 r-xp 0 fe:01 1 /a\n",
        "-7f02 r-xp 0 fe:01 1 /a\n", "7f01 7f02 r-xp 0 fe:01 1 /a\n",
        "10000000000000000-10000000000000001 r-xp 0 fe:01 1 /a\n",
        "7f01-7f02 r-xp 0 100000000:01 1 /a\n",
        "7f01-7f02 r-xp 0 fe:01 99999999999999999999 /a\n"}) {
    EXPECT_THAT(parse_executable_maps(text), IsEmpty()) << text;
  }
}

TEST(ProcessMapsTest, ReadsItsOwnMappingsFromTheRealProc) {
  const ProcessMaps maps = read_executable_maps("/proc", static_cast<uint32_t>(::getpid())).value();

  const auto here = reinterpret_cast<uint64_t>(&parse_executable_maps);
  const auto own = std::ranges::find_if(maps.entries, [here](const MapEntry& entry) {
    return entry.start_address <= here && here < entry.end_address;
  });
  ASSERT_NE(own, maps.entries.end());
  EXPECT_EQ(own->path, std::filesystem::read_symlink("/proc/self/exe").string());
  EXPECT_FALSE(maps.truncated);
}

TEST(ProcessMapsTest, SaysThatAProcessIsGone) {
  const FakeProc fake;

  EXPECT_EQ(read_executable_maps(fake.proc(), 7).status().code(), absl::StatusCode::kNotFound);
}

TEST(ProcessMapsTest, ReadsNoMoreThanTheBound) {
  FakeProc fake;
  fake.add_process(7, "/bin/a");
  fake.write(7, "maps", make_line("/a"));
  std::filesystem::resize_file(fake.directory(7) / "maps", kMaxMapsBytes + 1);

  const ProcessMaps maps = read_executable_maps(fake.proc(), 7).value();

  EXPECT_TRUE(maps.truncated);
  EXPECT_THAT(maps.entries, ElementsAre(make_entry("/a")));
}

TEST(ParseMapsTest, HasAllMappingsAndSkipsLinesThatAreNone) {
  const auto maps = parse_maps(
      "\n"
      "garbage\n"
      "2000-1000 r-xp 00000000 00:00 0 \n"
      "1000-2000 r-xp 00000000 08:01 12 /a b (deleted)\n"
      "3000-4000 rw-s 00001000 08:01 12");

  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0].path, "/a b");
  EXPECT_TRUE(maps[0].deleted && maps[0].can_execute && !maps[0].is_shared);
  EXPECT_EQ(maps[1].offset_bytes, 0x1000u);
  EXPECT_TRUE(maps[1].is_shared && maps[1].can_write && maps[1].path.empty());
}

}  // namespace
}  // namespace gpuperf
