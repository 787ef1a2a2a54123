#include "daemon/resolve/python_names.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "daemon/unwind/python_layouts.h"
#include "tests/unit/unwind/fake_memory.h"

namespace gpuperf {
namespace {

constexpr uint64_t kPythonCode = 0x10000;
constexpr uint64_t kFilename = 0x20000;
constexpr uint64_t kName = 0x30000;
constexpr uint64_t kQualifiedName = 0x40000;
constexpr uint64_t kLines = 0x50000;
constexpr ProcessKey kPythonProcess{.pid = 7, .start_boot_ns = 70};
// The next line, for 8 units.
constexpr std::string_view kNextLine = "\xdf\x01\x02";

constexpr uint32_t kCompact = 1 << 5;
constexpr uint32_t kAscii = 1 << 6;
constexpr uint32_t make_kind(uint32_t letter_bytes) { return letter_bytes << 2; }

// A process with one code object, of 3.11.
class PythonNamesTest : public testing::Test {
 protected:
  PythonNamesTest() {
    put_text(kFilename, "/srv/model.py");
    put_text(kName, "forward");
    put_text(kQualifiedName, "Model.forward");
    put_lines(kNextLine);
    put_code(41);
  }

  void put_text(uint64_t address, std::string_view text) {
    memory_.put<uint64_t>(address + layout_.text_length, text.size());
    memory_.put<uint32_t>(address + layout_.text_state, make_kind(1) | kCompact | kAscii);
    memory_.put_bytes(address + layout_.text_ascii, text);
  }
  template <typename Letter>
  void put_wide_text(uint64_t address, std::basic_string_view<Letter> text) {
    memory_.put<uint64_t>(address + layout_.text_length, text.size());
    memory_.put<uint32_t>(address + layout_.text_state, make_kind(sizeof(Letter)) | kCompact);
    for (size_t i = 0; i < text.size(); ++i) {
      memory_.put(address + layout_.text_compact + i * sizeof(Letter), text[i]);
    }
  }
  void put_lines(std::string_view table) {
    memory_.put<uint64_t>(kLines + layout_.bytes_length, table.size());
    memory_.put_bytes(kLines + layout_.bytes_data, table);
  }
  void put_code(uint32_t first_line) {
    for (uint64_t at = 0; at < 256; ++at) memory_.put<char>(kPythonCode + at, 0);
    memory_.put(kPythonCode + layout_.code_first_line, first_line);
    memory_.put(kPythonCode + layout_.code_filename, kFilename);
    memory_.put(kPythonCode + layout_.code_name, kName);
    if (layout_.code_qualified_name != 0) {
      memory_.put(kPythonCode + layout_.code_qualified_name, kQualifiedName);
    }
    memory_.put(kPythonCode + layout_.code_lines, kLines);
  }
  std::optional<PythonFrameName> find() {
    return names_.find(kPythonProcess, layout_, frame_, memory_.reader());
  }

