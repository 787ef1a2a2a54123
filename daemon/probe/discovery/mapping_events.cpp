#include "daemon/probe/discovery/mapping_events.h"

#include <linux/perf_event.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

// Between two looks at the rings.
constexpr int kPauseMs = 10;
// A power of two: a busy build host maps about 2,000 files a second per CPU at 100 bytes each, so
// this holds 150 ms of the worst seen; a loss only costs a scan.
constexpr size_t kDataBytes = size_t{32} * 1024;

// Layout of PERF_RECORD_MMAP2 without a build id: linux/perf_event.h.
struct Mmap2Record {
  perf_event_header header;
  uint32_t pid, tid;
  uint64_t address, length_bytes, page_offset;
  uint32_t major, minor;
  uint64_t inode, generation;
  uint32_t protection, flags;
  // followed by the file name, zero-terminated
};
struct LostRecord {
  perf_event_header header;
  uint64_t id, lost;
};

}  // namespace

struct MappingEvents::Ring {
  Fd fd;
  void* memory = MAP_FAILED;
  size_t length_bytes = 0;

  ~Ring() {
    if (memory != MAP_FAILED) (void)munmap(memory, length_bytes);
  }
  Status open(int cpu);
  uint64_t drain(const std::function<void(uint32_t, std::string_view)>& on_mapping);
};

Status MappingEvents::Ring::open(int cpu) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.mmap = 1;
  attr.mmap2 = 1;
  attr.watermark = 1;
  attr.wakeup_watermark = 1;
  fd = Fd(static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!fd.valid()) {
    return errno_status(errno, "perf event for mappings on CPU " + std::to_string(cpu));
  }
  length_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE)) + kDataBytes;
  memory = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return errno_status(errno, "perf ring for mappings on CPU " + std::to_string(cpu));
  }
  return absl::OkStatus();
}

uint64_t MappingEvents::Ring::drain(
    const std::function<void(uint32_t, std::string_view)>& on_mapping) {
  auto* page = static_cast<perf_event_mmap_page*>(memory);
  const auto* data = static_cast<const char*>(memory) + static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uint64_t head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
  uint64_t tail = page->data_tail;
  uint64_t lost = 0;
  // A record may wrap around the end of the ring: it is copied out whole. Names end at 4 KiB.
  alignas(8) char record[sizeof(Mmap2Record) + 4096 + 64];
  while (tail < head) {
    perf_event_header header;  // 8-byte aligned records: the header itself never wraps
    std::memcpy(&header, data + tail % kDataBytes, sizeof header);
    if (header.size < sizeof header || header.size > head - tail)
      break;  // the kernel's bug; resync below
    const size_t length = std::min<size_t>(header.size, sizeof record - 1);
    const size_t first = std::min(length, kDataBytes - tail % kDataBytes);
    std::memcpy(record, data + tail % kDataBytes, first);
    std::memcpy(record + first, data, length - first);
    record[length] = '\0';
    tail += header.size;
    if (header.type == PERF_RECORD_MMAP2 && length > sizeof(Mmap2Record)) {
      const auto* mapping = reinterpret_cast<const Mmap2Record*>(record);
      on_mapping(mapping->pid, record + sizeof(Mmap2Record));
    } else if (header.type == PERF_RECORD_LOST && length >= sizeof(LostRecord)) {
      lost += reinterpret_cast<const LostRecord*>(record)->lost;
    }
  }
  std::atomic_ref(page->data_tail).store(head, std::memory_order_release);
  return lost;
}

Result<std::unique_ptr<MappingEvents>> MappingEvents::start(Filter filter) {
  auto events = std::unique_ptr<MappingEvents>(new MappingEvents(std::move(filter)));
  RETURN_IF_ERROR(events->open());
  events->thread_ = std::thread([raw = events.get()] { raw->run(); });
  return events;
}

MappingEvents::MappingEvents(Filter filter) : filter_(std::move(filter)) {}

Status MappingEvents::open() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  news_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  stop_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!epoll_.valid() || !news_.valid() || !stop_.valid()) {
    return errno_status(errno, "mapping events: epoll_create1 or eventfd");
  }
  Status last = absl::NotFoundError("perf events for mappings: no CPU online");
  const long cpus = sysconf(_SC_NPROCESSORS_CONF);
  for (int cpu = 0; cpu < cpus; ++cpu) {
    auto ring = std::make_unique<Ring>();
    Status status = ring->open(cpu);
    if (status.ok()) {
      rings_.push_back(std::move(ring));
    } else if (!absl::IsNotFound(status) && status.code() != absl::ErrnoToStatusCode(ENODEV)) {
      return status;  // an offline CPU answers ENODEV; anything else is the same for all
    } else {
      last = status;
    }
  }
  if (rings_.empty()) return last;
  std::vector<int> watched{stop_.get()};
  for (const auto& ring : rings_) watched.push_back(ring->fd.get());
  for (const int descriptor : watched) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return errno_status(errno, "mapping events: epoll_ctl");
    }
  }
  return absl::OkStatus();
}

MappingEvents::~MappingEvents() {
  if (!thread_.joinable()) return;
  (void)eventfd_write(stop_.get(), 1);  // cannot fail: the counter is far from full
  thread_.join();
}

void MappingEvents::set_filter(Filter filter) {
  const MutexLock lock(mutex_);
  filter_ = std::move(filter);
}

std::pair<MappingEvents::Notices, uint64_t> MappingEvents::take() {
  const MutexLock lock(mutex_);
  eventfd_t count = 0;
  (void)eventfd_read(news_.get(), &count);  // empty when nothing waits
  waiting_counts_.clear();
  mark_.note(0);
  return {std::exchange(waiting_, {}), std::exchange(lost_, 0)};
}

void MappingEvents::run() {
  while (true) {
    epoll_event event{};
    if (epoll_wait(epoll_.get(), &event, 1, -1) < 0 && errno != EINTR) return;
    if (event.data.fd == stop_.get()) return;
    {
      const Work work("mappings");
      drain();
    }
    pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
    if (poll(&stop, 1, kPauseMs) > 0) return;
  }
}

void MappingEvents::drain() {
  const MutexLock lock(mutex_);
  const size_t waiting_before = waiting_.size();
  const uint64_t lost_before = lost_;
  for (const auto& ring : rings_) {
    lost_ += ring->drain([this](uint32_t pid, std::string_view name)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                               std::string path(name);
                               if (!filter_(pid, path)) return;
                               size_t& of_process = waiting_counts_[pid];
                               if (of_process >= kMaxWaitingOfProcess) return;
                               if (waiting_.size() < kMaxWaiting) {
                                 ++of_process;
                                 waiting_.emplace(pid, std::move(path));
                               } else if (!waiting_.contains({pid, path})) {
                                 ++lost_;
                               }
                             });
  }
  mark_.note(waiting_.size());
  if (waiting_.size() == waiting_before && lost_ == lost_before) return;
  (void)eventfd_write(news_.get(), 1);  // full only when a wake-up already waits
}

}  // namespace gpuperf
