#include "daemon/session/cubin_image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace gpuperf {
namespace {

std::string read_recording(const char* name) {
  std::ifstream file(std::string(GPUPERF_SOURCE_DIR "/tests/recordings/lines/") + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

CubinLines read_lines(const std::string& image) {
  return read_cubin_lines(std::as_bytes(std::span(image)), 7);
}

// "lines.cu:4 twice(float const*, int) in 13".
std::string describe_place(const CubinLines& lines, std::string_view function, uint32_t offset) {
  const CubinLines::Place* const place = find_place(lines, function, offset);
  if (place == nullptr) return "";
  std::string text = lines.texts.at(place->file) + ":" + std::to_string(place->line);
  if (place->function != CubinLines::kNone) text += " " + lines.texts.at(place->function);
  if (place->outer_line != place->line) text += " in " + std::to_string(place->outer_line);
  return text;
}

// By nvcc's own account: readelf --debug-dump=rawline.
TEST(CubinImageTest, TellsLinesOfKernelsAndOfWhatWasInlined) {
  const CubinLines lines = read_lines(read_recording("lines.cubin"));

  EXPECT_EQ(lines.cubin_crc, 7u);
  EXPECT_EQ(lines.fate, LineFate::kKnown);
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0), "/src/lines.cu:9");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0xd0), "/src/lines.cu:12");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0xe0),
            "/src/lines.cu:4 twice(float const*, int) in 13");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0xf0),
            "/src/lines.cu:4 twice(float const*, int) in 13");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0x100), "/src/lines.cu:12");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0x4f0), "/src/lines.cu:7");
  EXPECT_EQ(describe_place(lines, "_Z6squarePfi", 0x500), "");
  EXPECT_EQ(describe_place(lines, "copy_kernel", 0x10), "/src/lines.cu:18");
  EXPECT_EQ(describe_place(lines, "another", 0), "");
}

TEST(CubinImageTest, TellsLinesOfThePythonFileOfATritonKernel) {
  const CubinLines lines = read_lines(read_recording("sum_kernel.cubin"));
  EXPECT_EQ(describe_place(lines, "sum_kernel", 0), "/opt/train/tests/gpu/trace_triton.py:10");
  EXPECT_EQ(describe_place(lines, "sum_kernel", 0xf0), "/opt/train/tests/gpu/trace_triton.py:11");
  EXPECT_EQ(describe_place(lines, "sum_kernel", 0x130), "/opt/train/tests/gpu/trace_triton.py:13");
}

TEST(CubinImageTest, TellsLinesOfAFunctionWithinAKernel) {
  const CubinLines lines = read_lines(read_recording("lines.cubin"));
  EXPECT_EQ(describe_place(lines, "$_Z6squarePfi$_Z4rootf", 0), "/src/lines.cu:7");
}

TEST(CubinImageTest, TellsAnImageWithoutLinesFromWhatIsNone) {
  std::string image = read_recording("lines.cubin");
  EXPECT_EQ(read_lines("").fate, LineFate::kUnreadable);
  EXPECT_EQ(read_lines("\x7f"
                       "ELF")
                .fate,
            LineFate::kUnreadable);
  const size_t name = image.find(".debug_line");
  ASSERT_NE(name, std::string::npos);
  // ".rela.debug_line" ends with the same bytes.
  for (size_t at = name; at != std::string::npos; at = image.find(".debug_line", at))
    image[at] = 'x';
  EXPECT_EQ(read_lines(image).fate, LineFate::kNoLines);
}

TEST(CubinImageTest, SaysNothingOfALineTableOfAnotherVersion) {
  std::string image = read_recording("lines.cubin");
  Elf64_Ehdr head;
  std::memcpy(&head, image.data(), sizeof head);
  for (size_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, &image[head.e_shoff + i * sizeof section], sizeof section);
    if (section.sh_size > 6 &&
        image.compare(section.sh_offset + 4, 2, std::string("\2\0", 2)) == 0) {
      image[section.sh_offset + 4] = 5;
    }
  }
  const CubinLines lines = read_lines(image);
  EXPECT_EQ(lines.fate, LineFate::kUnreadable);
  EXPECT_TRUE(lines.rows.empty());
}

TEST(CubinImageTest, SurvivesDamage) {
  const std::string image = read_recording("lines.cubin");
  std::mt19937 random(1);  // NOLINT: the same damage each time
  size_t known = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::string damaged = image;
    for (int j = 0; j < 8; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    const CubinLines lines = read_lines(damaged);
    known += lines.fate == LineFate::kKnown ? 1 : 0;
    for (const CubinLines::Function& function : lines.functions) {
      ASSERT_LE(function.first_row + function.row_count, lines.rows.size());
      (void)find_place(lines, function.name, static_cast<uint32_t>(random()));
    }
  }
  EXPECT_GT(known, 100u);  // damage reached the tables
  EXPECT_LT(known, 3'000u);
}

}  // namespace
}  // namespace gpuperf
