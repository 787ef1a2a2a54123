// CUDA runtime: signatures of cuda_runtime_api.h, CUDA 13.0.

#include "daemon/probe/arguments/argument_rows.h"

namespace gpuperf {
namespace {

constexpr CodeName kCopyKinds[] = {{0, "host_to_host"},
                                   {1, "host_to_device"},
                                   {2, "device_to_host"},
                                   {3, "device_to_device"},
                                   {4, "default"}};

FieldRow make_copy_kind(uint8_t source) {
  FieldRow row = make_code("kind", source, kCopyKinds);
  row.use = ValueUse::kCopyKind;
  return row;
}

// A two-dimensional copy or set: bytes = width, itself in bytes, x height.
FieldRow make_width(uint8_t source) { return as_factor(make_u64("width_bytes", source)); }
FieldRow make_height(uint8_t source) { return as_factor(make_u64("height", source)); }
FieldRow make_depth(uint8_t source) { return as_factor(make_u64("depth", source)); }

FieldRow dst(uint8_t source) { return make_pointer("dst", source); }
FieldRow src(uint8_t source) { return make_pointer("src", source); }
FieldRow address(uint8_t source) { return make_pointer("address", source); }

FieldRows operator+(FieldRows fields, FieldRow more) {
  fields.push_back(std::move(more));
  return fields;
}

// Copies: the direction is an argument, or known from the function.
void add_copies(std::vector<DecoderRow>& rows) {
  constexpr uint8_t kPeer = GPUPERF_BYTES_DEVICE_TO_DEVICE;
  const FieldRows plain = {dst(0), src(1), make_bytes(2), make_copy_kind(3)};
  const FieldRows symbol = {dst(0), src(1), make_bytes(2), make_u64("offset_bytes", 3),
                            make_copy_kind(4)};
  const FieldRows array = {dst(0), src(3), make_bytes(4), make_copy_kind(5)};
  const FieldRows from_array = {dst(0), src(1), make_bytes(4), make_copy_kind(5)};
  const FieldRows flat = {dst(0), src(2), make_width(4), make_height(5), make_copy_kind(6)};
  const FieldRows flat_to_array = {dst(0), src(3), make_width(5), make_height(6),
                                   make_copy_kind(7)};
  const FieldRows flat_from_array = {dst(0), src(2), make_width(5), make_height(6),
                                     make_copy_kind(7)};
  const FieldRows peer = {dst(0), make_i32("dst_device", 1), src(2), make_i32("src_device", 3),
                          make_bytes(4)};
  rows.insert(rows.end(),
              {{{"cudaMemcpy"}, plain},
               {{"cudaMemcpyAsync"}, plain + make_stream(4)},
               {{"cudaMemcpyToSymbol", "cudaMemcpyFromSymbol"}, symbol},
               {{"cudaMemcpyToSymbolAsync", "cudaMemcpyFromSymbolAsync"}, symbol + make_stream(5)},
               {{"cudaMemcpyToArray"}, array},
               {{"cudaMemcpyToArrayAsync"}, array + make_stream(6)},
               {{"cudaMemcpyFromArray"}, from_array},
               {{"cudaMemcpyFromArrayAsync"}, from_array + make_stream(6)},
               {{"cudaMemcpyArrayToArray"}, {dst(0), src(3), make_bytes(6), make_copy_kind(7)}},
               {{"cudaMemcpy2D"}, flat},
               {{"cudaMemcpy2DAsync"}, flat + make_stream(7)},
               {{"cudaMemcpy2DToArray"}, flat_to_array},
               {{"cudaMemcpy2DToArrayAsync"}, flat_to_array + make_stream(8)},
               {{"cudaMemcpy2DFromArray"}, flat_from_array},
               {{"cudaMemcpy2DFromArrayAsync"}, flat_from_array + make_stream(8)},
               {{"cudaMemcpy2DArrayToArray"},
                {dst(0), src(3), make_width(6), make_height(7), make_copy_kind(8)}},
               {{"cudaMemcpyPeer"}, peer, kPeer},
               {{"cudaMemcpyPeerAsync"}, peer + make_stream(5), kPeer}});
}

// cudaMemcpy3DParms and cudaMemcpy3DPeerParms. The width is in bytes between two pointers, and in
// elements as soon as an array takes part: its bytes are then too few.
void add_copies_3d(std::vector<DecoderRow>& rows) {
  constexpr uint8_t kPeer = GPUPERF_BYTES_DEVICE_TO_DEVICE;
  const FieldRows copy = {
      in_memory(dst(0), {96}),         in_memory(src(0), {32}),
      in_memory(make_width(0), {128}), in_memory(make_height(0), {136}),
      in_memory(make_depth(0), {144}), in_memory(make_copy_kind(0), {152}),
  };
  const FieldRows peer = {
      in_memory(dst(0), {104}),        in_memory(make_i32("dst_device", 0), {136}),
      in_memory(src(0), {32}),         in_memory(make_i32("src_device", 0), {64}),
      in_memory(make_width(0), {144}), in_memory(make_height(0), {152}),
      in_memory(make_depth(0), {160}),
  };
  rows.insert(rows.end(), {{{"cudaMemcpy3D"}, copy},
                           {{"cudaMemcpy3DAsync"}, copy + make_stream(1)},
                           {{"cudaMemcpy3DPeer"}, peer, kPeer},
                           {{"cudaMemcpy3DPeerAsync"}, peer + make_stream(1), kPeer}});
}

void add_sets(std::vector<DecoderRow>& rows) {
  const FieldRows plain = {address(0), make_i32("value", 1), make_bytes(2)};
  const FieldRows flat = {address(0), make_i32("value", 2), make_width(3), make_height(4)};
  // A cudaPitchedPtr (32 bytes) and a cudaExtent (24) by value: on the stack, in this order.
  const FieldRows deep = {address(6), make_i32("value", 0), make_width(10), make_height(11),
                          make_depth(12)};
  rows.insert(rows.end(), {{{"cudaMemset"}, plain},
                           {{"cudaMemsetAsync"}, plain + make_stream(3)},
                           {{"cudaMemset2D"}, flat},
                           {{"cudaMemset2DAsync"}, flat + make_stream(5)},
                           {{"cudaMemset3D"}, deep},
                           {{"cudaMemset3DAsync"}, deep + make_stream(1)}});
}

// Bytes as asked for, before the driver rounds up. The address is known only at return, and the
// argument shown is where it will be left.
void add_memory(std::vector<DecoderRow>& rows) {
  const FieldRow flags = make_u32("flags", 2);
  rows.insert(rows.end(), {{{"cudaMalloc", "cudaMallocHost"}, {make_bytes(1)}},
                           {{"cudaMallocManaged", "cudaHostAlloc"}, {make_bytes(1), flags}},
                           {{"cudaMallocAsync"}, {make_bytes(1), make_stream(2)}},
                           {{"cudaMallocFromPoolAsync"},
                            {make_bytes(1), make_pointer("pool", 2), make_stream(3)}},
                           {{"cudaMallocPitch"}, {make_width(2), make_height(3)}},
                           // A cudaExtent (24 bytes) by value: on the stack.
                           {{"cudaMalloc3D"}, {make_width(6), make_height(7), make_depth(8)}},
                           {{"cudaHostRegister"}, {address(0), make_bytes(1), flags}},
                           {{"cudaHostUnregister", "cudaFree", "cudaFreeHost"}, {address(0)}},
                           {{"cudaFreeAsync"}, {address(0), make_stream(1)}},
                           {{"cudaMemPrefetchAsync"}, {address(0), make_bytes(1)}}});
}

FieldRows make_grid_in_memory(uint8_t config_source) {
  FieldRows fields;
  int32_t offset_bytes = 0;
  for (const char* name : {"grid", "", "", "block", "", ""}) {
    fields.push_back(in_memory(make_u32(name, config_source), {offset_bytes}));
    offset_bytes += 4;
  }
  return fields;
}

// A dim3 by value takes two registers: x and y share the first.
void add_launches(std::vector<DecoderRow>& rows) {
  const FieldRows launch = {
      make_kernel_function("kernel", 0),
      make_u32("grid", 1),
      in_upper_half(make_u32("", 1)),
      make_u32("", 2),
      make_u32("block", 3),
      in_upper_half(make_u32("", 3)),
      make_u32("", 4),
      make_u64("shared_bytes", 6),
      make_stream(7),
  };
  // cudaLaunchConfig_t: two dim3, shared memory, stream, attributes.
  FieldRows by_config = {make_kernel_function("kernel", 1)};
  for (FieldRow& field : make_grid_in_memory(0)) by_config.push_back(std::move(field));
  by_config.push_back(in_memory(make_u64("shared_bytes", 0), {24}));
  by_config.push_back(in_memory(make_stream(0), {32}));
  rows.insert(
      rows.end(),
      {// "__cudaLaunchKernel" is what kernels compiled by nvcc 13 are launched with.
       {{"cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchCooperativeKernel"}, launch},
       {{"cudaLaunchKernelExC"}, by_config},
       {{"cudaLaunchHostFunc"}, {make_kernel_function("function", 1), make_stream(0)}},
       {{"cudaGraphLaunch", "cudaGraphUpload"}, {make_pointer("graph", 0), make_stream(1)}},
       // cudaLibraryGetKernel(kernel, library, name): the handle is left at `kernel`.
       {{"cudaLibraryGetKernel"},
        {make_hidden_pointer(0, ValueUse::kHandle), make_hidden_pointer(2, ValueUse::kHandleName),
         make_string("name", 2), make_pointer("library", 1)}}});
}

void add_waits(std::vector<DecoderRow>& rows) {
  rows.insert(rows.end(), {{{"cudaDeviceSynchronize"}, {}},
                           {{"cudaStreamSynchronize", "cudaStreamQuery"}, {make_stream(0)}},
                           {{"cudaEventSynchronize", "cudaEventQuery"}, {make_pointer("event", 0)}},
                           {{"cudaEventRecord"}, {make_pointer("event", 0), make_stream(1)}},
                           {{"cudaStreamWaitEvent"},
                            {make_stream(0), make_pointer("event", 1), make_u32("flags", 2)}}});
}

}  // namespace

std::vector<DecoderRow> make_runtime_rows() {
  std::vector<DecoderRow> rows;
  add_copies(rows);
  add_copies_3d(rows);
  add_sets(rows);
  add_memory(rows);
  add_launches(rows);
  add_waits(rows);
  return rows;
}

}  // namespace gpuperf
