#include "tests/fakes/nccl/fake_nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "tests/fakes/cupti/fake_cuda.h"

namespace {

constexpr size_t kSteps = 1'024;  // that a rank may be ahead
constexpr size_t kRanksMax = 8;
constexpr useconds_t kPollUs = 200;

// When each rank's kernel of a step began, by the wall clock; 0 = it has not. Shared by the ranks.
struct Meeting {
  std::atomic<uint64_t> starts[kSteps][kRanksMax];
};

uint64_t read_unix_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

struct FakeCommunicator {
  struct Launch {
    uint64_t step;
    uint32_t correlation_id;
  };
  Meeting* meeting = nullptr;
  size_t ranks = 0;
  size_t rank = 0;
  uint64_t steps = 0;
  std::deque<Launch> launches;  // not over yet
};

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return getrandom(id, sizeof(*id), 0) == sizeof(*id) ? 0 : 2;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  uint64_t number = 0;
  std::memcpy(&number, &id, sizeof(number));
  char path[4'096];
  const char* folder = std::getenv("FAKE_NCCL_FOLDER");
  std::snprintf(path, sizeof(path), "%s/%016lx", folder ? folder : "/tmp", number);
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(Meeting)) != 0) return 2;
  void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return 2;
  *comm = new FakeCommunicator{.meeting = static_cast<Meeting*>(memory),
                               .ranks = static_cast<size_t>(ranks),
                               .rank = static_cast<size_t>(rank)};
  return 0;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->meeting, sizeof(Meeting));
  delete comm;
  return 0;
}

ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t) {
  comm->meeting->starts[comm->steps % kSteps][comm->rank] = read_unix_ns();
  comm->launches.push_back({comm->steps++, fake_launch_open()});
  return 0;
}

void fake_nccl_synchronize(ncclComm_t comm) {
  for (const auto& launch : comm->launches) {
    auto& starts = comm->meeting->starts[launch.step % kSteps];
    const auto is_missing = [](const std::atomic<uint64_t>& start) { return start == 0; };
    while (std::any_of(starts, starts + comm->ranks, is_missing)) usleep(kPollUs);
    FakeWork work;
    work.name = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
    work.start_unix_ns = starts[comm->rank];
    work.end_unix_ns = *std::max_element(starts, starts + comm->ranks) + kFakeTransferNs;
    while (read_unix_ns() < work.end_unix_ns) usleep(kPollUs);
    fake_launch_close(launch.correlation_id, work);
  }
  comm->launches.clear();
  // Nobody is a whole round behind: all ranks have begun all of these.
  for (uint64_t step = comm->steps; step < comm->steps + kSteps / 2; ++step) {
    comm->meeting->starts[step % kSteps][comm->rank] = 0;
  }
}

}  // extern "C"
