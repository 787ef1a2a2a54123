#include "daemon/export/gzip_buffer.h"

#include <new>
#include <utility>

namespace gpuperf {

GzipBuffer::GzipBuffer() {
  constexpr int kWindowBits = 15;
  constexpr int kGzip = 16;  // added to the window: gzip's header, not zlib's
  constexpr int kMemoryLevel = 8;
  if (deflateInit2(&stream_, Z_BEST_SPEED, Z_DEFLATED, kWindowBits + kGzip, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();  // the only failure with these arguments
  }
  setp(text_.data(), text_.data() + text_.size());
}

GzipBuffer::~GzipBuffer() { deflateEnd(&stream_); }

int GzipBuffer::overflow(int next) {
  pack(Z_NO_FLUSH);
  if (next != traits_type::eof()) sputc(traits_type::to_char_type(next));
  return traits_type::not_eof(next);
}

std::string GzipBuffer::finish() {
  pack(Z_FINISH);
  return std::move(file_);
}

void GzipBuffer::pack(int flush) {
  stream_.next_in = reinterpret_cast<Bytef*>(pbase());
  stream_.avail_in = static_cast<uInt>(pptr() - pbase());
  do {
    stream_.next_out = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_out = static_cast<uInt>(packed_.size());
    (void)deflate(&stream_, flush);  // cannot fail: there is room each time
    file_.append(packed_.data(), packed_.size() - stream_.avail_out);
  } while (stream_.avail_out == 0);
  setp(text_.data(), text_.data() + text_.size());
}

}  // namespace gpuperf
