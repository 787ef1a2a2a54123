#include "daemon/probe/attach/in_flight.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "daemon/base/fd.h"

namespace gpuperf {

template <typename Record>
TaskReader<Record>::~TaskReader() {
  if (link_ != nullptr) (void)bpf_link__destroy(link_);  // closed whatever it answers
}

template <typename Record>
Result<std::vector<Record>> TaskReader<Record>::read() {
  const auto name = std::string("BPF iterator ") + program_name_;
  if (link_ == nullptr) {
    link_ = bpf_program__attach_iter(programs_.program(program_name_), nullptr);
    if (link_ == nullptr) return errno_status(errno, name + ": attach");
  }
  const Fd iterator(bpf_iter_create(bpf_link__fd(link_)));
  if (!iterator.valid()) return errno_status(errno, name + ": create");
  std::vector<Record> records;
  size_t held_bytes = 0;
  // The kernel hands out whole pages: a record may be split between two reads.
  for (;;) {
    constexpr size_t kRoomBytes = 16384;
    records.resize((held_bytes + kRoomBytes) / sizeof(Record) + 1);
    auto* bytes = reinterpret_cast<std::byte*>(records.data());
    const ssize_t length =
        ::read(iterator.get(), bytes + held_bytes, records.size() * sizeof(Record) - held_bytes);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return errno_status(errno, name + ": read");
    if (length == 0) break;
    held_bytes += static_cast<size_t>(length);
  }
  records.resize(held_bytes / sizeof(Record));
  return records;
}

template class TaskReader<gpuperf_in_flight>;
template class TaskReader<gpuperf_slow_in_flight>;
template class TaskReader<gpuperf_thread_cost>;

}  // namespace gpuperf
