#pragma once

// The state of the library in its process, and one round of the work of its thread: whichever way
// the library came in (entry.cpp, attached.cpp). Nothing here throws, prints, exits or waits for
// the daemon. Thread: injector's, but for what says otherwise.

#include <atomic>
#include <cstdint>

#include "injector/attach_abi.h"
#include "injector/batch.h"
#include "injector/buffers.h"
#include "injector/collector.h"
#include "injector/daemon_link.h"

namespace gpuperf::injector {

struct Injector {
  Buffers buffers;
  DaemonLink link;
  Batch batch{link};
  Collector collector{buffers, batch};
  int wake_fd = -1;
  int gone_fd = -1;  // signalled when the final flush is done
  std::atomic<bool> is_ending = false;
  bool is_progress_wanted = false;  // GPUPERF_SESSION_PROGRESS
  uint64_t apart_since_ms = 0;
  uint64_t next_flush_ms = 0;
  uint64_t next_status_ms = 0;
  uint64_t next_watch_ms = 0;
  uint64_t next_counts_ms = 0;
  uint32_t last_state = 0;
  uint32_t last_level = 0;
  std::atomic<gpuperf_attach_block*> block = nullptr;  // of a process that was attached to
};

// Null until make_injector(); never destroyed: CUPTI may call back until the process exits.
extern Injector* g_injector;

// Whether this is the first way into the process; there is only one. Any thread.
bool claim_process();
// The state of the library, and what it needs of the system. Any thread, once.
bool make_injector();
// Has the library called when the process forks and exits. False: no memory is left.
bool follow_process();

void work_once(Injector& self);
// How long there is nothing to do.
int get_patience_ms(const Injector& self);
// Until then, a message or wake().
void wait_for_work(Injector& self, int patience_ms);
void send_status(Injector& self, uint64_t now_ms);
// Sends what there is, for good.
void finish(Injector& self);
// Any thread.
void wake_injector();

}  // namespace gpuperf::injector
