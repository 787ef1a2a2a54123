#include "daemon/unwind/memory_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <variant>

#include "daemon/base/confinement.h"
#include "daemon/base/fd.h"
#include "daemon/base/proc_text.h"
#include "daemon/base/worker_side.h"
#include "daemon/unwind/memory_message.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {
namespace {

constexpr uint64_t make_mask(int capability) { return uint64_t{1} << capability; }

constexpr unsigned kReadFlags = O_RDONLY | O_CLOEXEC;
constexpr unsigned kTakeFlags = O_PATH | O_CLOEXEC;
// The longest text of mappings (kMaxMapsBytes), which grows by doubling.
constexpr size_t kMemoryBytes = size_t{256} << 20;
constexpr size_t kFilesBytes = size_t{1} << 20;
constexpr size_t kMaxRequestBytes = sizeof(uint64_t) + kMaxMemoryRanges * sizeof(MemoryRange);

std::string read_ranges(const MemoryRequest& request) {
  const ReadMemory read = make_direct_reader(request.pid);
  MemoryReply reply;
  for (const MemoryRange& range : request.ranges) {
    std::string bytes(range.size_bytes, '\0');
    const bool could = read(range.address, std::as_writable_bytes(std::span(bytes)));
    reply.push_back(could ? std::optional(std::move(bytes)) : std::nullopt);
  }
  return encode(reply);
}

std::string encode_error(int error) {
  const auto number = static_cast<uint32_t>(error);
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string read_maps(const std::string& proc_root, const MapsRequest& request) {
  constexpr size_t kChunkBytes = size_t{64} << 10;
  const std::string path = get_proc_path(proc_root, request.pid, "maps");
  const Fd file(::open(path.c_str(), kReadFlags));
  if (!file.valid()) return encode_error(errno);
  std::string reply = encode_error(0);
  const size_t max_bytes = reply.size() + request.max_bytes;
  while (reply.size() < max_bytes) {
    const size_t old_bytes = reply.size();
    const size_t wanted = std::min(kChunkBytes, max_bytes - old_bytes);
    reply.resize(old_bytes + wanted);
    const ssize_t count = ::read(file.get(), reply.data() + old_bytes, wanted);
    if (count < 0) return encode_error(errno);
    reply.resize(old_bytes + static_cast<size_t>(count));
    if (count == 0) break;
  }
  return reply;
}

}  // namespace

void run_memory_process(pid_t parent, const std::string& proc_root) {
  constexpr std::array<unsigned, 1> kReads = {__NR_process_vm_readv};
  const WorkerSide side;
  if (!confine({.parent = parent,
                .memory_bytes = kMemoryBytes,
                .name = "gpuperf-memory",
                .capabilities = make_mask(CAP_SYS_PTRACE),
                .more_calls = kReads,
                .open_flags = kReadFlags}) ||
      !side.tell_ready()) {
    ::_exit(1);
  }
  while (const std::optional<WorkerMessage> message = side.receive(kMaxRequestBytes, {})) {
    const std::optional<ReaderRequest> request = decode_reader_request(message->bytes);
    if (!request) break;
    const auto* const memory = std::get_if<MemoryRequest>(&*request);
    if (!side.answer(memory != nullptr ? read_ranges(*memory)
                                       : read_maps(proc_root, std::get<MapsRequest>(*request)))) {
      break;
    }
  }
  ::_exit(0);
}

void run_mapped_files_process(pid_t parent, const std::string& proc_root) {
  // To pass the folder map_files, which is its user's, and the links in it.
  constexpr uint64_t kCapabilities = make_mask(CAP_SYS_PTRACE) | make_mask(CAP_DAC_READ_SEARCH) |
                                     make_mask(CAP_CHECKPOINT_RESTORE);
  const WorkerSide side;
  if (!confine({.parent = parent,
                .memory_bytes = kFilesBytes,
                .name = "gpuperf-files",
                .capabilities = kCapabilities,
                .open_flags = kTakeFlags}) ||
      !side.tell_ready()) {
    ::_exit(1);
  }
  while (const std::optional<WorkerMessage> message = side.receive(PATH_MAX, {})) {
    const std::string path = proc_root + "/" + message->bytes;
    const Fd taken(::open(path.c_str(), kTakeFlags));
    const std::string error = encode_error(taken.valid() ? 0 : errno);
    const int fd = taken.get();
    if (!side.answer(error, std::span(&fd, taken.valid() ? 1 : 0))) break;
  }
  ::_exit(0);
}

}  // namespace gpuperf
