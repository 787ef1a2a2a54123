#pragma once

#include <zlib.h>

#include <array>
#include <streambuf>
#include <string>

namespace gpuperf {

// What is written to a stream, as a gzip file; the text itself is never kept. At the fastest level:
// a scrape is packed in a third of the time of the usual one, to a little more.
//
// Throws std::bad_alloc where zlib has no memory.
class GzipBuffer final : public std::streambuf {
 public:
  GzipBuffer();
  ~GzipBuffer() override;
  GzipBuffer(const GzipBuffer&) = delete;
  GzipBuffer& operator=(const GzipBuffer&) = delete;

  // The file; nothing may be written any more.
  std::string finish();

 private:
  int overflow(int next) override;
  void pack(int flush);

  z_stream stream_{};
  std::array<char, 16 * 1024> text_;
  std::array<char, 16 * 1024> packed_;
  std::string file_;
};

}  // namespace gpuperf