  gpuperf_python_layout layout_ = *find_python_layout(0x030b);
  FakeMemory memory_;
  PythonFrame frame_{.code = kPythonCode, .instruction_bytes = 4, .first_line = 41};
  PythonNames names_;
  const PythonFrameName expected_{.function = "Model.forward", .file = "/srv/model.py", .line = 42};
};

TEST_F(PythonNamesTest, NamesAFrame) { EXPECT_EQ(find(), expected_); }

TEST_F(PythonNamesTest, GivesTheBareNameBefore311) {
  layout_ = *find_python_layout(0x0309);
  put_text(kFilename, "/srv/model.py");
  put_text(kName, "forward");
  put_lines(std::string_view("\x04\x03", 2));
  put_code(41);

  EXPECT_EQ(find(), (PythonFrameName{"forward", "/srv/model.py", 44}));
}

TEST_F(PythonNamesTest, GivesTheFirstLineOfAFrameThatHasNotBegun) {
  frame_.instruction_bytes = static_cast<uint32_t>(-2);

  EXPECT_EQ(find()->line, 41u);
}

TEST_F(PythonNamesTest, ReadsLettersOfEveryWidth) {
  put_wide_text<char>(kQualifiedName,
                      "gr\xf6\xdf"
                      "e");
  put_wide_text<char16_t>(kFilename, u"名前.py");
  EXPECT_EQ(find(), (PythonFrameName{"größe", "名前.py", 42}));

  PythonNames others;
  put_wide_text<char32_t>(kQualifiedName, U"𠀋a");
  const auto wide = others.find(kPythonProcess, layout_, frame_, memory_.reader());
  EXPECT_EQ(wide->function, "𠀋a");
}

TEST_F(PythonNamesTest, ReplacesWhatIsNoCharacter) {
  const char16_t broken[] = {u'a', 0xdcff, u'b'};
  put_wide_text(kFilename, std::u16string_view(broken, 3));
  const char32_t beyond[] = {0x110000, U'c'};
  put_wide_text(kQualifiedName, std::u32string_view(beyond, 2));

  EXPECT_EQ(find(), (PythonFrameName{"\xef\xbf\xbd"
                                     "c",
                                     "a\xef\xbf\xbd"
                                     "b",
                                     42}));
}

TEST_F(PythonNamesTest, DoesNotNameMemoryThatWasUsedAnew) {
  put_code(42);

  EXPECT_EQ(find(), std::nullopt);
}

TEST_F(PythonNamesTest, RemembersACodeObjectThatHasGone) {
  ASSERT_EQ(find(), expected_);

  put_code(42);
  EXPECT_EQ(find(), expected_);
  memory_.clear();
  EXPECT_EQ(find(), expected_);
}

TEST_F(PythonNamesTest, NoticesAnotherCodeObjectThatBeginsAtTheSameLine) {
  ASSERT_EQ(find(), expected_);
  constexpr uint64_t kOtherName = 0x60000;
  put_text(kOtherName, "Other.call");
  memory_.put(kPythonCode + layout_.code_qualified_name, kOtherName);

  EXPECT_EQ(find(), (PythonFrameName{"Other.call", "/srv/model.py", 42}));
}

TEST_F(PythonNamesTest, TellsProcessesApart) {
  ASSERT_EQ(find(), expected_);
  FakeMemory other;

  EXPECT_EQ(names_.find({.pid = 7, .start_boot_ns = 71}, layout_, frame_, other.reader()),
            std::nullopt);
}

TEST_F(PythonNamesTest, ReadsAKnownCodeObjectOnlyOnce) {
  ASSERT_EQ(find(), expected_);
  const size_t reads = memory_.reads();

  ASSERT_EQ(find(), expected_);

  EXPECT_EQ(memory_.reads(), reads + 1);  // whether it is still the same
}

TEST_F(PythonNamesTest, RefusesTextThatIsTooLongOrOfAnotherForm) {
  memory_.put<uint64_t>(kFilename + layout_.text_length, PythonNames::kMaxTextLetters + 1);
  EXPECT_EQ(find(), std::nullopt);

  put_text(kFilename, "/srv/model.py");
  memory_.put<uint32_t>(kFilename + layout_.text_state, make_kind(1) | kAscii);  // not compact
  EXPECT_EQ(find(), std::nullopt);

  memory_.put<uint32_t>(kFilename + layout_.text_state, make_kind(3) | kCompact);
  EXPECT_EQ(find(), std::nullopt);
}

TEST_F(PythonNamesTest, NamesWithoutALineWhenTheTableIsTooLarge) {
  memory_.put<uint64_t>(kLines + layout_.bytes_length, PythonNames::kMaxTableBytes + 1);

  EXPECT_EQ(find(), (PythonFrameName{"Model.forward", "/srv/model.py", 0}));
}

TEST_F(PythonNamesTest, RefusesALayoutBeyondItsBound) {
  layout_.code_lines = 60'000;

  EXPECT_EQ(find(), std::nullopt);
}

TEST_F(PythonNamesTest, ForgetsWhatWasUsedLeastRecentlyWhenFull) {
  PythonNames small(700);  // two
  const auto find_of = [&](uint32_t pid) {
    return small.find({.pid = pid}, layout_, frame_, memory_.reader());
  };
  for (const uint32_t pid : {1, 2, 1, 3}) ASSERT_EQ(find_of(pid), expected_);

  memory_.clear();

  EXPECT_EQ(find_of(1), expected_);
  EXPECT_EQ(find_of(2), std::nullopt);
  EXPECT_EQ(find_of(3), expected_);
}

TEST_F(PythonNamesTest, AnswersEvenWhatItHasNoRoomFor) {
  PythonNames tiny(1);

  EXPECT_EQ(tiny.find(kPythonProcess, layout_, frame_, memory_.reader()), expected_);
}

}  // namespace
}  // namespace gpuperf
