#include "daemon/view/gzip.h"

#include <zlib.h>

#include <new>
#include <stdexcept>

namespace gpuperf {

std::string to_gzip(std::string_view bytes) {
  constexpr int kWindowBits = 15;
  constexpr int kGzip = 16;  // added to the window: gzip's header, not zlib's
  constexpr int kMemoryLevel = 8;
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits + kGzip, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();  // the only failure with these arguments
  }
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::length_error("gzip: more than 4 GiB");
  return out;
}

}  // namespace gpuperf
