// Twenty paths that allocate GPU memory, on eight threads that release what others allocated. Told
// line by line what to do, with an answer in JSON to each:
//   run PATH MS   allocates and releases for that long; what PATH allocates (0 to 19; -1 = none) is
//                 never released, one piece each 100 ms
//   grow MS       nothing but path 0, which releases nothing
//   fail BYTES    asks path 3 for more than there is
//   reset         the context, with all it has
// The answer has what is live then: "gpu", "managed", "pinned" and "registered", bytes.

#include <time.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "standin/memory_standin.h"

extern "C" int cudaMalloc(void** address, uint64_t bytes);
extern "C" int cudaFree(void* address);

namespace {

constexpr int kThreads = 8;
constexpr int kPaths = 20;
constexpr size_t kHeld = 64;
constexpr uint64_t kKib = 1024;
constexpr int kLeakEvery = 100;  // rounds of a thread

struct Piece {
  int way = 0;
  uint64_t place = 0;
  uint64_t mapped = 0;
};

std::mutex g_lock;
std::deque<Piece> g_held;
std::atomic<bool> g_is_stopping = false;
std::atomic<uint64_t> g_mappings = 0;

void sleep_for_us(long microseconds) {
  const timespec duration{microseconds / 1'000'000, microseconds % 1'000'000 * 1000};
  nanosleep(&duration, nullptr);
}

int allocate(int way, uint64_t bytes, Piece& piece) {
  piece.way = way;
  uint64_t pitch = 0;
  const standin_array array{bytes / 64, 4, 0x20, 4};
  switch (way) {
    case 0:
      return cuMemAlloc_v2(&piece.place, bytes);
    case 1:
      return cuMemAllocPitch_v2(&piece.place, &pitch, bytes / 4, 4, 4);
    case 2:
      return cuMemAllocAsync(&piece.place, bytes, nullptr);
    case 3:
      return cudaMalloc(reinterpret_cast<void**>(&piece.place), bytes);
    case 4:
      return cuMemAllocFromPoolAsync(&piece.place, bytes, nullptr, nullptr);
    case 5:
      return cuMemAllocManaged(&piece.place, bytes, 1);
    case 6:
      return cuMemHostAlloc(reinterpret_cast<void**>(&piece.place), bytes, 0);
    case 7:
      piece.place = reinterpret_cast<uint64_t>(malloc(bytes));
      return cuMemHostRegister_v2(reinterpret_cast<void*>(piece.place), bytes, 0);
    case 8:
      piece.mapped = 0x10'0000'0000 + 0x10000 * g_mappings++;
      return cuMemCreate(&piece.place, bytes, nullptr, 0) != 0
                 ? 2
                 : cuMemMap(piece.mapped, bytes, 0, piece.place, 0);
    default:
      return cuArrayCreate_v2(reinterpret_cast<void**>(&piece.place), &array);
  }
}

void release(const Piece& piece) {
  switch (piece.way) {
    case 2:
    case 4:
      (void)cuMemFreeAsync(piece.place, nullptr);
      return;
    case 3:
      (void)cudaFree(reinterpret_cast<void*>(piece.place));
      return;
    case 6:
      (void)cuMemFreeHost(reinterpret_cast<void*>(piece.place));
      return;
    case 7:
      (void)cuMemHostUnregister(reinterpret_cast<void*>(piece.place));
      free(reinterpret_cast<void*>(piece.place));
      return;
    case 8:
      (void)cuMemRelease(piece.place);
      (void)cuMemUnmap(piece.mapped, 0x10000);
      return;
    case 9:
      (void)cuArrayDestroy(reinterpret_cast<void*>(piece.place));
      return;
    default:
      (void)cuMemFree_v2(piece.place);
  }
}

}  // namespace

