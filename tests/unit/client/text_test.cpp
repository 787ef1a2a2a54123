#include "client/text.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

namespace gpuperf::client {
namespace {

TEST(TextTest, LeavesPrintableTextAsItIs) {
  EXPECT_EQ(make_printable("python3 größe 日本 at::matmul<float>"),
            "python3 größe 日本 at::matmul<float>");
}

TEST(TextTest, EscapesWhatATerminalObeys) {
  EXPECT_EQ(make_printable("\x1b[2J\x07"), "\\x1b[2J\\x07");
  EXPECT_EQ(make_printable("a\nb\tc\rd\x7f"), "a\\nb\\tc\\rd\\x7f");
  EXPECT_EQ(make_printable("\xc2\x9b"), "\\u{9b}");  // C1 control sequence introducer
  EXPECT_EQ(make_printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(TextTest, EscapesWhatReordersOrHidesText) {
  EXPECT_EQ(make_printable("\u202egnp.exe"), "\\u{202e}gnp.exe");
  EXPECT_EQ(make_printable("a\u200bb\ufeff"), "a\\u{200b}b\\u{feff}");
  EXPECT_EQ(make_printable("\u2028\u2066"), "\\u{2028}\\u{2066}");
}

TEST(TextTest, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(make_printable("\xff"), "\\xff");
  EXPECT_EQ(make_printable("a\xe2\x82"), "a\\xe2\\x82");         // cut short
  EXPECT_EQ(make_printable("\xc0\xaf"), "\\xc0\\xaf");           // overlong "/"
  EXPECT_EQ(make_printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(make_printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(TextTest, MeasuresColumnsNotBytes) {
  EXPECT_EQ(measure_width("abc"), 3);
  EXPECT_EQ(measure_width("größe"), 5);
  EXPECT_EQ(measure_width("日本"), 4);
  EXPECT_EQ(measure_width("e\u0301"), 1);  // combining accent
}

TEST(TextTest, TruncatesAtTheChosenEnd) {
  EXPECT_EQ(truncate("abcdef", 6, Cut::kEnd), "abcdef");
  EXPECT_EQ(truncate("abcdef", 4, Cut::kEnd), "abc…");
  EXPECT_EQ(truncate("abcdef", 4, Cut::kStart), "…def");
  EXPECT_EQ(truncate("abcdef", 1, Cut::kEnd), "…");
  EXPECT_EQ(truncate("abcdef", 4, Cut::kMiddle), "a…ef");
  EXPECT_EQ(truncate("abcdef", 5, Cut::kMiddle), "ab…ef");
  EXPECT_EQ(truncate("abcdef", 1, Cut::kMiddle), "…");
}

TEST(TextTest, NeverCutsACharacterInTwo) {
  EXPECT_EQ(truncate("日本語", 4, Cut::kEnd), "日…");
  EXPECT_EQ(truncate("日本語", 4, Cut::kStart), "…語");
  EXPECT_LE(measure_width(truncate("日本語日本語", 6, Cut::kEnd)), 6);
}

TEST(TextTest, CutsEveryLineToAWidthAroundItsColours) {
  EXPECT_EQ(cut_to_width("abc\nabcd\nabcde\n", 4), "abc\nabcd\nabc…\n");
  EXPECT_EQ(cut_to_width("\x1b[31mabc\x1b[0md", 4), "\x1b[31mabc\x1b[0md");
  EXPECT_EQ(cut_to_width("\x1b[31mabcde\x1b[0m\nx", 4), "\x1b[31mabc…\x1b[0m\nx");
  EXPECT_EQ(cut_to_width("日本語", 5), "日本…");
  EXPECT_EQ(cut_to_width("\n\nabcdef", 0), "\n\nabcdef");
}

TEST(TextTest, WrapsAtBlanks) {
  EXPECT_EQ(wrap("one two three", 7, ""), "one two\nthree\n");
  EXPECT_EQ(wrap("one two three", 8, "  "), "  one\n  two\n  three\n");
  EXPECT_EQ(wrap("one  two ", 0, "  "), "  one two\n");
  EXPECT_EQ(wrap("日本 語", 6, ""), "日本\n語\n");
}

TEST(TextTest, GivesALongWordALineOfItsOwn) {
  EXPECT_EQ(wrap("a cudaStreamSynchronize b", 5, ""), "a\ncudaStreamSynchronize\nb\n");
  EXPECT_EQ(wrap("ab", 1, "    "), "    ab\n");
}

TEST(TextTest, WrapsNothingToNothing) {
  EXPECT_EQ(wrap("", 10, "  "), "");
  EXPECT_EQ(wrap("  ", 10, "  "), "");
}

TEST(TextTest, FormatsRatiosInPercent) {
  EXPECT_EQ(format_ratio(0), "0.00 %");
  EXPECT_EQ(format_ratio(0.00001), "< 0.01 %");
  EXPECT_EQ(format_ratio(0.0042), "0.42 %");
  EXPECT_EQ(format_ratio(1.85), "185 %");
}

TEST(TextTest, KnowsUtf8) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("{\"größe\": 1}"));
  EXPECT_FALSE(is_utf8("gr\xf6\xdf"));
}

TEST(TextTest, EscapesControlsThatJsonAllowsRaw) {
  EXPECT_EQ(escape_json_controls("{\n  \"a\": \"\x7f\xc2\x9b\u202e日\"\n}"),
            "{\n  \"a\": \"\\u007f\\u009b\\u202e日\"\n}");
}

TEST(TextTest, FormatsDurationsWithThreeDigits) {
  EXPECT_EQ(format_duration(0), "0 ns");
  EXPECT_EQ(format_duration(999), "999 ns");
  EXPECT_EQ(format_duration(1'000), "1.00 µs");
  EXPECT_EQ(format_duration(1'234'000), "1.23 ms");
  EXPECT_EQ(format_duration(12'345'000), "12.3 ms");
  EXPECT_EQ(format_duration(123'456'000), "123 ms");
  EXPECT_EQ(format_duration(999'499), "999 µs");
  EXPECT_EQ(format_duration(999'600), "1.00 ms");
  EXPECT_EQ(format_duration(119'900'000'000), "120 s");
}

TEST(TextTest, FormatsLongDurationsWithTwoUnits) {
  EXPECT_EQ(format_duration(120'000'000'000), "2m00s");
  EXPECT_EQ(format_duration(3'599'400'000'000), "59m59s");
  EXPECT_EQ(format_duration(3'599'600'000'000), "1h00m");
  EXPECT_EQ(format_duration(273'600'000'000'000), "3d04h");
  EXPECT_EQ(format_duration(UINT64_MAX), "213503d23h");
}

TEST(TextTest, FormatsCountsExactly) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(TextTest, FormatsBytes) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(47'500'000), "45.3 MiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16384 PiB");
}

TEST(TextTest, FormatsTimesInTheLocalZone) {
  setenv("TZ", "Asia/Kolkata", 1);
  tzset();
  constexpr uint64_t kMomentNs = 1'777'630'245'123'456'789;  // 2026-05-01T10:10:45.123456789Z

  EXPECT_EQ(format_local_time(kMomentNs), "2026-05-01 15:40:45.123");
  EXPECT_EQ(format_utc_offset(kMomentNs), "+05:30");
  EXPECT_EQ(format_local_time(0), "-");
}

}  // namespace
}  // namespace gpuperf::client
