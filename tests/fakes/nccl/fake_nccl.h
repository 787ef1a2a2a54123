#pragma once

// NCCL without GPUs: ranks are processes that meet in a shared file, kernels run on the fake
// driver's timeline. Only what tests call; signatures as in nccl.h.

#include <cstddef>
#include <cstdint>

struct FakeCommunicator;
using ncclComm_t = FakeCommunicator*;
struct ncclUniqueId {
  char internal[128];
};
using ncclResult_t = int;
using ncclDataType_t = int;  // 7 = float
using ncclRedOp_t = int;
using cudaStream_t = void*;

extern "C" {
// Random; FAKE_NCCL_FOLDER is where ranks meet.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
// Waits until all kernels so far are over; a kernel is over kTransferNs after the last rank's
// began.
void fake_nccl_synchronize(ncclComm_t comm);
}

inline constexpr uint64_t kFakeTransferNs = 1'000'000;
