#include "daemon/resolve/dwarf_process.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/base/confinement.h"
#include "daemon/base/fd.h"
#include "daemon/base/worker_side.h"
#include "daemon/resolve/dwarf_message.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxOpenFiles = 32;

struct OpenDwarf {
  Fd file;
  Fd alternate;
  std::unique_ptr<DwarfReader> reader;  // null = not readable; last: it uses the descriptors
};

using OpenFiles = ByteLru<uint64_t, OpenDwarf>;

// With the descriptors that came with the request, where the file is not open yet.
OpenDwarf& find_or_open(const DwarfRequest& request, WorkerMessage& message, OpenFiles& files) {
  if (OpenDwarf* const known = files.find(request.file_id)) return *known;
  OpenDwarf opened{.file = std::move(message.fds[0]), .alternate = std::move(message.fds[1])};
  auto reader = DwarfReader::open(opened.file.get(), opened.alternate.get());
  if (reader.ok()) opened.reader = *std::move(reader);
  (void)files.put(request.file_id, std::move(opened), 1);  // there is room for kMaxOpenFiles
  return *files.find(request.file_id);
}

bool answer(const WorkerSide& side, WorkerMessage message, OpenFiles& files) {
  const std::optional<DwarfRequest> request = decode_request(message.bytes);
  if (!request) return false;
  const OpenDwarf& file = find_or_open(*request, message, files);
  ReplyWriter reply;
  for (const uint64_t vaddr : request->vaddrs) {
    if (!reply.add(file.reader ? file.reader->find_frames(vaddr) : std::vector<SourceFrame>())) {
      break;
    }
  }
  return side.answer(reply.bytes());
}

}  // namespace

void run_dwarf_process(const DwarfProcessOptions& options) {
  const WorkerSide side;
  if (!confine({.parent = options.parent,
                .memory_bytes = options.memory_bytes,
                .name = "gpuperf-dwarf"}) ||
      !side.tell_ready()) {
    ::_exit(1);
  }
  const size_t heap_before_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  OpenFiles files(kMaxOpenFiles);
  while (std::optional<WorkerMessage> request = side.receive(kMaxDwarfRequestBytes, options.idle)) {
    if (!answer(side, *std::move(request), files)) break;
    // libdw keeps what it has read: forgotten before the limit ends the process.
    const size_t heap_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    if (heap_bytes - heap_before_bytes > options.memory_bytes / 2) files.clear();
  }
  ::_exit(0);
}

}  // namespace gpuperf
