#include "loaded_libraries.h"

#include <dlfcn.h>

namespace workload {
namespace {

// Sets `function` to the symbol; false where the library does not have it.
template <typename Function>
bool load(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

std::optional<Cudnn> find_cudnn() {
  void* library = dlopen("libcudnn.so.9", RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  Cudnn cudnn;
  const bool complete =
      load(library, "cudnnGetVersion", cudnn.get_version) &&
      load(library, "cudnnCreate", cudnn.create) && load(library, "cudnnDestroy", cudnn.destroy) &&
      load(library, "cudnnCreateTensorDescriptor", cudnn.create_tensor_descriptor) &&
      load(library, "cudnnSetTensor4dDescriptor", cudnn.set_tensor_4d_descriptor) &&
      load(library, "cudnnDestroyTensorDescriptor", cudnn.destroy_tensor_descriptor) &&
      load(library, "cudnnSoftmaxForward", cudnn.softmax_forward);
  return complete ? std::optional(cudnn) : std::nullopt;
}

std::optional<Nccl> find_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  Nccl nccl;
  const bool complete = load(library, "ncclGetVersion", nccl.get_version) &&
                        load(library, "ncclGetUniqueId", nccl.get_unique_id) &&
                        load(library, "ncclCommInitRank", nccl.comm_init_rank) &&
                        load(library, "ncclAllReduce", nccl.all_reduce) &&
                        load(library, "ncclCommDestroy", nccl.comm_destroy);
  return complete ? std::optional(nccl) : std::nullopt;
}

}  // namespace workload
