// The entry point that the CUDA driver calls, and the thread that does everything else.
//
// The driver loads the library named by CUDA_INJECTION64_PATH and calls InitializeInjection from
// within cuInit, on a workload thread. There we ask the daemon, for a few milliseconds at most and
// only if one listens. Everything else happens on one thread of our own, with every signal blocked.
// Nothing here throws, prints, exits or waits for the daemon.

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <cstring>

#include "injector/clocks.h"
#include "injector/foreign_clients.h"
#include "injector/injector.h"
#include "injector/launch_hooks.h"
#include "injector/own_thread.h"

namespace gpuperf::injector {
namespace {

constexpr const char* kSocketPath = "/run/gpuperf/ingest.sock";
// How long to wait for the daemon's answer within cuInit, which itself takes hundreds of
// milliseconds. Individual API calls, and graphs where there are no hooks, can be recorded only if
// switched on there (see ActiveKinds). A stopped daemon costs this once.
constexpr uint64_t kAnswerInInitMs = 20;
// By then, a process has created the CUDA graphs that it creates at startup.
constexpr uint64_t kYoungMs = 120'000;
// CUPTI calls run on this stack.
constexpr size_t kStackBytes = 1 << 20;

void* run(void* argument) {
  auto& self = *static_cast<Injector*>(argument);
  (void)prctl(PR_SET_NAME, "gpuperf");
  while (!self.is_ending.load()) {
    work_once(self);
    wait_for_work(self, get_patience_ms(self));
  }
  finish(self);
  return nullptr;
}

bool start_thread(Injector& self) {
  pthread_attr_t attributes;
  (void)pthread_attr_init(&attributes);
  (void)pthread_attr_setstacksize(&attributes, kStackBytes);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool is_started = start_own_thread(thread, &attributes, run, &self);
  (void)pthread_attr_destroy(&attributes);
  return is_started;
}

// Asks the daemon, if there is one, and carries out its order at once: nothing is missed, and
// individual calls can be switched on.
void ask_in_initialisation(Injector& self, uint64_t patience_ms) {
  const uint64_t start_ms = read_mono_ms();
  if (!self.link.try_connect(start_ms)) return;
  uint64_t now_ms = start_ms;
  while (self.link.state() == DaemonLink::State::kWaiting && now_ms - start_ms < patience_ms) {
    pollfd wait = {self.link.fd(), POLLIN, 0};
    (void)poll(&wait, 1, static_cast<int>(patience_ms - (now_ms - start_ms)));
    now_ms = read_mono_ms();
    if (!self.link.receive(now_ms)) continue;
    self.batch.set_limit(self.link.control().batch_bytes_max);
    self.collector.start_in_initialisation(self.link.control(), now_ms);
  }
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' && std::strcmp(value, "0") != 0;
}

bool is_off(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::strcmp(value, "0") == 0;
}

uint64_t read_ms(const char* name, uint64_t otherwise_ms) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? std::strtoull(value, nullptr, 10) : otherwise_ms;
}

void initialise() {
  const char* path = std::getenv("GPUPERF_SOCKET");
  if (!make_injector()) return;
  Injector& self = *g_injector;
  self.link.set_up(path != nullptr && path[0] != '\0' ? path : kSocketPath);
  if (!is_off("GPUPERF_LAUNCH_HOOKS") && find_nsight() == nullptr &&
      install_launch_hooks(wake_injector)) {
    self.collector.trust_graph_hooks();
  }
  if (is_set("GPUPERF_NODE_BURSTS")) self.collector.allow_nodes();
  self.collector.set_young(read_ms("GPUPERF_SETTLE_MS", kYoungMs));
  self.collector.watch_clients();
  ask_in_initialisation(self, read_ms("GPUPERF_INIT_WAIT_MS", kAnswerInInitMs));
  if (!follow_process()) return;
  if (!start_thread(self)) self.is_ending.store(true);
}

}  // namespace
}  // namespace gpuperf::injector

// Called by the CUDA driver, once; 1 = done. The name is NVIDIA's.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace gpuperf::injector;
  if (!claim_process() || is_set("GPUPERF_DISABLE")) return 1;
  initialise();
  return 1;
}
