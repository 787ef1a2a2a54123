#include "daemon/probe/attach/mapped_array.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace gpuperf {
namespace {

// Of an array that is large, mapped at once: some 100 cells.
constexpr size_t kPieceBytes = size_t{1} << 18;

}  // namespace

Result<MappedArray> MappedArray::map(int map_fd, std::string_view name, size_t value_bytes,
                                     size_t entry_count) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  MappedArray array;
  array.length_bytes_ = (value_bytes * entry_count + page - 1) / page * page;
  array.entry_count_ = entry_count;
  void* memory = mmap(nullptr, array.length_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, "BPF map " + std::string(name) + ": mmap");
  array.memory_ = memory;
  return array;
}

Result<MappedArray> MappedArray::reserve(int map_fd, std::string_view name, size_t value_bytes,
                                         size_t entry_count) {
  if (value_bytes * entry_count <= kPieceBytes) {
    return map(map_fd, name, value_bytes, entry_count);
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  MappedArray array;
  array.length_bytes_ = (value_bytes * entry_count + page - 1) / page * page;
  array.entry_count_ = entry_count;
  array.map_fd_ = map_fd;
  array.value_bytes_ = value_bytes;
  array.is_piece_mapped_.resize(array.length_bytes_ / kPieceBytes + 1);
  void* memory = mmap(nullptr, array.length_bytes_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return errno_status(errno, "BPF map " + std::string(name) + ": mmap");
  array.memory_ = memory;
  return array;
}

Status MappedArray::map_entry(size_t index) {
  if (map_fd_ < 0) return absl::OkStatus();  // all of it is there
  const size_t first = index * value_bytes_ / kPieceBytes;
  const size_t last = ((index + 1) * value_bytes_ - 1) / kPieceBytes;
  for (size_t piece = first; piece <= last; ++piece) RETURN_IF_ERROR(map_piece(piece));
  return absl::OkStatus();
}

Status MappedArray::map_piece(size_t piece) {
  if (is_piece_mapped_[piece]) return absl::OkStatus();
  const size_t begin = piece * kPieceBytes;
  const size_t bytes = std::min(kPieceBytes, length_bytes_ - begin);
  void* const memory = mmap(static_cast<std::byte*>(memory_) + begin, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, map_fd_, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return errno_status(errno, "BPF map: mmap");
  is_piece_mapped_[piece] = true;
  return absl::OkStatus();
}

MappedArray::MappedArray(MappedArray&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      length_bytes_(other.length_bytes_),
      entry_count_(std::exchange(other.entry_count_, 0)),
      map_fd_(other.map_fd_),
      value_bytes_(other.value_bytes_),
      is_piece_mapped_(std::move(other.is_piece_mapped_)) {}

MappedArray& MappedArray::operator=(MappedArray&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(length_bytes_, other.length_bytes_);
  std::swap(entry_count_, other.entry_count_);
  std::swap(map_fd_, other.map_fd_);
  std::swap(value_bytes_, other.value_bytes_);
  std::swap(is_piece_mapped_, other.is_piece_mapped_);
  return *this;
}

MappedArray::~MappedArray() {
  if (memory_ != nullptr) (void)munmap(memory_, length_bytes_);  // our own mapping: cannot fail
}

}  // namespace gpuperf
