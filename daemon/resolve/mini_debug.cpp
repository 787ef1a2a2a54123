#include "daemon/resolve/mini_debug.h"

#include <lzma.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/write_all.h"

namespace gpuperf {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;

class XzStream {
 public:
  XzStream() = default;
  ~XzStream() { lzma_end(&stream_); }
  XzStream(const XzStream&) = delete;
  XzStream& operator=(const XzStream&) = delete;

  bool begin() { return lzma_stream_decoder(&stream_, kMaxMiniDebugBytes, 0) == LZMA_OK; }
  lzma_stream* operator->() { return &stream_; }
  lzma_ret expand() { return lzma_code(&stream_, LZMA_RUN); }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

Result<Fd> expand_mini_debug(const ElfFile& file, const SectionBytes& section) {
  if (section.size_bytes > kMaxMiniDebugBytes) {
    return absl::ResourceExhaustedError("too large: mini debug info");
  }
  Fd expanded(::memfd_create("mini-debug", MFD_CLOEXEC));
  if (!expanded.valid()) return errno_status(errno, "memfd for mini debug info");
  XzStream stream;
  if (!stream.begin()) return absl::InternalError("xz decoder");
  std::vector<uint8_t> input(kChunkBytes);
  std::vector<uint8_t> output(kChunkBytes);
  uint64_t taken_bytes = 0;
  lzma_ret state = LZMA_OK;
  while (state == LZMA_OK) {
    if (stream->avail_in == 0 && taken_bytes < section.size_bytes) {
      const size_t count = std::min<uint64_t>(kChunkBytes, section.size_bytes - taken_bytes);
      const std::span part = std::span(input).first(count);
      RETURN_IF_ERROR(file.read(section.offset_bytes + taken_bytes, std::as_writable_bytes(part)));
      taken_bytes += count;
      stream->next_in = input.data();
      stream->avail_in = count;
    }
    stream->next_out = output.data();
    stream->avail_out = output.size();
    state = stream.expand();  // at the end of the input: LZMA_BUF_ERROR, not a loop
    if (stream->total_out > kMaxMiniDebugBytes) {
      return absl::ResourceExhaustedError("too large: mini debug info, expanded");
    }
    RETURN_IF_ERROR(write_all(expanded.get(), {reinterpret_cast<const char*>(output.data()),
                                               output.size() - stream->avail_out}));
  }
  if (state != LZMA_STREAM_END) return absl::DataLossError("damaged mini debug info");
  return expanded;
}

}  // namespace gpuperf
