#include "daemon/probe/in_flight.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstddef>

#include "daemon/base/fd.h"

namespace gpuperf {

InFlightReader::~InFlightReader() {
  if (link_ != nullptr) (void)bpf_link__destroy(link_);  // closed whatever it answers
}

Result<std::vector<gpuperf_in_flight>> InFlightReader::read() {
  if (link_ == nullptr) {
    link_ = bpf_program__attach_iter(programs_.program("list_in_flight"), nullptr);
    if (link_ == nullptr) return errno_status(errno, "attach BPF iterator list_in_flight");
  }
  const Fd iterator(bpf_iter_create(bpf_link__fd(link_)));
  if (!iterator.valid()) return errno_status(errno, "BPF iterator list_in_flight: create");
  std::vector<gpuperf_in_flight> calls;
  size_t held_bytes = 0;
  // The kernel hands out whole pages: a record may be split between two reads.
  for (;;) {
    calls.resize(held_bytes / sizeof(gpuperf_in_flight) + 256);
    auto* bytes = reinterpret_cast<std::byte*>(calls.data());
    const ssize_t length =
        ::read(iterator.get(), bytes + held_bytes, calls.size() * sizeof(calls[0]) - held_bytes);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return errno_status(errno, "BPF iterator list_in_flight: read");
    if (length == 0) break;
    held_bytes += static_cast<size_t>(length);
  }
  calls.resize(held_bytes / sizeof(gpuperf_in_flight));
  return calls;
}

}  // namespace gpuperf
