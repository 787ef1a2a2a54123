#include "daemon/model/display_text.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cstdint>

#include "daemon/model/status_names.h"

namespace gpuperf {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Length of the valid UTF-8 sequence at the beginning of `text`, 0 if there is none. The bounds of
// the second byte are those of RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF.
size_t get_sequence_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string to_valid_utf8(std::string_view bytes) {
  std::string valid;
  valid.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = get_sequence_length(bytes);
    valid += length == 0 ? kReplacement : bytes.substr(0, length);
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

std::string format_return_value(const SlowCall& call) {
  if (!call.event.return_value) return "";
  if (call.status == StatusKind::kNone) return fmt::format("0x{:x}", *call.event.return_value);
  // A status is an int: the upper half of the register is whatever the compiler left there.
  return get_status_name(call.status,
                         static_cast<int32_t>(static_cast<uint32_t>(*call.event.return_value)));
}

std::string format_frame(const StackFrame& frame) {
  const std::string& place = frame.symbol.empty() ? frame.module : frame.symbol;
  if (place.empty()) return fmt::format("0x{:x}", frame.address);
  std::string text = place;
  if (frame.is_inlined) {
    text += " (inlined)";
  } else if (frame.kind != StackFrameKind::kPython) {
    text += fmt::format("+0x{:x}", frame.offset_bytes);
  }
  if (frame.line == 0) return text;
  const std::string_view file = frame.file;
  return fmt::format("{} at {}:{}", text, file.substr(file.rfind('/') + 1), frame.line);
}

std::string_view get_frame_kind_name(StackFrameKind kind) {
  switch (kind) {
    case StackFrameKind::kNative:
      return "native";
    case StackFrameKind::kJit:
      return "jit";
    case StackFrameKind::kKernel:
      return "kernel";
    case StackFrameKind::kPython:
      return "python";
  }
  return "native";  // only reached with a value outside the enum
}

std::string_view get_probe_state_name(ProbeState state) {
  switch (state) {
    case ProbeState::kAttached:
      return "attached";
    case ProbeState::kEntryOnly:
      return "entry_only";
    case ProbeState::kWaiting:
      return "waiting";
    case ProbeState::kSymbolMissing:
      return "symbol_missing";
    case ProbeState::kFailed:
      return "failed";
    case ProbeState::kDisabled:
      return "disabled";
    case ProbeState::kSuspended:
      return "suspended";
    case ProbeState::kAlias:
      return "alias";
  }
  return "unknown";  // only reached with a value outside the enum
}

std::string_view get_direction_name(size_t slot) {
  constexpr std::array<std::string_view, GPUPERF_BYTE_SLOTS> kNames = {
      "plain", "host_to_host", "host_to_device", "device_to_host", "device_to_device", "default"};
  return kNames.at(slot);
}

}  // namespace gpuperf
