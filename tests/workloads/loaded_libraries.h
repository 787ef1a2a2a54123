#pragma once

// cuDNN and NCCL as cuda_calls uses them: found at run time, so that it also builds and runs on
// machines that have only some of the libraries. Each has its C interface's own types narrowed to
// what the binary interface needs (handles are pointers, enums are ints).

#include <cstddef>
#include <optional>

namespace workload {

struct Cudnn {
  size_t (*get_version)() = nullptr;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*create_tensor_descriptor)(void** descriptor) = nullptr;
  int (*set_tensor_4d_descriptor)(void* descriptor, int format, int type, int n, int c, int h,
                                  int w) = nullptr;
  int (*destroy_tensor_descriptor)(void* descriptor) = nullptr;
  int (*softmax_forward)(void* handle, int algorithm, int mode, const void* alpha,
                         const void* x_descriptor, const void* x, const void* beta,
                         const void* y_descriptor, void* y) = nullptr;
};

struct NcclUniqueId {
  char internal[128] = {};
};

struct Nccl {
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*comm_init_rank)(void** comm, int ranks, NcclUniqueId id, int rank) = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, void* comm,
                    void* stream) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
};

// Loads libcudnn.so.9 / libnccl.so.2 for the life of the process. Nothing where the library or one
// of the functions above is not there.
std::optional<Cudnn> find_cudnn();
std::optional<Nccl> find_nccl();

}  // namespace workload
