// A small CUDA program: allocates, copies, multiplies matrices, applies softmax, reduces, waits.
// Every call is made whether or not a GPU is there: without one each returns an error, which the
// program counts and goes on. Prints one JSON line:
//   {"program":"cuda_calls","libraries":"toolkit","gpu":false,"pid":71,"elapsed_ns":...,
//    "calls":{"cudaMalloc":{"calls":300,"errors":{"35":300}},...}}
// Names are those of the exported symbols. A second line on standard error says in words what it
// used.

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cuda_api.h"
#include "loaded_libraries.h"
#include "options.h"
#include "truth.h"

using namespace workload;

namespace {

constexpr int kMatrixSide = 512;
constexpr size_t kMatrixFloats = static_cast<size_t>(kMatrixSide) * kMatrixSide;
constexpr size_t kMatrixBytes = kMatrixFloats * sizeof(float);  // 1 MiB; three live at once

// cuDNN and NCCL enumerators, which their headers fix for good.
constexpr int kCudnnNchw = 0;
constexpr int kCudnnFloat = 0;
constexpr int kCudnnSoftmaxAccurate = 1;
constexpr int kCudnnSoftmaxOverInstance = 0;
constexpr int kNcclFloat = 7;
constexpr int kNcclSum = 0;

}  // namespace

// Everything the rounds share. Handles stay null where their creation failed: the libraries
// answer calls on them with an error.
struct Session {
  Truth truth;
  bool gpu = false;
  cudaStream_t stream = nullptr;
  cublasHandle_t cublas = nullptr;
  std::optional<Cudnn> cudnn;
  void* cudnn_handle = nullptr;
  void* tensor = nullptr;
  std::optional<Nccl> nccl;
  void* comm = nullptr;
  std::vector<float> host = std::vector<float>(kMatrixFloats, 0.5f);

  // Calls `function` and counts the call under `name`. Inlined, so that no frame of ours stands
  // between the caller and the library.
  template <typename Function, typename... Arguments>
  [[gnu::always_inline]] bool call(const char* name, Function function, Arguments... arguments) {
    const int status = static_cast<int>(function(arguments...));
    count_call(truth[name], status);
    return status == 0;
  }
};

