// Threads that stay inside nested calls (park_outer -> park_middle -> park_inner) until told: then
// some return and some end inside. Prints one JSON line when all are inside, and one when none is:
//   {"program":"parked_calls","pid":71,"parked":20,"start_mono_ns":...}
//   {"program":"parked_calls","pid":71,"returned":15,"abandoned":5}

#include <pthread.h>

#include <atomic>
#include <string>
#include <vector>

#include "options.h"
#include "truth.h"

using namespace workload;

namespace {

constexpr uint64_t kStackBytes = 64 * 1024;

std::atomic<uint64_t> g_parked{0};
std::atomic<bool> g_released{false};

}  // namespace

extern "C" {

void park_inner(bool leave) {
  g_parked.fetch_add(1);
  g_released.wait(false);  // asleep: there may be thousands
  if (leave) pthread_exit(nullptr);
}
void park_middle(bool leave) { park_inner(leave); }
void park_outer(bool leave) { park_middle(leave); }

}  // extern "C"

int main(int argc, char** argv) {
  const Options options(argc, argv,
                        {{"--threads", "20"},
                         {"--leave", "5"},             // threads that end inside
                         {"--wait-for-file", ""},      // begin once it exists
                         {"--release-file", ""},       // let them go once it exists
                         {"--linger-for-file", ""}});  // exit once it exists
  const uint64_t count = options.get_count("--threads");
  const uint64_t leave = options.get_count("--leave");
  const std::string head =
      "{\"program\":\"parked_calls\",\"pid\":" + std::to_string(getpid()) + ",";
  wait_for_file(options.get_text("--wait-for-file"));

  const uint64_t start_ns = now_mono_ns();
  std::vector<pthread_t> threads(count);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  for (uint64_t i = 0; i < count; ++i) {
    const auto park = [](void* leave) -> void* {
      park_outer(leave != nullptr);
      return nullptr;
    };
    if (pthread_create(&threads[i], &attributes, park, i < leave ? &g_released : nullptr) != 0) {
      perror("parked_calls: pthread_create");
      return 1;
    }
  }
  while (g_parked.load() < count) sleep_ns(1'000'000);
  print_line(head + "\"parked\":" + std::to_string(count) +
             ",\"start_mono_ns\":" + std::to_string(start_ns) + "}");
  wait_for_file(options.get_text("--release-file"));

  g_released = true;
  g_released.notify_all();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  print_line(head + "\"returned\":" + std::to_string(count - leave) +
             ",\"abandoned\":" + std::to_string(leave) + "}");
  wait_for_file(options.get_text("--linger-for-file"));
  return 0;
}
