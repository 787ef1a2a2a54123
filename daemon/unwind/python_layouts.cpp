#include "daemon/unwind/python_layouts.h"

namespace gpuperf {

std::string describe_python_version(uint16_t version) {
  return std::to_string(version >> 8) + "." + std::to_string(version & 0xff);
}

std::optional<gpuperf_python_layout> find_python_layout(uint16_t version) {
  gpuperf_python_layout layout{};
  return python_find_layout(version, &layout) == 0 ? std::optional(layout) : std::nullopt;
}

bool is_python_debug_offsets(const PythonDebugOffsets& offsets) {
  return offsets[0] == PYTHON_TABLE_COOKIE;
}

Result<gpuperf_python_layout> decode_python_debug_offsets(const PythonDebugOffsets& offsets) {
  gpuperf_python_layout layout{};
  __u32 word = 0;
  const python_table_result result = python_decode_table(offsets.data(), &layout, &word);
  const std::string python =
      "Python " +
      describe_python_version(static_cast<uint16_t>(offsets[PYTHON_VERSION_WORD] >> 16));
  switch (result) {
    case PYTHON_TABLE_OK:
      return layout;
    case PYTHON_TABLE_NONE:
      return absl::DataLossError("_PyRuntime: no table of offsets");
    case PYTHON_TABLE_IMPLAUSIBLE:
      return absl::DataLossError("_PyRuntime: implausible table of offsets");
    case PYTHON_TABLE_NEWER:
      return absl::UnimplementedError(python + ": newer than those whose frames are known");
    case PYTHON_TABLE_FREE_THREADED:
      return absl::UnimplementedError(python + ", free-threaded: supported in 3.13 only");
    case PYTHON_TABLE_OFFSET:
      return absl::DataLossError("_PyRuntime: implausible offset " + std::to_string(offsets[word]) +
                                 " in word " + std::to_string(word) + " of its table");
    case PYTHON_TABLE_TEXT:
      return absl::DataLossError("_PyRuntime: implausible size of a string in its table");
  }
  __builtin_unreachable();
}

}  // namespace gpuperf
