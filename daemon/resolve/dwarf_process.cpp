#include "daemon/resolve/dwarf_process.h"

#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/base/byte_lru.h"
#include "daemon/base/fd.h"
#include "daemon/resolve/confinement.h"
#include "daemon/resolve/dwarf_message.h"

namespace gpuperf {
namespace {

constexpr int kSocket = 3;  // behind standard error, which stays for sanitizers
constexpr size_t kMaxOpenFiles = 32;

struct OpenDwarf {
  Fd file;
  Fd alternate;
  std::unique_ptr<DwarfReader> reader;  // null = not readable; last: it uses the descriptors
};

struct Received {
  DwarfRequest request;
  Fd file;
  Fd alternate;
};

// Takes the descriptors that came with a message.
void take_descriptors(msghdr& message, Received& received) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::array<int, 2> fds{-1, -1};
    std::memcpy(fds.data(), CMSG_DATA(header), std::min(count, fds.size()) * sizeof(int));
    received.file = Fd(fds[0]);
    received.alternate = Fd(fds[1]);
  }
}

// Nothing when the daemon is gone. It sends a request in one piece.
std::optional<Received> receive_request() {
  std::array<char, 2 * sizeof(uint64_t) + kMaxRequestAddresses * sizeof(uint64_t)> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(kSocket, &message, MSG_CMSG_CLOEXEC);
  if (length <= 0) return std::nullopt;
  Received received;
  take_descriptors(message, received);
  std::optional<DwarfRequest> request =
      decode_request(std::string_view(bytes.data(), static_cast<size_t>(length)));
  if (!request) return std::nullopt;
  received.request = *std::move(request);
  return received;
}

bool send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool answer(Received received, ByteLru<uint64_t, OpenDwarf>& files) {
  const DwarfRequest& request = received.request;
  OpenDwarf* known = files.find(request.file_id);
  if (known == nullptr) {
    auto reader = DwarfReader::open(received.file.get(), received.alternate.get());
    OpenDwarf opened{.file = std::move(received.file), .alternate = std::move(received.alternate)};
    if (reader.ok()) opened.reader = *std::move(reader);
    (void)files.put(request.file_id, std::move(opened), 1);  // there is room for kMaxOpenFiles
    known = files.find(request.file_id);
  }
  ReplyWriter reply;
  for (const uint64_t vaddr : request.vaddrs) {
    if (!reply.add(known->reader ? known->reader->find_frames(vaddr)
                                 : std::vector<SourceFrame>())) {
      break;
    }
  }
  const auto length = static_cast<uint32_t>(reply.bytes().size());
  return send_all({reinterpret_cast<const char*>(&length), sizeof length}) &&
         send_all(reply.bytes());
}

bool wait_for_request(std::chrono::milliseconds idle) {
  pollfd waited{.fd = kSocket, .events = POLLIN, .revents = 0};
  return ::poll(&waited, 1, static_cast<int>(idle.count())) == 1;
}

}  // namespace

void run_dwarf_process(const DwarfProcessOptions& options) {
  if (!confine({.kept_fd = options.socket,
                .fd_number = kSocket,
                .parent = options.parent,
                .memory_bytes = options.memory_bytes,
                .name = "gpuperf-dwarf"})) {
    ::_exit(1);
  }
  const size_t heap_before_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  ByteLru<uint64_t, OpenDwarf> files(kMaxOpenFiles);
  while (wait_for_request(options.idle)) {
    std::optional<Received> received = receive_request();
    if (!received || !answer(*std::move(received), files)) break;
    // libdw keeps what it has read: forgotten before the limit ends the process.
    const size_t heap_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    if (heap_bytes - heap_before_bytes > options.memory_bytes / 2) {
      files.clear();
    }
  }
  ::_exit(0);
}

}  // namespace gpuperf