// Exported so that a stack names them.
extern "C" {

void open_session(Session& session) {
  int devices = 0;
  session.gpu = session.call("cudaGetDeviceCount", cudaGetDeviceCount, &devices) && devices > 0;
  int version = 0;
  session.call("cudaRuntimeGetVersion", cudaRuntimeGetVersion, &version);
  session.call("cudaDriverGetVersion", cudaDriverGetVersion, &version);
  session.call("cudaSetDevice", cudaSetDevice, 0);
  session.call("cudaStreamCreate", cudaStreamCreate, &session.stream);
  session.call("cublasCreate_v2", cublasCreate_v2, &session.cublas);
  session.call("cublasSetStream_v2", cublasSetStream_v2, session.cublas, session.stream);
  if (session.cudnn) {
    session.call("cudnnCreate", session.cudnn->create, &session.cudnn_handle);
    session.call("cudnnCreateTensorDescriptor", session.cudnn->create_tensor_descriptor,
                 &session.tensor);
    session.call("cudnnSetTensor4dDescriptor", session.cudnn->set_tensor_4d_descriptor,
                 session.tensor, kCudnnNchw, kCudnnFloat, kMatrixSide, kMatrixSide, 1, 1);
  }
  if (session.nccl) {
    session.call("ncclGetVersion", session.nccl->get_version, &version);
    NcclUniqueId id;
    session.call("ncclGetUniqueId", session.nccl->get_unique_id, &id);
    if (session.gpu) {
      session.call("ncclCommInitRank", session.nccl->comm_init_rank, &session.comm, 1, id, 0);
    }
  }
}

void close_session(Session& session) {
  if (session.comm != nullptr) {
    session.call("ncclCommDestroy", session.nccl->comm_destroy, session.comm);
  }
  if (session.cudnn) {
    session.call("cudnnDestroyTensorDescriptor", session.cudnn->destroy_tensor_descriptor,
                 session.tensor);
    session.call("cudnnDestroy", session.cudnn->destroy, session.cudnn_handle);
  }
  session.call("cublasDestroy_v2", cublasDestroy_v2, session.cublas);
  session.call("cudaStreamDestroy", cudaStreamDestroy, session.stream);
}

void copy_matrices(Session& session, float* a, float* b) {
  session.call("cudaMemcpy", cudaMemcpy, static_cast<void*>(a),
               static_cast<const void*>(session.host.data()), kMatrixBytes, cudaMemcpyHostToDevice);
  session.call("cudaMemcpyAsync", cudaMemcpyAsync, static_cast<void*>(b),
               static_cast<const void*>(session.host.data()), kMatrixBytes, cudaMemcpyHostToDevice,
               session.stream);
}

void multiply_matrices(Session& session, const float* a, const float* b, float* c) {
  const float one = 1;
  const float zero = 0;
  for (int i = 0; i < 3; ++i) {
    session.call("cublasSgemm_v2", cublasSgemm_v2, session.cublas, CUBLAS_OP_N, CUBLAS_OP_N,
                 kMatrixSide, kMatrixSide, kMatrixSide, &one, a, kMatrixSide, b, kMatrixSide, &zero,
                 c, kMatrixSide);
  }
}

void apply_softmax(Session& session, float* c) {
  if (!session.cudnn) return;
  const float one = 1;
  const float zero = 0;
  session.call("cudnnSoftmaxForward", session.cudnn->softmax_forward, session.cudnn_handle,
               kCudnnSoftmaxAccurate, kCudnnSoftmaxOverInstance, static_cast<const void*>(&one),
               static_cast<const void*>(session.tensor), static_cast<const void*>(c),
               static_cast<const void*>(&zero), static_cast<const void*>(session.tensor),
               static_cast<void*>(c));
}

void reduce_matrix(Session& session, float* c) {
  if (session.comm == nullptr) return;
  session.call("ncclAllReduce", session.nccl->all_reduce, static_cast<const void*>(c),
               static_cast<void*>(c), kMatrixFloats, kNcclFloat, kNcclSum, session.comm,
               static_cast<void*>(session.stream));
}

void wait_for_gpu(Session& session) {
  cudaEvent_t event = nullptr;
  session.call("cudaEventCreate", static_cast<cudaError_t (*)(cudaEvent_t*)>(cudaEventCreate),
               &event);
  session.call("cudaEventRecord", cudaEventRecord, event, session.stream);
  session.call("cudaEventQuery", cudaEventQuery, event);
  session.call("cudaEventSynchronize", cudaEventSynchronize, event);
  session.call("cudaEventDestroy", cudaEventDestroy, event);
  session.call("cudaStreamSynchronize", cudaStreamSynchronize, session.stream);
  session.call("cudaDeviceSynchronize", cudaDeviceSynchronize);
}

void run_round(Session& session) {
  void* matrices[3] = {nullptr, nullptr, nullptr};
  for (void*& matrix : matrices) {
    session.call("cudaMalloc", static_cast<cudaError_t (*)(void**, size_t)>(cudaMalloc), &matrix,
                 kMatrixBytes);
  }
  float* a = static_cast<float*>(matrices[0]);
  float* b = static_cast<float*>(matrices[1]);
  float* c = static_cast<float*>(matrices[2]);
  copy_matrices(session, a, b);
  session.call("cudaMemsetAsync", cudaMemsetAsync, static_cast<void*>(c), 0, kMatrixBytes,
               session.stream);
  multiply_matrices(session, a, b, c);
  apply_softmax(session, c);
  reduce_matrix(session, c);
  wait_for_gpu(session);
  session.call("cudaMemcpy", cudaMemcpy, static_cast<void*>(session.host.data()),
               static_cast<const void*>(c), kMatrixBytes, cudaMemcpyDeviceToHost);
  for (void* matrix : matrices) session.call("cudaFree", cudaFree, matrix);
}

// Spreads `rounds` evenly over `duration_ns`, later ones late where a round takes longer than its
// share.
void run_rounds(Session& session, uint64_t rounds, uint64_t duration_ns) {
  const uint64_t start_ns = now_mono_ns();
  for (uint64_t round = 0; round < rounds; ++round) {
    run_round(session);
    const uint64_t due_ns = start_ns + duration_ns / rounds * (round + 1);
    const uint64_t now_ns = now_mono_ns();
    if (now_ns < due_ns) sleep_ns(due_ns - now_ns);
  }
}

}  // extern "C"

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--seconds", "6"},
                         {"--rounds", "200"},      // about 20 calls each
                         {"--wait-for-file", ""},  // begin once it exists; all libraries are mapped
                         {"--linger-for-file", ""}});  // exit once it exists
  // NCCL looks for a network interface even for one rank; the loopback one is always there.
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);

  Session session;
#ifndef GPUPERF_STANDIN
  session.cudnn = find_cudnn();
  session.nccl = find_nccl();
#endif
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t start_ns = now_mono_ns();
  open_session(session);
  run_rounds(session, options.get_count("--rounds"),
             options.get_count("--seconds") * 1'000'000'000u);
  close_session(session);
  const uint64_t elapsed_ns = now_mono_ns() - start_ns;

  fprintf(stderr, "cuda_calls: %s cudart and cublas, cuDNN %s, NCCL %s, %s\n", kLibraries,
          session.cudnn ? "loaded" : "not used", session.nccl ? "loaded" : "not used",
          session.gpu ? "GPU found" : "no GPU: calls return errors");
  print_line("{\"program\":\"cuda_calls\",\"libraries\":\"" + std::string(kLibraries) +
             "\",\"gpu\":" + (session.gpu ? "true" : "false") + ",\"pid\":" +
             std::to_string(getpid()) + ",\"elapsed_ns\":" + std::to_string(elapsed_ns) +
             ",\"calls\":" + render_truth(session.truth) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
