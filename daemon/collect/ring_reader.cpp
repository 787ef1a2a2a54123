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

// Mapped at once of a ring's data. Mapping takes the kernel longer than reading the records of one
// wake-up, so it stays for the next ones; of six rings it is 3 MiB of resident memory at most.
constexpr size_t kWindowBytes = size_t{1} << 19;

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
    pages.begin_bytes_ = begin;
    pages.first_ = pages.memory_ + (offset_bytes - begin);
    return pages;
  }
  Pages(Pages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        first_(other.first_),
        begin_bytes_(other.begin_bytes_),
        length_bytes_(other.length_bytes_) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(first_, other.first_);
    std::swap(begin_bytes_, other.begin_bytes_);
    std::swap(length_bytes_, other.length_bytes_);
    return *this;
  }
  ~Pages() {
    if (memory_ != nullptr) (void)munmap(memory_, length_bytes_);  // our own: cannot fail
  }
  std::byte* first() const { return first_; }
  // Null where `length_bytes` from `offset_bytes` of the file on are not in it.
  std::byte* find(size_t offset_bytes, size_t length_bytes) const {
    if (memory_ == nullptr || offset_bytes < begin_bytes_) return nullptr;
    const size_t distance = offset_bytes - begin_bytes_;
    if (distance > length_bytes_ || length_bytes > length_bytes_ - distance) return nullptr;
    return memory_ + distance;
  }

 private:
  std::byte* memory_ = nullptr;
  std::byte* first_ = nullptr;
  size_t begin_bytes_ = 0;  // in the file
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
  Pages window;  // of the data

  // `length_bytes` of the data at `position`.
  Result<std::byte*> get(uint64_t position, size_t length_bytes) {
    const size_t data_bytes = 2 * get_page_bytes();  // before it
    const size_t offset_bytes = data_bytes + (position & (size_bytes - 1));
    if (std::byte* const known = window.find(offset_bytes, length_bytes)) return known;
    const size_t end_bytes = data_bytes + 2 * size_bytes;
    auto pages = Pages::map(
        fd, offset_bytes, std::min(std::max(kWindowBytes, length_bytes), end_bytes - offset_bytes),
        PROT_READ);
    if (!pages.ok()) return errno_status(errno, name + ": map");
    window = *std::move(pages);
    return window.first();
  }
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
  while (position < end) {
    ASSIGN_OR_RETURN(std::byte* const front, ring.get(position, BPF_RINGBUF_HDR_SZ));
    const auto header = load<uint32_t>(front);
    if ((header & BPF_RINGBUF_BUSY_BIT) != 0) return absl::OkStatus();
    const uint32_t length = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
    const uint64_t whole = round_up_to_8(BPF_RINGBUF_HDR_SZ + uint64_t{length});
    if ((header & BPF_RINGBUF_DISCARD_BIT) == 0) {
      ASSIGN_OR_RETURN(const std::byte* const record, ring.get(position, whole));
      on_record({record + BPF_RINGBUF_HDR_SZ, length});
    }
    position += whole;
    consumed.store(position, std::memory_order_release);
  }
  return absl::OkStatus();
}

}  // namespace gpuperf
