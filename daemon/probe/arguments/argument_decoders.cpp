#include "daemon/probe/arguments/argument_decoders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/model/data_types.h"
#include "daemon/probe/arguments/argument_rows.h"

namespace gpuperf {
namespace {

// Streams that are no pointers: driver_types.h.
constexpr CodeName kStreams[] = {{0, "default"}, {1, "legacy"}, {2, "per_thread"}};

FieldRow make_field(std::string_view name, ArgumentFormat format, uint8_t source,
                    uint8_t size_bytes) {
  FieldRow row;
  row.field.name = name;
  row.field.format = format;
  row.field.capture.source = source;
  row.field.capture.size_bytes = size_bytes;
  return row;
}

void apply_use(ValueUse use, uint8_t value, gpuperf_plan& rules) {
  switch (use) {
    case ValueUse::kNone:
      return;
    case ValueUse::kByteFactor: {
      auto* free = std::ranges::find(rules.byte_factors, 0);
      if (free != std::end(rules.byte_factors)) *free = value;
      return;
    }
    case ValueUse::kElementType:
      rules.byte_type = value;
      for (const NcclTypeBytes& type : nccl_type_bytes())
        rules.element_bytes[type.code] = type.element_bytes;
      return;
    case ValueUse::kCopyKind:
      rules.byte_kind = value;
      return;
    case ValueUse::kHandle:
      rules.name_handle = value;
      return;
    case ValueUse::kHandleName:
      rules.name_text = value;
      return;
    case ValueUse::kHandleSource:
      rules.name_source = value;
      return;
    case ValueUse::kResult:
      rules.result_at = value;
      return;
  }
}

ArgumentPlan make_plan(const DecoderRow& row) {
  ArgumentPlan plan;
  plan.rules.byte_slot = row.byte_slot;
  plan.rules.element_bytes[0] = row.element_bytes;
  plan.rules.shape_dimensions = row.shape_dimensions;
  plan.shape_types = row.shape_types;
  plan.rules.shape_swap = row.shape_swap;
  plan.report = row.report;
  for (const FieldRow& field : row.fields) {
    plan.fields.push_back(field.field);
    apply_use(field.use, static_cast<uint8_t>(plan.fields.size()), plan.rules);
  }
  return plan;
}

struct Decoders {
  std::map<std::string_view, std::shared_ptr<const ArgumentPlan>> by_symbol;
  std::vector<std::string_view> symbols;
};

Decoders make_decoders() {
  Decoders decoders;
  for (const auto& rows :
       {make_runtime_rows(), make_driver_rows(), make_cublas_rows(), make_nccl_rows()}) {
    for (const DecoderRow& row : rows) {
      const auto plan = std::make_shared<const ArgumentPlan>(make_plan(row));
      for (const std::string_view symbol : row.symbols) decoders.by_symbol.emplace(symbol, plan);
    }
  }
  for (const auto& [symbol, plan] : decoders.by_symbol) decoders.symbols.push_back(symbol);
  return decoders;
}

const Decoders& decoders() {
  static const Decoders kDecoders = make_decoders();
  return kDecoders;
}

}  // namespace

FieldRow make_u32(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kUnsigned, source, 4);
}
FieldRow make_u64(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kUnsigned, source, 8);
}
FieldRow make_i32(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kSigned, source, 4);
}
FieldRow make_i64(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kSigned, source, 8);
}
FieldRow make_pointer(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kHex, source, 8);
}

FieldRow make_code(std::string_view name, uint8_t source, std::span<const CodeName> codes) {
  FieldRow row = make_field(name, ArgumentFormat::kCode, source, 4);
  row.field.codes = codes;
  return row;
}

FieldRow make_stream(uint8_t source) {
  FieldRow row = make_pointer("stream", source);
  row.field.codes = kStreams;
  return row;
}

FieldRow make_bytes(uint8_t source) { return as_factor(make_u64("bytes", source)); }

FieldRow make_kernel_function(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kKernelFunction, source, 8);
}
FieldRow make_kernel_handle(std::string_view name, uint8_t source) {
  return make_field(name, ArgumentFormat::kKernelHandle, source, 8);
}

FieldRow make_string(std::string_view name, uint8_t source) {
  FieldRow row = make_field(name, ArgumentFormat::kString, source, 8);
  row.field.capture.blob = 1;
  return row;
}

FieldRow make_hidden_pointer(uint8_t source, ValueUse use) {
  FieldRow row = make_field("", ArgumentFormat::kHidden, source, 8);
  row.use = use;
  return row;
}

FieldRow make_nothing(uint8_t pointer_source) {
  FieldRow row = make_field("", ArgumentFormat::kHidden, pointer_source, 1);
  row.field.capture.shift_bits = 63;  // user space ends below 2^63
  return row;
}

FieldRow in_memory(FieldRow row, std::initializer_list<int32_t> offsets_bytes) {
  row.field.capture.loads = static_cast<uint8_t>(offsets_bytes.size());
  std::ranges::copy(offsets_bytes, row.field.capture.offset_bytes);
  return row;
}

FieldRow as_factor(FieldRow row) {
  row.use = ValueUse::kByteFactor;
  return row;
}

FieldRow as_handle_source(FieldRow row) {
  row.use = ValueUse::kHandleSource;
  return row;
}

FieldRow in_upper_half(FieldRow row) {
  row.field.capture.shift_bits = 32;
  return row;
}

std::shared_ptr<const ArgumentPlan> find_argument_decoder(std::string_view symbol) {
  for (const std::string_view variant : {"_ptsz", "_ptds"}) {
    if (symbol.ends_with(variant)) symbol.remove_suffix(variant.size());
  }
  if (symbol.starts_with("pnccl")) symbol.remove_prefix(1);
  const auto found = decoders().by_symbol.find(symbol);
  return found == decoders().by_symbol.end() ? nullptr : found->second;
}

std::shared_ptr<const ArgumentPlan> add_role(const ArgumentPlan& plan, StepRole role) {
  auto with_role = std::make_shared<ArgumentPlan>(plan);
  with_role->report = CallReport::kStep;
  with_role->step_role = role;
  return with_role;
}

std::span<const std::string_view> argument_decoder_symbols() { return decoders().symbols; }

}  // namespace gpuperf
