// Launches from threads of its own, through a runtime that found the driver's functions before
// hooks could be there.
//   launcher THREADS CALLS [PAUSE_US]
// Says "ready" once CUDA is up, launches at the first line, says "done", and ends with its input.
// Each thread makes CALLS calls, every 100th fails and every 10,000th takes 5 ms. Like PyTorch, it
// has made about 100 keys of thread-specific data before.

#include <cuda.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

extern "C" CUresult fake_runtime_launch(bool by_table, CUfunction function, unsigned duration_us);

namespace {

void launch(long calls, unsigned pause_us) {
  const auto kernel = reinterpret_cast<CUfunction>(0x1000);
  for (long i = 0; i < calls; ++i) {
    (void)fake_runtime_launch(i % 2 == 0, i % 100 == 0 ? nullptr : kernel,
                              i % 10'000 == 1 ? 5'000 : 0);
    if (pause_us > 0) (void)usleep(pause_us);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: launcher THREADS CALLS [PAUSE_US]\n");
    return 2;
  }
  const int thread_count = atoi(argv[1]);
  const long calls = atol(argv[2]);
  const auto pause_us = static_cast<unsigned>(argc > 3 ? atoi(argv[3]) : 0);
  for (pthread_key_t key = 0; key < 100;) {
    if (pthread_key_create(&key, nullptr) != 0) return 1;
  }
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  printf("ready\n");
  (void)fflush(stdout);
  (void)getchar();
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) threads.emplace_back(launch, calls, pause_us);
  for (std::thread& thread : threads) thread.join();
  printf("done\n");
  (void)fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
