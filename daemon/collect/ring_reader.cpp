#include "daemon/collect/ring_reader.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

namespace gpuperf {
namespace {

// At once, of what waits in a ring.
constexpr size_t kWindowBytes = size_t{1} << 20;

size_t get_page_bytes() {
  static const auto kPageBytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return kPageBytes;
}

template <typename T>
T load(std::byte* shared) {
  return std::atomic_ref(*reinterpret_cast<T*>(shared)).load(std::memory_order_acquire);
}

constexpr uint64_t round_up_to_8(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }

}  // namespace

// Pages of a ring's file. Move-only.
class RingReader::Pages {
 public:
  Pages() = default;
  static Result<Pages> map(int fd, size_t offset_bytes, size_t length_bytes, int protection) {
    Pages pages;
    const size_t begin = offset_bytes / get_page_bytes() * get_page_bytes();
    pages.length_bytes_ = offset_bytes - begin + length_bytes;
    void* memory =
        mmap(nullptr, pages.length_bytes_, protection, MAP_SHARED, fd, static_cast<off_t>(begin));
    if (memory == MAP_FAILED) return errno_status(errno, "mmap");
    pages.memory_ = static_cast<std::byte*>(memory);
    pages.first_ = pages.memory_ + (offset_bytes - begin);
    return pages;
  }
  Pages(Pages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        first_(other.first_),
        length_bytes_(other.length_bytes_) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(first_, other.first_);
    std::swap(length_bytes_, other.length_bytes_);
    return *this;
  }
  ~Pages() {
    if (memory_ != nullptr) (void)munmap(memory_, length_bytes_);  // our own: cannot fail
  }
  std::byte* first() const { return first_; }

 private:
  std::byte* memory_ = nullptr;
  std::byte* first_ = nullptr;
  size_t length_bytes_ = 0;
};

// The file of a ring: a page with the consumer's position, one with the producer's, and the data
// twice, so that a record that reaches over the end is in one piece.
struct RingReader::Ring {
  int fd = -1;
  std::string name;
  size_t size_bytes = 0;
  uint64_t highest_bytes = 0;  // that waited, since the level was last taken
  Pages consumer;
  Pages producer;
};

RingReader::RingReader() = default;
RingReader::~RingReader() = default;

Status RingReader::add(int ring_fd, std::string_view name, size_t size_bytes) {
  const size_t page = get_page_bytes();
  Ring ring{.fd = ring_fd, .name = std::string(name), .size_bytes = size_bytes};
  ASSIGN_OR_RETURN(ring.consumer, Pages::map(ring_fd, 0, page, PROT_READ | PROT_WRITE));
  ASSIGN_OR_RETURN(ring.producer, Pages::map(ring_fd, page, page, PROT_READ));
  rings_.push_back(std::move(ring));
  return absl::OkStatus();
}

std::vector<RingReader::Level> RingReader::take_levels() {
  std::vector<Level> levels;
  for (Ring& ring : rings_) {
    levels.push_back({std::exchange(ring.highest_bytes, 0), ring.size_bytes});
  }
  return levels;
}

Status RingReader::consume(const OnRecord& on_record) {
  for (Ring& ring : rings_) RETURN_IF_ERROR(consume(ring, on_record));
  return absl::OkStatus();
}

Status RingReader::consume(Ring& ring, const OnRecord& on_record) {
  std::atomic_ref<uint64_t> consumed(*reinterpret_cast<uint64_t*>(ring.consumer.first()));
  uint64_t position = consumed.load(std::memory_order_relaxed);  // nobody else changes it
  const auto end = load<uint64_t>(ring.producer.first());
  ring.highest_bytes = std::max(ring.highest_bytes, end - position);
  size_t window_bytes = kWindowBytes;
  while (position < end) {
    window_bytes = std::min<size_t>(window_bytes, end - position);
    const size_t offset_bytes = position & (ring.size_bytes - 1);
    auto window = Pages::map(ring.fd, 2 * get_page_bytes() + offset_bytes, window_bytes, PROT_READ);
    if (!window.ok()) return errno_status(errno, ring.name + ": map");
    const uint64_t window_end = position + window_bytes;
    std::byte* data = window->first();
    while (position < window_end) {
      const auto header = load<uint32_t>(data);
      if ((header & BPF_RINGBUF_BUSY_BIT) != 0) return absl::OkStatus();
      const uint32_t length = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
      const uint64_t whole = round_up_to_8(BPF_RINGBUF_HDR_SZ + uint64_t{length});
      if (position + whole > window_end) {  // the next window begins with it
        window_bytes = std::max<size_t>(kWindowBytes, whole);
        break;
      }
      if ((header & BPF_RINGBUF_DISCARD_BIT) == 0) {
        on_record({data + BPF_RINGBUF_HDR_SZ, length});
      }
      position += whole;
      data += whole;
      consumed.store(position, std::memory_order_release);
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuperf
