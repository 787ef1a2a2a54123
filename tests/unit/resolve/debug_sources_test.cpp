// Where names, lines and inlined functions come from: one test for each place.

#include <unistd.h>

#include <algorithm>

#include "daemon/resolve/frame_finder.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/fake_proc.h"
#include "tests/unit/resolve/print_frames.h"
#include "tests/unit/resolve/sample_library.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::Field;

constexpr uint64_t kMappedBytes = 0x100000;
const std::string kPath = "/opt/lib/sample.so";

class DebugSourcesTest : public testing::Test {
 protected:
  DebugSourcesTest() { add_process(7); }

  void add_process(uint32_t pid) {
    fake_.add_process(pid, "/app");
    host_root_ = fake_.root(1'000).string();  // of no process
  }
  void map(const std::string& library, uint32_t pid = 7) {
    fake_.map(pid, fake_.add_file(pid, kPath, library), kPath, kBase, kMappedBytes);
  }
  FrameFinder make_finder() {
    return FrameFinder({.proc = fake_.proc(), .host_root = host_root_}, clock_);
  }
  // The frames of every byte of a function.
  std::vector<FrameGroup> list_groups(FrameFinder& finder, const FunctionSymbol& function,
                                      uint32_t pid = 7) {
    std::vector<CodeAddress> addresses;
    for (uint64_t i = 0; i < function.size_bytes; ++i) {
      addresses.push_back({kBase + function.file_offset_bytes + i, true});
    }
    return finder.find_frames({.pid = pid, .start_boot_ns = 10'000'000}, addresses);
  }
  std::vector<FrameGroup> list_groups() {
    FrameFinder finder = make_finder();
    return list_groups(finder, sample_.outer());
  }

  // Of the code of `inner`, which is inlined twice over: as long as there is any.
  FrameGroup get_inlined_group(std::vector<FrameGroup> groups) {
    const auto longest =
        std::ranges::max_element(groups, {}, [](const FrameGroup& group) { return group.size(); });
    FrameGroup group = *longest;
    for (StackFrame& frame : group) frame.address = 0;
    group.back().offset_bytes = 0;
    return group;
  }
  FrameGroup get_expected_group() {
    const std::string source = sample_.source_path();
    const auto make = [&](const char* symbol, uint32_t line, bool is_inlined) {
      return StackFrame{.symbol = symbol,
                        .module = kPath,
                        .file = source,
                        .line = line,
                        .is_inlined = is_inlined};
    };
    return {make("sample::inner", SampleLibrary::kInnerLine, true),
            make("sample::Shape::middle()", SampleLibrary::kMiddleLine, true),
            make("sample::outer(sample::Shape&)", SampleLibrary::kOuterLine, false)};
  }
  // A local function that only the symbol table of debug files names.
  static auto is_named_without_source() {
    return Each(testing::ElementsAre(
        testing::AllOf(Field(&StackFrame::symbol, "sample::outer(sample::Shape&)"),
                       Field(&StackFrame::line, 0u))));
  }
  static auto is_unnamed() {
    return Each(testing::ElementsAre(
        testing::AllOf(Field(&StackFrame::symbol, ""), Field(&StackFrame::module, kPath))));
  }

  FakeProc fake_;
  FakeClock clock_;
  SampleLibrary sample_;
  std::string host_root_;
};

TEST_F(DebugSourcesTest, ListsInlinedFunctionsFromTheFileItself) {
  map(sample_.full());

  EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
}

TEST_F(DebugSourcesTest, LooksReturnAddressesUpInTheCall) {
  map(sample_.full());
  FrameFinder finder = make_finder();
  const FunctionSymbol& exported = sample_.exported();
  const auto find = [&](uint64_t offset, bool is_exact) {
    const CodeAddress code{kBase + exported.file_offset_bytes + offset, is_exact};
    return finder.find_frames({.pid = 7, .start_boot_ns = 10'000'000}, {&code, 1}).at(0).at(0);
  };

  // One byte behind the function is its last instruction's return address, and another's code.
  EXPECT_EQ(find(exported.size_bytes, false).symbol, "exported");
  EXPECT_EQ(find(exported.size_bytes, false).offset_bytes, exported.size_bytes);
  EXPECT_NE(find(exported.size_bytes, true).symbol, "exported");
  EXPECT_EQ(find(0, true).symbol, "exported");
  EXPECT_NE(find(0, false).symbol, "exported");
}

TEST_F(DebugSourcesTest, HasNamesOnlyOfWhatIsExportedWhereAllIsStripped) {
  map(sample_.stripped());
  FrameFinder finder = make_finder();

  EXPECT_THAT(list_groups(finder, sample_.outer()), is_unnamed());
  EXPECT_EQ(list_groups(finder, sample_.exported()).at(0).at(0).symbol, "exported");
}

TEST_F(DebugSourcesTest, TakesTheDebugFileOfTheBuildIdAsTheProcessSeesIt) {
  map(sample_.stripped());
  fake_.add_file(7, sample_.build_id_path(), sample_.debug());

  EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
}

TEST_F(DebugSourcesTest, TakesTheDebugFileOfTheBuildIdFromTheDaemonsOwnRoot) {
  map(sample_.stripped());
  fake_.add_file(1'000, sample_.build_id_path(), sample_.debug());

  EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
}

TEST_F(DebugSourcesTest, TakesTheDebugFileTheLibraryNamesFromEveryPlace) {
  for (const char* folder : {"/opt/lib/", "/opt/lib/.debug/", "/usr/lib/debug/opt/lib/"}) {
    SCOPED_TRACE(folder);
    fake_.write(7, "maps", "");
    map(sample_.linked());
    const fs::path file = fake_.add_file(7, folder + std::string("full.debug"), sample_.debug());

    EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
    fs::remove(file);
  }
}

TEST_F(DebugSourcesTest, TakesADebugFileByItsChecksumWhereThereIsNoBuildId) {
  sample_.run(
      "for f in full.so full.debug stripped.so; do "
      "objcopy --remove-section .note.gnu.build-id $f; done");
  map(sample_.linked());
  fake_.add_file(7, "/opt/lib/full.debug", sample_.debug());

  EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
}

TEST_F(DebugSourcesTest, RefusesADebugFileOfAnotherChecksum) {
  map(sample_.linked());
  // Behind all sections: still readable, and of the same build id.
  fake_.add_file(7, "/opt/lib/full.debug", sample_.debug() + "x");

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, RefusesADebugFileOfAnotherBuildId) {
  map(sample_.stripped());
  const SampleLibrary other("-gdwarf-4");
  fake_.add_file(7, sample_.build_id_path(), other.debug());

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, RefusesADebugFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives a file to another user: needs root";
  map(sample_.stripped());
  const fs::path file = fake_.add_file(7, sample_.build_id_path(), sample_.debug());
  ASSERT_EQ(::chown(file.c_str(), 12'345, 12'345), 0);

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, RefusesADebugFileThatTheProcessesUserMayNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "keeps a file from another user: needs root";
  map(sample_.stripped());
  fake_.write_status(7, 12'345);
  fs::permissions(fake_.root(7), fs::perms(0755));
  const fs::path file = fake_.add_file(7, sample_.build_id_path(), sample_.debug());
  fs::permissions(file, fs::perms(0600));

  EXPECT_THAT(list_groups(), is_unnamed());

  fs::permissions(file, fs::perms(0644));
  EXPECT_EQ(get_inlined_group(list_groups()), get_expected_group());
}

TEST_F(DebugSourcesTest, RefusesADebugFileBeyondTheProcessesRoot) {
  map(sample_.stripped());
  const fs::path link = fake_.root(7) / sample_.build_id_path().substr(1);
  fs::create_directories(link.parent_path());
  // Resolved in the process's root, where nothing is.
  fs::create_symlink(sample_.folder() / "full.debug", link);

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, ExpandsMiniDebugInfo) {
  map(sample_.with_mini_debug());

  EXPECT_THAT(list_groups(), is_named_without_source());
}

TEST_F(DebugSourcesTest, ManagesWithDamagedMiniDebugInfo) {
  std::string library = sample_.with_mini_debug();
  library[library.find("\xFD"
                       "7zXZ") +
          20] ^= 1;
  map(library);

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, RefusesMiniDebugInfoThatExpandsBeyondReason) {
  std::ofstream(sample_.folder() / "bomb.xz", std::ios::binary)
      << SampleLibrary::compress(std::string(size_t{100} << 20, '\0'));
  sample_.run("objcopy --add-section .gnu_debugdata=bomb.xz stripped.so bomb.so");
  map(sample_.read("bomb.so"));

  EXPECT_THAT(list_groups(), is_unnamed());
}

TEST_F(DebugSourcesTest, ReadsDwarf4AndCompressedSections) {
  for (const char* options : {"-gdwarf-4", "-gdwarf-5 -gz=zlib", "-gdwarf-5 -gno-column-info"}) {
    SCOPED_TRACE(options);
    const SampleLibrary other(options);
    fake_.write(7, "maps", "");
    map(other.full());
    FrameFinder finder = make_finder();

    FrameGroup expected = get_expected_group();
    for (StackFrame& frame : expected) frame.file = other.source_path();
    EXPECT_EQ(get_inlined_group(list_groups(finder, other.outer())), expected);
  }
}

TEST_F(DebugSourcesTest, SharesWhatItReadAmongCopiesOfABuildId) {
  add_process(8);
  map(sample_.stripped(), 7);
  map(sample_.stripped(), 8);
  // In the first process's container only.
  fake_.add_file(7, sample_.build_id_path(), sample_.debug());
  FrameFinder finder = make_finder();
  (void)list_groups(finder, sample_.outer(), 7);
  const size_t kept_bytes = finder.kept_bytes();

  const std::vector<FrameGroup> groups = list_groups(finder, sample_.outer(), 8);

  EXPECT_EQ(get_inlined_group(groups), get_expected_group());
  EXPECT_EQ(finder.kept_bytes(), kept_bytes);
}

TEST_F(DebugSourcesTest, DoesNotShareWhatAnotherUsersCopySays) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives a file to another user: needs root";
  add_process(8);
  map(sample_.stripped(), 7);
  map(sample_.stripped(), 8);
  const fs::path library = fake_.root(7) / kPath.substr(1);
  const fs::path debug = fake_.add_file(7, sample_.build_id_path(), sample_.debug());
  for (const fs::path& path : {library, debug}) {
    ASSERT_EQ(::chown(path.c_str(), 12'345, 12'345), 0);
  }
  FrameFinder finder = make_finder();

  EXPECT_EQ(get_inlined_group(list_groups(finder, sample_.outer(), 7)), get_expected_group());
  EXPECT_THAT(list_groups(finder, sample_.outer(), 8), is_unnamed());
}

TEST_F(DebugSourcesTest, KeepsWhatItFoundWhenTheFilesAreGone) {
  map(sample_.full());
  FrameFinder finder = make_finder();
  const std::vector<FrameGroup> before = list_groups(finder, sample_.outer());
  fs::remove_all(fake_.root(7));

  EXPECT_EQ(list_groups(finder, sample_.outer()), before);
}

}  // namespace
}  // namespace gpuperf
