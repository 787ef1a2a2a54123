#include "daemon/unwind/python_layouts.h"

#include <algorithm>
#include <span>

namespace gpuperf {
namespace {

using Layout = gpuperf_python_layout;

// The offsets are what offsetof says of the headers
// of 3.8.18, 3.9.2, 3.9.18, 3.10.13, 3.11.2, 3.11.7 and 3.12.1, x86-64, with and without Py_DEBUG.
// Releases of one minor version do not differ in them.
constexpr Layout kPython38 = {.version = 0x0308,
                              .form = GPUPERF_PYTHON_FRAME_OBJECTS,
                              .instruction_unit_bytes = 1,
                              .runtime_interpreters_head = 32,
                              .interpreter_next = 0,
                              .interpreter_threads_head = 8,
                              .thread_next = 8,
                              .thread_id = 176,
                              .thread_frame = 24,
                              .frame_previous = 24,
                              .frame_code = 32,
                              .frame_instruction = 104,
                              .code_first_line = 40,
                              .code_filename = 104,
                              .code_name = 112,
                              .code_lines = 120,
                              .text_length = 16,
                              .text_state = 32,
                              .text_ascii = 48,
                              .text_compact = 72,
                              .bytes_length = 16,
                              .bytes_data = 32};
constexpr Layout kPython311 = {.version = 0x030b,
                               .form = GPUPERF_PYTHON_CFRAMES,
                               .instruction_is_pointer = 1,
                               .runtime_interpreters_head = 40,
                               .interpreter_next = 0,
                               .interpreter_threads_head = 16,
                               .thread_next = 8,
                               .thread_id = 152,
                               .thread_frame = 56,
                               .cframe_current_frame = 8,
                               .cframe_previous = 16,
                               .frame_previous = 48,
                               .frame_code = 32,
                               .frame_instruction = 56,
                               .frame_owner = 68,
                               .code_instructions = 184,
                               .code_first_line = 72,
                               .code_filename = 112,
                               .code_name = 120,
                               .code_qualified_name = 128,
                               .code_lines = 136,
                               .text_length = 16,
                               .text_state = 32,
                               .text_ascii = 48,
                               .text_compact = 72,
                               .bytes_length = 16,
                               .bytes_data = 32};
// What a version changed of an earlier one's.
constexpr Layout change(Layout layout, void (*to)(Layout&)) {
  to(layout);
  return layout;
}
constexpr Layout kLayouts[] = {kPython38,
                               change(kPython38, [](Layout& layout) { layout.version = 0x0309; }),
                               change(kPython38,
                                      [](Layout& layout) {
                                        layout.version = 0x030a;
                                        layout.instruction_unit_bytes = 2;
                                        layout.frame_instruction = 96;
                                      }),
                               kPython311, change(kPython311, [](Layout& layout) {
                                 layout.version = 0x030c;
                                 layout.first_c_owner = 3;
                                 layout.interpreter_threads_head = 72;
                                 layout.thread_id = 136;
                                 layout.cframe_current_frame = 0;
                                 layout.cframe_previous = 8;
                                 layout.frame_previous = 8;
                                 layout.frame_code = 0;
                                 layout.frame_owner = 70;
                                 layout.code_instructions = 192;
                                 layout.code_first_line = 68;
                                 layout.text_ascii = 40;
                                 layout.text_compact = 56;
                               })};

// "xdebugpy" as it stands in memory.
constexpr uint64_t kCookie = 0x7970677562656478;
constexpr size_t kVersionWord = 1;       // PY_VERSION_HEX
constexpr size_t kFreeThreadedWord = 2;  // 0 or 1

// One offset of the table: which word, and which one is the size of its structure,
// in 3.13, 3.14, 3.15.
struct OffsetWords {
  uint16_t Layout::*field;
  uint8_t size_bytes;  // of what stands at the offset
  uint8_t words[3];
  uint8_t structure_words[3];
};

// Made with offsetof from the headers of 3.13.5, 3.14.8 and 3.15.0.
constexpr OffsetWords kOffsetWords[] = {
    {&Layout::runtime_interpreters_head, 8, {5, 5, 5}, {3, 3, 3}},
    {&Layout::interpreter_next, 8, {8, 8, 8}, {6, 6, 6}},
    {&Layout::interpreter_threads_head, 8, {9, 9, 9}, {6, 6, 6}},
    {&Layout::thread_next, 8, {21, 24, 24}, {19, 22, 22}},
    {&Layout::thread_frame, 8, {23, 26, 26}, {19, 22, 22}},
    {&Layout::thread_id, 8, {24, 27, 30}, {19, 22, 22}},
    {&Layout::frame_previous, 8, {29, 32, 40}, {28, 31, 39}},
    {&Layout::frame_code, 8, {30, 33, 41}, {28, 31, 39}},
    {&Layout::frame_instruction, 8, {31, 34, 42}, {28, 31, 39}},
    {&Layout::frame_owner, 1, {33, 36, 44}, {28, 31, 39}},
    {&Layout::code_filename, 8, {35, 40, 48}, {34, 39, 47}},
    {&Layout::code_name, 8, {36, 41, 49}, {34, 39, 47}},
    {&Layout::code_qualified_name, 8, {37, 42, 50}, {34, 39, 47}},
    {&Layout::code_lines, 8, {38, 43, 51}, {34, 39, 47}},
    {&Layout::code_first_line, 4, {39, 44, 52}, {34, 39, 47}},
    {&Layout::code_instructions, 1, {43, 48, 56}, {34, 39, 47}},
    {&Layout::bytes_length, 8, {65, 75, 87}, {64, 74, 86}},
    {&Layout::bytes_data, 1, {66, 76, 88}, {64, 74, 86}},
    {&Layout::text_state, 4, {68, 78, 90}, {67, 77, 89}},
    {&Layout::text_length, 8, {69, 79, 91}, {67, 77, 89}},
    {&Layout::text_ascii, 8, {70, 80, 92}, {67, 77, 89}},
};
// PyUnicodeObject ends with one pointer, to the characters of a string that is not compact; the
// others have theirs in its place.
constexpr uint8_t kTextSizeWords[] = {67, 77, 89};
constexpr uint64_t kTextPointerBytes = 8;
// The largest, the _PyRuntime of 3.15, has 347 KB.
constexpr uint64_t kMaxStructureBytes = uint64_t{16} << 20;

Status check_version(uint64_t version_hex, uint64_t free_threaded) {
  const uint64_t version = version_hex >> 16;
  if (version_hex > UINT32_MAX || version < kFirstSelfDescribingPython || free_threaded > 1) {
    return absl::DataLossError("_PyRuntime: implausible table of offsets");
  }
  if (version > kNewestPython) {
    return absl::UnimplementedError("Python " +
                                    describe_python_version(static_cast<uint16_t>(version)) +
                                    ": newer than those whose frames are known");
  }
  // From 3.14 on each thread runs a copy of the instructions of its own: a frame's place in them
  // says nothing without knowing which.
  if (free_threaded != 0 && version > kFirstSelfDescribingPython) {
    return absl::UnimplementedError("Python " +
                                    describe_python_version(static_cast<uint16_t>(version)) +
                                    ", free-threaded: supported in 3.13 only");
  }
  return absl::OkStatus();
}

}  // namespace

std::string describe_python_version(uint16_t version) {
  return std::to_string(version >> 8) + "." + std::to_string(version & 0xff);
}

std::optional<Layout> find_python_layout(uint16_t version) {
  const auto found = std::ranges::find(kLayouts, version, &Layout::version);
  return found == std::end(kLayouts) ? std::nullopt : std::optional(*found);
}

bool is_python_debug_offsets(const PythonDebugOffsets& offsets) { return offsets[0] == kCookie; }

Result<Layout> decode_python_debug_offsets(const PythonDebugOffsets& offsets) {
  if (!is_python_debug_offsets(offsets)) {
    return absl::DataLossError("_PyRuntime: no table of offsets");
  }
  RETURN_IF_ERROR(check_version(offsets[kVersionWord], offsets[kFreeThreadedWord]));
  const auto version = static_cast<uint16_t>(offsets[kVersionWord] >> 16);
  const size_t column = version - kFirstSelfDescribingPython;
  Layout layout{.version = version,
                .form = GPUPERF_PYTHON_CURRENT_FRAME,
                // The code in a frame is a _PyStackRef since 3.14, with flags in two bits.
                .code_tag_mask = static_cast<uint8_t>(version > kFirstSelfDescribingPython ? 3 : 0),
                .first_c_owner = 3,
                .instruction_is_pointer = 1,
                .is_free_threaded = static_cast<uint8_t>(offsets[kFreeThreadedWord])};
  for (const OffsetWords& row : kOffsetWords) {
    const uint64_t offset = offsets[row.words[column]];
    const uint64_t structure_bytes = offsets[row.structure_words[column]];
    if (structure_bytes > kMaxStructureBytes || structure_bytes < row.size_bytes ||
        offset > std::min<uint64_t>(structure_bytes - row.size_bytes, UINT16_MAX)) {
      return absl::DataLossError("_PyRuntime: implausible offset " + std::to_string(offset) +
                                 " in word " + std::to_string(row.words[column]) + " of its table");
    }
    layout.*row.field = static_cast<uint16_t>(offset);
  }
  layout.text_compact = static_cast<uint16_t>(offsets[kTextSizeWords[column]] - kTextPointerBytes);
  if (layout.text_compact <= layout.text_ascii || layout.text_compact > layout.text_ascii + 64) {
    return absl::DataLossError("_PyRuntime: implausible size of a string in its table");
  }
  return layout;
}

}  // namespace gpuperf
