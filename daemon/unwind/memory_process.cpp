#include "daemon/unwind/memory_process.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <span>

#include "daemon/base/confinement.h"
#include "daemon/base/worker_side.h"
#include "daemon/unwind/memory_message.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {
namespace {

// A reply, copied some times on its way.
constexpr size_t kMemoryBytes = 16 * kMaxMemoryBytes;
constexpr size_t kMaxRequestBytes = sizeof(uint64_t) + kMaxMemoryRanges * sizeof(MemoryRange);

MemoryReply read_ranges(const MemoryRequest& request) {
  const ReadMemory read = make_direct_reader(request.pid);
  MemoryReply reply;
  for (const MemoryRange& range : request.ranges) {
    std::string bytes(range.size_bytes, '\0');
    const bool could = read(range.address, std::as_writable_bytes(std::span(bytes)));
    reply.push_back(could ? std::optional(std::move(bytes)) : std::nullopt);
  }
  return reply;
}

}  // namespace

void run_memory_process(pid_t parent) {
  constexpr std::array<unsigned, 1> kReads = {__NR_process_vm_readv};
  const WorkerSide side;
  if (!confine({.parent = parent,
                .memory_bytes = kMemoryBytes,
                .name = "gpuperf-memory",
                .capability = CAP_SYS_PTRACE,
                .more_calls = kReads}) ||
      !side.tell_ready()) {
    ::_exit(1);
  }
  while (const std::optional<WorkerMessage> message = side.receive(kMaxRequestBytes, {})) {
    const std::optional<MemoryRequest> request = decode_memory_request(message->bytes);
    if (!request || !side.answer(encode(read_ranges(*request)))) break;
  }
  ::_exit(0);
}

}  // namespace gpuperf
