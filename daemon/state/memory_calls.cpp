#include "daemon/state/memory_calls.h"

#include <algorithm>
#include <string_view>

namespace gpuperf {
namespace {

using Operation = MemoryCall::Operation;
using Space = MemoryCall::Space;

struct Row {
  std::string_view symbol;
  Operation operation;
  Space space = Space::kAddress;
  MemoryKind kind = MemoryKind::kDevice;
};

// Without "_ptsz", the same for per-thread default streams.
constexpr Row kRows[] = {
    {"cuMemAlloc_v2", Operation::kAllocate},
    {"cuMemAllocPitch_v2", Operation::kAllocate},
    {"cuMemAllocAsync", Operation::kAllocate, Space::kAddress, MemoryKind::kAsync},
    {"cuMemAllocFromPoolAsync", Operation::kAllocate, Space::kAddress, MemoryKind::kAsync},
    {"cuMemAllocManaged", Operation::kAllocate, Space::kAddress, MemoryKind::kManaged},
    {"cuMemAllocHost_v2", Operation::kAllocate, Space::kAddress, MemoryKind::kPinned},
    {"cuMemHostAlloc", Operation::kAllocate, Space::kAddress, MemoryKind::kPinned},
    {"cuMemHostRegister_v2", Operation::kAllocate, Space::kAddress, MemoryKind::kRegistered},
    {"cuIpcOpenMemHandle_v2", Operation::kAllocate, Space::kAddress, MemoryKind::kImported},
    {"cuArrayCreate_v2", Operation::kAllocate, Space::kArray, MemoryKind::kArray},
    {"cuArray3DCreate_v2", Operation::kAllocate, Space::kArray, MemoryKind::kArray},
    {"cuMipmappedArrayCreate", Operation::kAllocate, Space::kArray, MemoryKind::kArray},
    {"cuMemCreate", Operation::kAllocate, Space::kHandle, MemoryKind::kVirtual},
    {"cuMemImportFromShareableHandle", Operation::kAllocate, Space::kHandle, MemoryKind::kImported},
    {"cuMemFree_v2", Operation::kRelease},
    {"cuMemFreeAsync", Operation::kRelease},
    {"cuMemFreeHost", Operation::kRelease},
    {"cuMemHostUnregister", Operation::kRelease},
    {"cuIpcCloseMemHandle", Operation::kRelease},
    {"cuArrayDestroy", Operation::kRelease, Space::kArray},
    {"cuMipmappedArrayDestroy", Operation::kRelease, Space::kArray},
    {"cuMemRelease", Operation::kRelease, Space::kHandle},
    {"cuMemMap", Operation::kMap},
    {"cuMemUnmap", Operation::kUnmap},
    {"cuMemRetainAllocationHandle", Operation::kRetain},
    {"cuCtxCreate_v4", Operation::kContextBegins},
    {"cuDevicePrimaryCtxRetain", Operation::kContextBegins},
    {"cuCtxDestroy_v2", Operation::kContextEnds},
    {"cuDevicePrimaryCtxRelease_v2", Operation::kContextEnds},
    {"cuDevicePrimaryCtxReset_v2", Operation::kContextEnds},
};

constexpr std::string_view kPrimary = "cuDevicePrimaryCtx";
constexpr std::string_view kReset = "cuDevicePrimaryCtxReset_v2";
constexpr std::string_view kPerThread = "_ptsz";
constexpr uint64_t kLayered = 1;  // CUDA_ARRAY3D_LAYERED: depth counts layers

const Row* find_row(std::string_view symbol) {
  if (symbol.ends_with(kPerThread)) symbol.remove_suffix(kPerThread.size());
  const Row* found = std::ranges::find(kRows, symbol, &Row::symbol);
  return found == std::end(kRows) ? nullptr : found;
}

// The call's values by the names of their fields.
class Values {
 public:
  Values(const Function& function, const ReportedCall& call)
      : plan_(function.arguments.get()), values_(call.values ? &*call.values : nullptr) {}

  bool has(std::string_view name) const { return find(name) != kNone; }
  uint64_t get(std::string_view name) {
    const size_t at = find(name);
    const bool is_read = at != kNone && values_ != nullptr && (values_->unread >> at & 1) == 0;
    if (!is_read) is_unreadable_ = true;
    return is_read ? values_->values[at] : 0;
  }
  bool is_unreadable() const { return is_unreadable_; }
  void set_unreadable() { is_unreadable_ = true; }

