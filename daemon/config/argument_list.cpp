#include "daemon/config/argument_list.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config/argument_type.h"
#include "daemon/config/error_text.h"
#include "daemon/probe/arguments/argument_decoders.h"

namespace gpuperf {
namespace {

constexpr std::string_view kRaw = "raw";
constexpr std::string_view kListHint =
    R"(write [{"name": "rows", "arg": 0, "type": "u64"}], a decoder's name, or "raw")";
constexpr std::string_view kDerefHint =
    "each number is an offset in bytes: [16] reads at pointer + 16, [16, 0] follows the pointer "
    "found there";

constexpr ArgumentKeyRow kKeys[] = {
    {"name", "Name of the value. Required."},
    {"arg",
     "Index of the argument, from 0, counting integers and pointers only; from 6 on, arguments are "
     "on the stack. Required."},
    {"type",
     "i8 to i64, u8 to u64, f32, f64, bool, hex, string, or an array such as i64[4]. For a string "
     "or an array, the argument is a pointer to it. Required."},
    {"deref",
     "Offsets in bytes of a pointer chain: [16] reads at argument + 16, [16, 0] follows the "
     "pointer found there."},
    {"bytes", "true: the function's bytes are the product of all values marked like this."},
};

// Integers as JSON writes them: 16, and 1e3 or 16.0 as in JSON Schema.
std::optional<int64_t> find_whole_number(const JsonNode& node) {
  constexpr double kExactBelow = 9007199254740992;  // 2^53
  if (const auto* number = std::get_if<int64_t>(&node.value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&node.value)) {
    if (*number > std::numeric_limits<int64_t>::max()) return std::nullopt;
    return static_cast<int64_t>(*number);
  }
  const auto* number = std::get_if<double>(&node.value);
  if (!number || std::abs(*number) >= kExactBelow || std::floor(*number) != *number)
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

// One item of the list while it is read.
class Item {
 public:
  explicit Item(const FaultPlace& place) : place_(place) {}

  // The field, when nothing was wrong with it.
  std::optional<ArgumentField> read(const JsonNode& node) {
    const size_t errors_before = place_.errors.size();
    const auto* object = std::get_if<JsonObject>(&node.value);
    if (!object) {
      place_.report("must be an object, is " + describe_node(node), kListHint);
      return std::nullopt;
    }
    for (const JsonMember& member : *object) read_member(member);
    for (const std::string_view key : {"name", "arg", "type"}) {
      if (!seen_.contains(key)) place_.report("has no " + std::string(key), kListHint);
    }
    if (place_.errors.size() != errors_before) return std::nullopt;
    check_place_of_value();
    if (place_.errors.size() != errors_before) return std::nullopt;
    fill_capture();
    return field_;
  }

  bool is_bytes() const { return is_bytes_; }

 private:
  void read_member(const JsonMember& member) {
    const FaultPlace place = place_.child(member.key);
    if (member.key == "name") {
      read_name(member.value, place);
    } else if (member.key == "arg") {
      read_source(member.value, place);
    } else if (member.key == "type") {
      read_type(member.value, place);
    } else if (member.key == "deref") {
      read_offsets(member.value, place);
    } else if (member.key == "bytes") {
      read_bytes(member.value, place);
    } else {
      std::vector<std::string_view> keys;
      for (const ArgumentKeyRow& row : kKeys) keys.push_back(row.key);
      place.report(
          "unknown key",
          hint_for_unknown(member.key, keys, "the keys of an argument are " + join_names(keys)));
    }
    seen_.insert(member.key);
  }

  void read_name(const JsonNode& node, const FaultPlace& place) {
    constexpr std::string_view kHint = "this is the name of the value in the output, like \"rows\"";
    const auto* name = std::get_if<std::string>(&node.value);
    if (!name || name->empty() || name->size() > kArgumentNameMaxBytes ||
        has_control_character(*name)) {
      place.report("must be a name of 1 to " + std::to_string(kArgumentNameMaxBytes) +
                       " bytes, is " + describe_node(node),
                   kHint);
      return;
    }
    field_.name = *name;
  }

  void read_source(const JsonNode& node, const FaultPlace& place) {
    const auto number = find_whole_number(node);
    if (!number || *number < 0 || *number > static_cast<int64_t>(kArgumentMax)) {
      place.report("must be an integer from 0 to " + std::to_string(kArgumentMax) + ", is " +
                       describe_node(node),
                   "0 is the first integer or pointer argument (of a C++ method: `this`)");
      return;
    }
    field_.capture.source = static_cast<uint8_t>(*number);
  }

  void read_type(const JsonNode& node, const FaultPlace& place) {
    const std::optional<ArgumentType> type = read_argument_type(node, place);
    if (!type) return;
    field_.format = type->count == 0 ? type->format : ArgumentFormat::kArray;
    field_.capture.size_bytes = type->size_bytes;
    field_.element = type->format;
    field_.element_bytes = type->size_bytes;
    field_.count = type->count;
  }

  void read_offsets(const JsonNode& node, const FaultPlace& place) {
    const auto* array = std::get_if<JsonArray>(&node.value);
    if (!array || array->empty() || array->size() > GPUPERF_CHAIN) {
      place.report("must be a list of 1 to " + std::to_string(GPUPERF_CHAIN) + " offsets, is " +
                       (array ? "one of " + std::to_string(array->size()) : describe_node(node)),
                   kDerefHint);
      return;
    }
    for (size_t i = 0; i < array->size(); ++i) {
      const auto number = find_whole_number((*array)[i]);
      if (!number || *number < std::numeric_limits<int32_t>::min() ||
          *number > std::numeric_limits<int32_t>::max()) {
        place.item(i).report(
            "must be an offset in bytes of at most 32 bits, is " + describe_node((*array)[i]),
            kDerefHint);
        continue;
      }
      offsets_.push_back(static_cast<int32_t>(*number));
    }
  }

  void read_bytes(const JsonNode& node, const FaultPlace& place) {
    const auto* value = std::get_if<bool>(&node.value);
    if (!value) {
      place.report("must be true or false, is " + describe_node(node),
                   "true: the function's bytes are the product of all values marked like this");
      return;
    }
    is_bytes_ = *value;
  }

  bool is_blob() const {
    return field_.format == ArgumentFormat::kString || field_.format == ArgumentFormat::kArray;
  }

  void check_place_of_value() {
    const bool in_register = field_.capture.source < GPUPERF_ARGUMENTS;
    if (field_.format == ArgumentFormat::kFloat && in_register && offsets_.empty()) {
      place_.child("type").report(
          "a float passed by value is in a register that gpuperf does not read",
          "only floats behind a pointer (\"deref\") or on the stack (\"arg\" from 6) can be read");
    }
    const bool is_integer =
        field_.format == ArgumentFormat::kSigned || field_.format == ArgumentFormat::kUnsigned;
    if (is_bytes_ && !is_integer) {
      place_.child("bytes").report("only integers can be used as bytes",
                                   "mark a value of type u8 to u64 or i8 to i64");
    }
  }

  // A string or an array lies at its last offset; the ones before lead to it.
  void fill_capture() {
    if (is_blob() && offsets_.empty()) offsets_.push_back(0);
    std::ranges::copy(offsets_, field_.capture.offset_bytes);
    field_.capture.loads = static_cast<uint8_t>(offsets_.size() - (is_blob() ? 1 : 0));
    if (is_blob()) {
      field_.capture.size_bytes = 8;  // of the address
      field_.capture.blob = 1;        // numbered with the rest of the list
    }
  }

  const FaultPlace& place_;
  ArgumentField field_;
  std::vector<int32_t> offsets_;
  bool is_bytes_ = false;
  std::set<std::string_view> seen_;
};

void report_bound(const FaultPlace& place, std::string_view what, size_t most, size_t given) {
  place.report("at most " + std::to_string(most) + " " + std::string(what) +
                   " are kept, but the list has " + std::to_string(given),
               "remove what you need least");
}

// The fields of a list and what adds up to bytes.
void read_list(const JsonArray& array, const FaultPlace& place, ProbeSpec& spec) {
  if (array.empty()) place.report("must name at least one argument, is empty", kListHint);
  if (array.size() > GPUPERF_VALUES) report_bound(place, "arguments", GPUPERF_VALUES, array.size());
  ArgumentPlan plan;
  plan.rules.element_bytes[0] = 1;
  std::set<std::string> names;
  size_t blobs = 0;
  size_t factors = 0;
  for (size_t i = 0; i < array.size(); ++i) {
    const FaultPlace item_place = place.item(i);
    Item item(item_place);
    std::optional<ArgumentField> field = item.read(array[i]);
    if (!field) continue;
    if (!names.insert(field->name).second)
      item_place.report("there is already an argument " + quote_for_message(field->name),
                        "give each argument a name of its own");
    if (field->capture.blob != 0) field->capture.blob = static_cast<uint8_t>(++blobs);
    plan.fields.push_back(*std::move(field));
    if (!item.is_bytes() || ++factors > std::size(plan.rules.byte_factors)) continue;
    plan.rules.byte_factors[factors - 1] = static_cast<uint8_t>(plan.fields.size());
  }
  if (blobs > GPUPERF_BLOBS) report_bound(place, "strings and arrays", GPUPERF_BLOBS, blobs);
  if (factors > std::size(plan.rules.byte_factors))
    report_bound(place, "factors of bytes", std::size(plan.rules.byte_factors), factors);
  spec.arguments = std::make_shared<const ArgumentPlan>(std::move(plan));
}

void read_decoder_name(const std::string& name, const FaultPlace& place, ProbeSpec& spec) {
  if (name == kRaw) {
    spec.raw_arguments = true;
    return;
  }
  if (std::ranges::binary_search(argument_decoder_symbols(), std::string_view(name))) {
    spec.arguments = find_argument_decoder(name);
    return;
  }
  constexpr std::string_view kSome[] = {"raw", "cudaMemcpyAsync", "cuLaunchKernel", "cublasGemmEx",
                                        "ncclAllReduce"};
  place.report(
      "no argument decoder is called " + quote_for_message(name),
      hint_for_unknown(name, argument_decoder_names(),
                       "decoders are named after their function; some are " + join_names(kSome)));
}

}  // namespace

std::span<const std::string_view> argument_decoder_names() {
  static const std::vector<std::string_view> kNames = [] {
    const auto symbols = argument_decoder_symbols();
    std::vector<std::string_view> names(symbols.begin(), symbols.end());
    names.push_back(kRaw);
    std::ranges::sort(names);
    return names;
  }();
  return kNames;
}

std::span<const ArgumentKeyRow> argument_key_rows() { return kKeys; }

void read_arguments(const JsonNode& node, const FaultPlace& place, ProbeSpec& spec) {
  if (const auto* name = std::get_if<std::string>(&node.value)) {
    read_decoder_name(*name, place, spec);
  } else if (const auto* array = std::get_if<JsonArray>(&node.value)) {
    read_list(*array, place, spec);
  } else {
    place.report("must be a decoder's name or a list of arguments, is " + describe_node(node),
                 kListHint);
  }
}

}  // namespace gpuperf
