#include "daemon/model/argument_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace gpuperf {
namespace {

constexpr std::string_view kUnreadable = "unreadable";
constexpr std::string_view kCut = "…";

uint64_t keep_low_bytes(uint64_t value, size_t size_bytes) {
  return size_bytes >= 8 ? value : value & ((uint64_t{1} << (8 * size_bytes)) - 1);
}

int64_t sign_extend(uint64_t value, size_t size_bytes) {
  const unsigned unused_bits = size_bytes >= 8 ? 0 : static_cast<unsigned>(64 - 8 * size_bytes);
  return static_cast<int64_t>(value << unused_bits) >> unused_bits;
}

std::optional<std::string_view> find_code_name(std::span<const CodeName> codes, int64_t code) {
  const auto row = std::ranges::find(codes, code, &CodeName::code);
  if (row == codes.end()) return std::nullopt;
  return row->name;
}

std::string render_float(uint64_t value, size_t size_bytes) {
  if (size_bytes == 4) return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(value)));
  return fmt::format("{}", std::bit_cast<double>(value));
}

std::string render_hex(uint64_t value, std::span<const CodeName> codes) {
  const auto name = find_code_name(codes, static_cast<int64_t>(value));
  return name ? std::string(*name) : fmt::format("0x{:x}", value);
}

std::string render_kernel(uint64_t value, ArgumentFormat format, const ArgumentNames& names) {
  std::optional<std::string> name;
  if (format == ArgumentFormat::kKernelFunction && names.find_symbol)
    name = names.find_symbol(value);
  // The runtime takes a kernel's handle (cudaKernel_t) where it takes its function.
  if (!name && names.find_kernel) name = names.find_kernel(value);
  return name ? *std::move(name) : render_hex(value, {});
}

// One number; `format` is no blob's.
std::string render_number(uint64_t value, ArgumentFormat format, size_t size_bytes,
                          std::span<const CodeName> codes, const ArgumentNames& names) {
  value = keep_low_bytes(value, size_bytes);
  switch (format) {
    case ArgumentFormat::kUnsigned:
      return fmt::format("{}", value);
    case ArgumentFormat::kSigned:
      return fmt::format("{}", sign_extend(value, size_bytes));
    case ArgumentFormat::kFloat:
      return render_float(value, size_bytes);
    case ArgumentFormat::kBool:
      return value != 0 ? "true" : "false";
    case ArgumentFormat::kCode: {
      const int64_t code = sign_extend(value, size_bytes);
      const auto name = find_code_name(codes, code);
      return name ? std::string(*name) : fmt::format("{}", code);
    }
    case ArgumentFormat::kKernelHandle:
    case ArgumentFormat::kKernelFunction:
      return render_kernel(value, format, names);
    case ArgumentFormat::kHex:
    case ArgumentFormat::kString:
    case ArgumentFormat::kArray:
    case ArgumentFormat::kHidden:
      break;
  }
  return render_hex(value, codes);
}

std::string render_string(std::string_view bytes) {
  const size_t end = bytes.find('\0');
  if (end != bytes.npos) return std::string(bytes.substr(0, end));
  return std::string(bytes).append(kCut);
}

std::string render_array(const ArgumentField& field, std::string_view bytes,
                         const ArgumentNames& names) {
  const size_t size = std::max<size_t>(1, field.element_bytes);
  const size_t wanted = field.count != 0 ? field.count : bytes.size() / size;
  const size_t read = std::min(wanted, bytes.size() / size);
  std::string text = "[";
  for (size_t i = 0; i < read; ++i) {
    uint64_t element = 0;
    std::memcpy(&element, bytes.data() + i * size, std::min(size, sizeof(element)));
    if (i > 0) text += ", ";
    text += render_number(element, field.element, size, {}, names);
  }
  if (read < wanted) text.append(read > 0 ? ", " : "").append(kCut);
  return text + "]";
}

