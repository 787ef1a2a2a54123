// One rank of a job on the fake NCCL: all-reduces, one a step, until it is killed.
//
// usage: nccl_ranks FOLDER RANK RANKS [CAUSE MS]
//
// Ranks meet in FOLDER. Before each step's call a rank takes 20 ms; one with a CAUSE takes MS
// longer: sleep, read (of a pipe that its child writes to: a slow data loader), spin (uses the CPU
// for MS; it is slower under a quota). Begins with a line on standard input, once it has said that
// it is ready.

#include <cuda.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/fakes/nccl/fake_nccl.h"

namespace {

uint64_t read_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_ms(uint64_t ms) {
  const timespec time = {static_cast<time_t>(ms / 1'000),
                         static_cast<long>(ms % 1'000 * 1'000'000)};
  nanosleep(&time, nullptr);
}

// Of this thread's CPU time: as much work wherever it runs.
void spin_ms(uint64_t ms) {
  const uint64_t until = read_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1'000'000;
  while (read_ns(CLOCK_THREAD_CPUTIME_ID) < until) continue;
}

// A data loader that takes `ms` for each batch; the descriptor that batches come from.
int start_loader(uint64_t ms) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  if (fork() == 0) {
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    for (;;) {
      sleep_ms(ms);
      if (write(ends[1], "b", 1) != 1) _exit(0);
    }
  }
  close(ends[1]);
  return ends[0];
}

ncclUniqueId share_id(const std::string& folder, int rank) {
  ncclUniqueId id = {};
  const std::string path = folder + "/id";
  if (rank == 0) {
    if (ncclGetUniqueId(&id) != 0) std::abort();
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof(id.internal));
    std::rename((path + ".new").c_str(), path.c_str());
    return id;
  }
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof(id.internal))) return id;
    sleep_ms(10);
  }
}

}  // namespace

extern "C" void take_step(ncclComm_t comm) {
  (void)ncclAllReduce(nullptr, nullptr, 1 << 20, 7, 0, comm, nullptr);
  fake_nccl_synchronize(comm);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string folder = argv[1], cause = argc > 5 ? argv[4] : "";
  const int rank = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
  const uint64_t more_ms = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0;
  setenv("FAKE_NCCL_FOLDER", folder.c_str(), 1);
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  ncclComm_t comm = nullptr;
  const int loader = cause == "read" ? start_loader(20 + more_ms) : -1;
  std::printf("ready\n");
  std::fflush(stdout);
  (void)getchar();  // until the probes are there
  if (ncclCommInitRank(&comm, ranks, share_id(folder, rank), rank) != 0) return 1;
  for (;;) {
    char batch = 0;
    if (loader >= 0 && read(loader, &batch, 1) != 1) return 1;
    if (loader < 0) sleep_ms(cause == "sleep" ? 20 + more_ms : 20);
    if (cause == "spin") spin_ms(more_ms);
    take_step(comm);
  }
}
