#pragma once

// Types of the arguments in a typed list: "u32", "string", "i64[4]".

#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/config/fault_place.h"
#include "daemon/config/json_document.h"
#include "daemon/model/argument_plan.h"

namespace gpuperf {

struct ArgumentType {
  ArgumentFormat format = ArgumentFormat::kHex;  // of an element, when it is an array
  uint8_t size_bytes = 8;                        // likewise
  uint8_t count = 0;                             // elements of an array; 0 = no array
};

// The type, or nothing after reporting what is wrong with it.
std::optional<ArgumentType> read_argument_type(const JsonNode& node, const FaultPlace& place);

// A regular expression of every type, for the schema.
std::string_view argument_type_pattern();

}  // namespace gpuperf