// What the field at `index` shows.
std::string render_field(const ArgumentField& field, size_t index, const CallValues& values,
                         const ArgumentNames& names) {
  if (((values.unread >> index) & 1) != 0) return std::string(kUnreadable);
  if (field.capture.blob == 0) {
    return render_number(values.values[index], field.format, field.capture.size_bytes, field.codes,
                         names);
  }
  const size_t blob = field.capture.blob - size_t{1};
  if (blob >= values.blobs.size() || values.blobs[blob].empty()) return std::string(kUnreadable);
  if (field.format == ArgumentFormat::kArray) return render_array(field, values.blobs[blob], names);
  return render_string(values.blobs[blob]);
}

// The values in the order of their names: see gpuperf_plan.shape_swap.
CallValues put_shape_right(const ArgumentPlan& plan, CallValues values) {
  if (plan.rules.shape_swap != 0 && values.values[plan.rules.shape_swap - size_t{1}] != 0)
    std::swap(values.values[0], values.values[2]);
  return values;
}

std::vector<ArgumentText> render_registers(const CallValues& values) {
  std::vector<ArgumentText> texts;
  for (size_t i = 0; i < GPUPERF_ARGUMENTS; ++i) {
    texts.push_back({fmt::format("arg{}", i), fmt::format("0x{:x}", values.values[i])});
  }
  return texts;
}

template <class T>
bool has_same_bytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;  // types of the contract: no hidden padding
}

bool is_same_field(const ArgumentField& a, const ArgumentField& b) {
  return a.name == b.name && a.format == b.format && has_same_bytes(a.capture, b.capture) &&
         a.codes.data() == b.codes.data() && a.codes.size() == b.codes.size() &&
         a.element == b.element && a.element_bytes == b.element_bytes && a.count == b.count;
}

}  // namespace

bool operator==(const ArgumentPlan& a, const ArgumentPlan& b) {
  return std::ranges::equal(a.fields, b.fields, is_same_field) &&
         has_same_bytes(a.rules, b.rules) && a.shape_types == b.shape_types &&
         a.report == b.report && a.step_role == b.step_role;
}

bool is_same_plan(const std::shared_ptr<const ArgumentPlan>& a,
                  const std::shared_ptr<const ArgumentPlan>& b) {
  return a == b || (a && b && *a == *b);
}

std::array<uint16_t, 4> get_shape_types(const ArgumentPlan* plan,
                                        const std::array<uint16_t, 4>& kept) {
  return plan && plan->shape_types ? *plan->shape_types : kept;
}

int64_t get_number(const ArgumentField& field, uint64_t kept) {
  const uint64_t value = keep_low_bytes(kept, field.capture.size_bytes);
  const bool is_signed =
      field.format == ArgumentFormat::kSigned || field.format == ArgumentFormat::kCode;
  return is_signed ? sign_extend(value, field.capture.size_bytes) : static_cast<int64_t>(value);
}

gpuperf_plan to_contract(const ArgumentPlan& plan) {
  gpuperf_plan contract = plan.rules;
  contract.capture_count =
      static_cast<uint8_t>(std::min<size_t>(plan.fields.size(), GPUPERF_VALUES));
  for (size_t i = 0; i < contract.capture_count; ++i) {
    contract.captures[i] = plan.fields[i].capture;
  }
  return contract;
}

std::vector<ArgumentText> render_arguments(const ArgumentPlan* plan, const CallValues& values,
                                           const ArgumentNames& names) {
  if (!plan) return render_registers(values);
  const CallValues ordered = put_shape_right(*plan, values);
  const size_t count = std::min<size_t>(plan->fields.size(), GPUPERF_VALUES);
  std::vector<ArgumentText> texts;
  for (size_t i = 0; i < count; ++i) {
    const ArgumentField& field = plan->fields[i];
    if (field.format == ArgumentFormat::kHidden) continue;
    std::string text = render_field(field, i, ordered, names);
    if (!field.name.empty()) {
      const bool is_group = i + 1 < count && plan->fields[i + 1].name.empty() &&
                            plan->fields[i + 1].format != ArgumentFormat::kHidden;
      texts.push_back({field.name, is_group ? "(" + text + ")" : std::move(text)});
    } else if (!texts.empty()) {
      texts.back().value.insert(texts.back().value.size() - 1, ", " + text);
    }
  }
  return texts;
}

}  // namespace gpuperf
