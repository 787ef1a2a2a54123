#pragma once

// `args` of a probe: the name of a decoder, or a typed list of arguments.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "daemon/config/fault_place.h"
#include "daemon/config/json_document.h"
#include "daemon/probe/probe_spec.h"

namespace gpuperf {

inline constexpr uint64_t kArgumentMax = 63;  // 58 on the stack: more than any interface passes
inline constexpr size_t kArgumentNameMaxBytes = 64;

// Names that `args` takes: "raw" and the built-in decoders, sorted.
std::span<const std::string_view> argument_decoder_names();

// Keys of one item of a typed list.
struct ArgumentKeyRow {
  std::string_view key;
  std::string_view help;
};
std::span<const ArgumentKeyRow> argument_key_rows();

// Reads the value of `args` into the spec. Each fault is reported.
void read_arguments(const JsonNode& node, const FaultPlace& place, ProbeSpec& spec);

}  // namespace gpuperf
