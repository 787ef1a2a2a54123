#pragma once

// Symbols as the configuration writes them: exact names, wildcards, demangled C++ names and static
// probes. find_symbol_form of probe_spec.h tells which; this checks that it is a sound one.

#include <cstddef>
#include <optional>
#include <string>

#include "daemon/config/fault_place.h"
#include "daemon/config/json_document.h"

namespace gpuperf {

// The longest mangled names of libtorch are near 2000 bytes.
inline constexpr size_t kSymbolMaxBytes = 4096;

// The symbol, or nothing after reporting what is wrong with it.
std::optional<std::string> read_symbol(const JsonNode& node, const FaultPlace& place);

}  // namespace gpuperf
