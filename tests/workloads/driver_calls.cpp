// Calls every entry of the fake driver by which work comes to a GPU, line by line as it is told:
//   mix THREADS CALLS   each thread calls each entry so often, by turns. Of an entry's calls every
//                       fourth uses an address that was copied to the heap before there were hooks,
//                       every tenth fails
//   sleep ENTRY MS      one call that takes so long
// Answers each line by one of JSON, once it has said "{}" when CUDA was up.

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/fakes/cupti/fake_entries.h"

extern "C" uint32_t cuInit(unsigned flags);

namespace {

constexpr uint32_t kFailure = 700;

FakeEntry g_table[GPUPERF_HOOK_COUNT];  // where hooks take the driver's place
std::vector<FakeEntry>& g_copied = *new std::vector<FakeEntry>;
int g_milliseconds = 0;

void find_entries() {
  for (size_t i = 0; i < GPUPERF_HOOK_COUNT; ++i) {
    g_table[i] = reinterpret_cast<FakeEntry>(dlsym(RTLD_DEFAULT, kFakeEntries[i].name));
    g_copied.push_back(g_table[i]);
  }
}

}  // namespace

extern "C" __attribute__((noinline)) uint32_t call_here(FakeEntry function, uint64_t number) {
  const uint32_t result = function(number, 0x2000, 4096, number, 5, 6, 7, 0, 9, 10, 11);
  __asm__ volatile("" : : "r"(&call_here), "r"(result));  // no jump
  return result;
}

namespace {

void mix(uint64_t calls) {
  for (uint64_t i = 0; i < calls; ++i) {
    for (size_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
      fake_entry_prepare(i % 10 == 9 ? kFailure : 0, nullptr);
      (void)call_here(i % 4 == 3 ? g_copied[entry] : g_table[entry], 1 + i);
    }
  }
}

void sleep_inside() {
  const timespec duration{g_milliseconds / 1'000, g_milliseconds % 1'000 * 1'000'000L};
  nanosleep(&duration, nullptr);
}

void call_slowly(const char* name) {
  fake_entry_prepare(0, sleep_inside);
  for (size_t i = 0; i < GPUPERF_HOOK_COUNT; ++i) {
    if (strcmp(kFakeEntries[i].name, name) == 0) (void)call_here(g_table[i], 0x1000);
  }
  fake_entry_prepare(0, nullptr);
}

void answer() {
  puts("{}");
  (void)fflush(stdout);
}

}  // namespace

int main() {
  find_entries();
  if (cuInit(0) != 0) return 1;
  answer();
  char line[256], name[64];
  int threads = 0;
  uint64_t calls = 0;
  while (fgets(line, sizeof line, stdin) != nullptr) {
    if (sscanf(line, "mix %d %lu", &threads, &calls) == 2) {
      std::vector<std::thread> all;
      for (int i = 1; i < threads; ++i) all.emplace_back(mix, calls);
      mix(calls);
      for (std::thread& thread : all) thread.join();
    } else if (sscanf(line, "sleep %63s %d", name, &g_milliseconds) == 2) {
      call_slowly(name);
    } else {
      return 2;
    }
    answer();
  }
  return 0;
}