 private:
  static constexpr size_t kNone = GPUPERF_VALUES;

  size_t find(std::string_view name) const {
    if (plan_ == nullptr) return kNone;
    const auto found = std::ranges::find(plan_->fields, name, &ArgumentField::name);
    const auto at = static_cast<size_t>(found - plan_->fields.begin());
    return at < plan_->fields.size() ? std::min(at, kNone) : kNone;
  }

  const ArgumentPlan* plan_;
  const CallValues* values_;
  bool is_unreadable_ = false;
};

// CUarray_format: 0 = compressed, planar and others, whose elements have no bytes of their own.
uint64_t get_element_bytes(uint64_t format) {
  switch (format) {
    case 0x01:  // unsigned and signed integers of 8, 16 and 32 bits
    case 0x08:
      return 1;
    case 0x02:
    case 0x09:
    case 0x10:  // half
      return 2;
    case 0x03:
    case 0x0a:
    case 0x20:  // float
      return 4;
    default:
      return 0;
  }
}

uint64_t get_array_bytes(Values& values) {
  const uint64_t element_bytes = get_element_bytes(values.get("format")) * values.get("channels");
  if (element_bytes == 0) values.set_unreadable();
  const uint64_t width = values.get("width");
  const uint64_t height = values.get("height");
  const uint64_t depth = values.has("depth") ? values.get("depth") : 0;
  const bool is_layered = values.has("flags") && (values.get("flags") & kLayered) != 0;
  const uint64_t levels = values.has("levels") ? values.get("levels") : 1;
  uint64_t bytes = 0;
  for (uint64_t level = 0; level < std::min<uint64_t>(levels, 64); ++level) {
    const auto halve = [level](uint64_t size) { return std::max<uint64_t>(size >> level, 1); };
    bytes += halve(width) * halve(height) *
             (is_layered ? std::max<uint64_t>(depth, 1) : halve(depth)) * element_bytes;
  }
  return bytes;
}

uint64_t get_bytes(const Row& row, Values& values) {
  if (row.kind == MemoryKind::kImported) return 0;
  if (row.space == Space::kArray) return get_array_bytes(values);
  if (values.has("width_bytes")) return values.get("width_bytes") * values.get("height");
  return values.get("bytes");
}

void read_operation(const Row& row, Values& values, uint64_t result, MemoryCall& call) {
  const auto get_result = [&] {
    if (result == 0) values.set_unreadable();
    return result;
  };
  switch (row.operation) {
    case Operation::kAllocate:
      call.bytes = get_bytes(row, values);
      if (call.status != 0) return;
      call.place = row.kind == MemoryKind::kRegistered ? values.get("address") : get_result();
      return;
    case Operation::kRelease:
      call.place = values.get(row.space == Space::kAddress ? "address" : "handle");
      return;
    case Operation::kMap:
      call.place = values.get("address");
      call.handle = values.get("handle");
      return;
    case Operation::kUnmap:
      call.place = values.get("address");
      call.bytes = values.get("range_bytes");
      return;
    case Operation::kRetain:
      call.place = values.get("address");
      call.handle = get_result();
      return;
    case Operation::kContextBegins:
      call.place = call.is_primary ? values.get("device") : get_result();
      return;
    case Operation::kContextEnds:
      call.place = values.get(call.is_primary ? "device" : "context");
      return;
  }
}

}  // namespace

std::optional<MemoryCall> read_memory_call(const Function& function, const ReportedCall& reported) {
  const Row* row = find_row(function.symbol);
  if (row == nullptr) return std::nullopt;
  Values values(function, reported);
  MemoryCall call{.operation = row->operation,
                  .space = row->space,
                  .kind = row->kind,
                  .is_ended_whole = row->symbol == kReset || !row->symbol.starts_with(kPrimary),
                  .is_primary = row->symbol.starts_with(kPrimary),
                  .start_mono_ns = reported.start_mono_ns,
                  .end_mono_ns = reported.start_mono_ns + reported.duration_ns,
                  .status = static_cast<int32_t>(reported.return_value.value_or(0))};
  read_operation(*row, values, reported.result, call);
  call.is_unreadable = values.is_unreadable();
  return call;
}

}  // namespace gpuperf
