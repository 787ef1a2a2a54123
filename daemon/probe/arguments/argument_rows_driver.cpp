// CUDA driver: signatures of cuda.h, CUDA 13.0. Symbols are those that programs built since CUDA 4
// call: cuMemAlloc in a program is cuMemAlloc_v2 in the library, and the symbol cuMemAlloc has
// 32-bit addresses, which nobody calls any more.

#include "daemon/probe/arguments/argument_rows.h"

namespace gpuperf {
namespace {

constexpr uint8_t kHostToDevice = GPUPERF_BYTES_HOST_TO_DEVICE;
constexpr uint8_t kDeviceToHost = GPUPERF_BYTES_DEVICE_TO_HOST;
constexpr uint8_t kDeviceToDevice = GPUPERF_BYTES_DEVICE_TO_DEVICE;
constexpr uint8_t kInferred = GPUPERF_BYTES_DEFAULT;  // or told by two values, not by one

constexpr CodeName kMemoryTypes[] = {{1, "host"}, {2, "device"}, {3, "array"}, {4, "unified"}};

FieldRow dst(uint8_t source) { return make_pointer("dst", source); }
FieldRow src(uint8_t source) { return make_pointer("src", source); }
FieldRow address(uint8_t source) { return make_pointer("address", source); }
FieldRow factor(std::string_view name, uint8_t source) { return as_factor(make_u64(name, source)); }

FieldRows operator+(FieldRows fields, FieldRow more) {
  fields.push_back(std::move(more));
  return fields;
}

void add_copies(std::vector<DecoderRow>& rows) {
  const FieldRows plain = {dst(0), src(1), make_bytes(2)};
  const FieldRows to_array = {dst(0), make_u64("dst_offset_bytes", 1), src(2), make_bytes(3)};
  const FieldRows from_array = {dst(0), src(1), make_u64("src_offset_bytes", 2), make_bytes(3)};
  const FieldRows peer = {dst(0), make_pointer("dst_context", 1), src(2),
                          make_pointer("src_context", 3), make_bytes(4)};
  rows.insert(rows.end(), {{{"cuMemcpy"}, plain, kInferred},
                           {{"cuMemcpyAsync"}, plain + make_stream(3), kInferred},
                           {{"cuMemcpyHtoD_v2"}, plain, kHostToDevice},
                           {{"cuMemcpyHtoDAsync_v2"}, plain + make_stream(3), kHostToDevice},
                           {{"cuMemcpyDtoH_v2"}, plain, kDeviceToHost},
                           {{"cuMemcpyDtoHAsync_v2"}, plain + make_stream(3), kDeviceToHost},
                           {{"cuMemcpyDtoD_v2"}, plain, kDeviceToDevice},
                           {{"cuMemcpyDtoDAsync_v2"}, plain + make_stream(3), kDeviceToDevice},
                           {{"cuMemcpyHtoA_v2"}, to_array, kHostToDevice},
                           {{"cuMemcpyHtoAAsync_v2"}, to_array + make_stream(4), kHostToDevice},
                           {{"cuMemcpyAtoH_v2"}, from_array, kDeviceToHost},
                           {{"cuMemcpyAtoHAsync_v2"}, from_array + make_stream(4), kDeviceToHost},
                           {{"cuMemcpyDtoA_v2"}, to_array, kDeviceToDevice},
                           {{"cuMemcpyAtoD_v2"}, from_array, kDeviceToDevice},
                           {{"cuMemcpyPeer"}, peer, kDeviceToDevice},
                           {{"cuMemcpyPeerAsync"}, peer + make_stream(5), kDeviceToDevice}});
}

// CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER: the width is in bytes whatever takes part.
void add_copies_with_params(std::vector<DecoderRow>& rows) {
  const auto at = [](FieldRow row, int32_t offset_bytes) {
    return in_memory(std::move(row), {offset_bytes});
  };
  const FieldRows flat = {at(make_code("from", 0, kMemoryTypes), 16),
                          at(make_code("to", 0, kMemoryTypes), 72),
                          at(factor("width_bytes", 0), 112), at(factor("height", 0), 120)};
  const FieldRows deep = {
      at(make_code("from", 0, kMemoryTypes), 32), at(make_code("to", 0, kMemoryTypes), 120),
      at(factor("width_bytes", 0), 176), at(factor("height", 0), 184), at(factor("depth", 0), 192)};
  rows.insert(rows.end(), {{{"cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2"}, flat, kInferred},
                           {{"cuMemcpy2DAsync_v2"}, flat + make_stream(1), kInferred},
                           {{"cuMemcpy3D_v2"}, deep, kInferred},
                           {{"cuMemcpy3DAsync_v2"}, deep + make_stream(1), kInferred},
                           {{"cuMemcpy3DPeer"}, deep, kDeviceToDevice},
                           {{"cuMemcpy3DPeerAsync"}, deep + make_stream(1), kDeviceToDevice}});
}

// The number of elements times what one of them takes.
DecoderRow make_set(std::vector<std::string_view> symbols, FieldRows fields,
                    uint8_t element_bytes) {
  return {
      .symbols = std::move(symbols), .fields = std::move(fields), .element_bytes = element_bytes};
}

// The value set is one element wide: narrower ones leave the rest of their register undefined.
FieldRow make_value(uint8_t source, uint8_t element_bytes) {
  FieldRow row = make_u32("value", source);
  row.field.capture.size_bytes = element_bytes;
  return row;
}

void add_sets(std::vector<DecoderRow>& rows) {
  struct Width {
    uint8_t element_bytes;
    std::string_view plain, plain_async, flat, flat_async;
  };
  constexpr Width kWidths[] = {
      {1, "cuMemsetD8_v2", "cuMemsetD8Async", "cuMemsetD2D8_v2", "cuMemsetD2D8Async"},
      {2, "cuMemsetD16_v2", "cuMemsetD16Async", "cuMemsetD2D16_v2", "cuMemsetD2D16Async"},
      {4, "cuMemsetD32_v2", "cuMemsetD32Async", "cuMemsetD2D32_v2", "cuMemsetD2D32Async"},
  };
  for (const Width& width : kWidths) {
    const FieldRows plain = {address(0), make_value(1, width.element_bytes), factor("elements", 2)};
    const FieldRows flat = {address(0), make_value(2, width.element_bytes), factor("width", 3),
                            factor("height", 4)};
    rows.push_back(make_set({width.plain}, plain, width.element_bytes));
    rows.push_back(make_set({width.plain_async}, plain + make_stream(3), width.element_bytes));
    rows.push_back(make_set({width.flat}, flat, width.element_bytes));
    rows.push_back(make_set({width.flat_async}, flat + make_stream(5), width.element_bytes));
  }
}

// A row of which each call is reported: what processes hold is known from those.
DecoderRow make_reported(std::vector<std::string_view> symbols, FieldRows fields) {
  return {
      .symbols = std::move(symbols), .fields = std::move(fields), .report = CallReport::kMemory};
}

// CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR.
FieldRows make_array_fields() {
  return {in_memory(make_u64("width", 1), {0}), in_memory(make_u64("height", 1), {8}),
          in_memory(make_u32("format", 1), {16}), in_memory(make_u32("channels", 1), {20})};
}
FieldRows make_deep_array_fields() {
  return {in_memory(make_u64("width", 1), {0}),     in_memory(make_u64("height", 1), {8}),
          in_memory(make_u64("depth", 1), {16}),    in_memory(make_u32("format", 1), {24}),
          in_memory(make_u32("channels", 1), {28}), in_memory(make_u32("flags", 1), {32})};
}

// Bytes as asked for. Reserving and mapping addresses allocates nothing: sizes there are shown and
// not added up.
void add_memory(std::vector<DecoderRow>& rows) {
  const FieldRow flags = make_u32("flags", 2);
  const FieldRow range = make_u64("range_bytes", 1);
  const FieldRow result = make_hidden_pointer(0, ValueUse::kResult);
  rows.insert(
      rows.end(),
      {make_reported({"cuMemAlloc_v2", "cuMemAllocHost_v2"}, {make_bytes(1), result}),
       make_reported({"cuMemAllocManaged", "cuMemHostAlloc"}, {make_bytes(1), flags, result}),
       make_reported({"cuMemAllocAsync"}, {make_bytes(1), make_stream(2), result}),
       make_reported({"cuMemAllocFromPoolAsync"},
                     {make_bytes(1), make_pointer("pool", 2), make_stream(3), result}),
       make_reported({"cuMemAllocPitch_v2"},
                     {factor("width_bytes", 2), factor("height", 3), result}),
       make_reported({"cuMemHostRegister_v2"}, {address(0), make_bytes(1), flags}),
       make_reported(
           {"cuMemHostUnregister", "cuMemFree_v2", "cuMemFreeHost", "cuIpcCloseMemHandle"},
           {address(0)}),
       make_reported({"cuMemFreeAsync"}, {address(0), make_stream(1)}),
       // A CUipcMemHandle (64 bytes) by value: on the stack.
       make_reported({"cuIpcOpenMemHandle_v2"}, {make_u32("flags", 1), result}),
       {{"cuMemAddressReserve"}, {range}},
       {{"cuMemAddressFree", "cuMemSetAccess"}, {address(0), range}},
       {{"cuMemPrefetchAsync_v2"}, {address(0), make_bytes(1)}}});
}

void add_virtual_memory(std::vector<DecoderRow>& rows) {
  const FieldRow result = make_hidden_pointer(0, ValueUse::kResult);
  const FieldRow range = make_u64("range_bytes", 1);
  rows.insert(rows.end(),
              {make_reported({"cuMemCreate"}, {make_bytes(1), result}),
               make_reported({"cuMemImportFromShareableHandle"}, {result}),
               make_reported({"cuMemRetainAllocationHandle"}, {address(1), result}),
               make_reported({"cuMemRelease"}, {make_pointer("handle", 0)}),
               make_reported({"cuMemUnmap"}, {address(0), range}),
               make_reported({"cuMemMap"}, {address(0), range, make_u64("offset_bytes", 2),
                                            make_pointer("handle", 3)})});
}

void add_arrays(std::vector<DecoderRow>& rows) {
  const FieldRow result = make_hidden_pointer(0, ValueUse::kResult);
  rows.insert(rows.end(), {make_reported({"cuArrayCreate_v2"}, make_array_fields() + result),
                           make_reported({"cuArray3DCreate_v2"}, make_deep_array_fields() + result),
                           make_reported({"cuMipmappedArrayCreate"},
                                         make_deep_array_fields() + make_u32("levels", 2) + result),
                           make_reported({"cuArrayDestroy", "cuMipmappedArrayDestroy"},
                                         {make_pointer("handle", 0)})});
}

// What a context allocated ends with it.
void add_contexts(std::vector<DecoderRow>& rows) {
  rows.insert(rows.end(),
              {make_reported({"cuCtxCreate_v4"}, {make_hidden_pointer(0, ValueUse::kResult)}),
               make_reported({"cuCtxDestroy_v2"}, {make_pointer("context", 0)}),
               make_reported({"cuDevicePrimaryCtxRetain"}, {make_i32("device", 1)}),
               make_reported({"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"},
                             {make_i32("device", 0)})});
}

void add_launches(std::vector<DecoderRow>& rows) {
  FieldRows launch = {make_kernel_handle("kernel", 0)};
  FieldRows by_config = {make_kernel_handle("kernel", 1)};
  uint8_t source = 1;  // three arguments each for grid and block; the last one lies on the stack
  int32_t offset_bytes = 0;
  for (const char* name : {"grid", "", "", "block", "", ""}) {
    launch.push_back(make_u32(name, source++));
    by_config.push_back(in_memory(make_u32(name, 0), {offset_bytes}));
    offset_bytes += 4;
  }
  // CUlaunchConfig: grid, block, shared memory, stream, attributes.
  by_config.push_back(in_memory(make_u32("shared_bytes", 0), {24}));
  by_config.push_back(in_memory(make_stream(0), {32}));
  rows.insert(
      rows.end(),
      {{{"cuLaunchKernel", "cuLaunchCooperativeKernel"},
        std::move(launch) + make_u32("shared_bytes", 7) + make_stream(8)},
       {{"cuLaunchKernelEx"}, by_config},
       {{"cuLaunchHostFunc"}, {make_kernel_function("function", 1), make_stream(0)}},
       {{"cuGraphLaunch", "cuGraphUpload"}, {make_pointer("graph", 0), make_stream(1)}},
       // (handle, where from, name): the handle is left at the first.
       {{"cuModuleGetFunction", "cuLibraryGetKernel"},
        {make_hidden_pointer(0, ValueUse::kHandle), make_hidden_pointer(2, ValueUse::kHandleName),
         make_string("name", 2), make_pointer("from", 1)}},
       // (handle, the kernel it stands for): launches may use either.
       {{"cuKernelGetFunction"},
        {make_hidden_pointer(0, ValueUse::kHandle),
         as_handle_source(make_kernel_handle("kernel", 1))}}});
}

void add_waits(std::vector<DecoderRow>& rows) {
  rows.insert(
      rows.end(),
      {{{"cuCtxSynchronize"}, {}},
       {{"cuStreamSynchronize", "cuStreamQuery"}, {make_stream(0)}},
       {{"cuEventSynchronize", "cuEventQuery"}, {make_pointer("event", 0)}},
       {{"cuEventRecord"}, {make_pointer("event", 0), make_stream(1)}},
       {{"cuStreamWaitEvent"}, {make_stream(0), make_pointer("event", 1), make_u32("flags", 2)}},
       {{"cuStreamWaitValue32_v2"},
        {make_stream(0), address(1), make_u32("value", 2), make_u32("flags", 3)}},
       {{"cuStreamWaitValue64_v2"},
        {make_stream(0), address(1), make_u64("value", 2), make_u32("flags", 3)}}});
}

}  // namespace

std::vector<DecoderRow> make_driver_rows() {
  std::vector<DecoderRow> rows;
  add_copies(rows);
  add_copies_with_params(rows);
  add_sets(rows);
  add_memory(rows);
  add_virtual_memory(rows);
  add_arrays(rows);
  add_contexts(rows);
  add_launches(rows);
  add_waits(rows);
  return rows;
}

}  // namespace gpuperf