// Each a function of its own, under a name that stacks show.
#define GPUPERF_PATH(N)                                                          \
  extern "C" __attribute__((noinline)) int allocate_path_##N(Piece* piece) {     \
    const int status = allocate((N) % 10, (64 + 16 * (N)) * kKib, *piece);       \
    __asm__ volatile("" : : "r"(&allocate_path_##N), "r"(status)); /* no jump */ \
    return status;                                                               \
  }
// clang-format off: it takes these for a beginning of what follows.
GPUPERF_PATH(0)
GPUPERF_PATH(1)
GPUPERF_PATH(2)
GPUPERF_PATH(3)
GPUPERF_PATH(4)
GPUPERF_PATH(5)
GPUPERF_PATH(6)
GPUPERF_PATH(7)
GPUPERF_PATH(8)
GPUPERF_PATH(9)
GPUPERF_PATH(10)
GPUPERF_PATH(11)
GPUPERF_PATH(12)
GPUPERF_PATH(13)
GPUPERF_PATH(14)
GPUPERF_PATH(15)
GPUPERF_PATH(16)
GPUPERF_PATH(17)
GPUPERF_PATH(18)
GPUPERF_PATH(19)
// clang-format on

namespace {
constexpr std::array<int (*)(Piece*), kPaths> kAllPaths = {
    allocate_path_0,  allocate_path_1,  allocate_path_2,  allocate_path_3,  allocate_path_4,
    allocate_path_5,  allocate_path_6,  allocate_path_7,  allocate_path_8,  allocate_path_9,
    allocate_path_10, allocate_path_11, allocate_path_12, allocate_path_13, allocate_path_14,
    allocate_path_15, allocate_path_16, allocate_path_17, allocate_path_18, allocate_path_19};

void hold(const Piece& piece) {
  const std::scoped_lock lock(g_lock);
  g_held.push_back(piece);
}

// The oldest that is held, of whichever thread.
bool take(size_t most_held, Piece& piece) {
  const std::scoped_lock lock(g_lock);
  if (g_held.size() <= most_held) return false;
  piece = g_held.front();
  g_held.pop_front();
  return true;
}

void work(int thread, int leaking) {
  for (int round = 0; !g_is_stopping; ++round) {
    const int path = (thread * 7 + round) % kPaths;
    Piece piece;
    const bool is_leak = path == leaking;
    if (!is_leak && kAllPaths[path](&piece) == 0) hold(piece);
    if (thread == 0 && leaking >= 0 && round % kLeakEvery == 0) {
      Piece lost;
      (void)kAllPaths[leaking](&lost);
    }
    while (take(kHeld, piece)) release(piece);
    sleep_for_us(1'000);
  }
}

void run(int leaking, int milliseconds) {
  g_is_stopping = false;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread, leaking);
  sleep_for_us(milliseconds * 1'000L);
  g_is_stopping = true;
  for (std::thread& thread : threads) thread.join();
}

void grow(int milliseconds) {
  for (int passed = 0; passed < milliseconds; passed += 100) {
    Piece piece;
    (void)allocate_path_0(&piece);
    sleep_for_us(100'000);
  }
}

int fail(uint64_t bytes) {
  standin_set_capacity(1);
  void* address = nullptr;
  const int status = cudaMalloc(&address, bytes);
  standin_set_capacity(0);
  return status;
}

void answer(int status) {
  std::printf("{\"status\": %d, \"gpu\": %" PRIu64 ", \"managed\": %" PRIu64
              ", \"pinned\": %" PRIu64 ", \"registered\": %" PRIu64 "}\n",
              status, standin_get_live(0), standin_get_live(1), standin_get_live(2),
              standin_get_live(3));
  (void)std::fflush(stdout);
}

}  // namespace

int main() {
  void* context = nullptr;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0) return 1;
  answer(0);
  char line[256];
  int path = 0, milliseconds = 0;
  uint64_t bytes = 0;
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    int status = 0;
    if (std::sscanf(line, "run %d %d", &path, &milliseconds) == 2) {
      run(path, milliseconds);
    } else if (std::sscanf(line, "grow %d", &milliseconds) == 1) {
      grow(milliseconds);
    } else if (std::sscanf(line, "fail %" SCNu64, &bytes) == 1) {
      status = fail(bytes);
    } else if (std::string_view(line) == "reset\n") {
      status = cuDevicePrimaryCtxReset_v2(0);
    } else {
      return 2;
    }
    answer(status);
  }
  return 0;
}
