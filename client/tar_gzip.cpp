#include "client/tar_gzip.h"

#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <string_view>

namespace gpuperf::client {
namespace {

constexpr size_t kBlockBytes = 512;
constexpr size_t kEndBlocks = 2;  // of zeros

// The header of POSIX.1-1988; numbers are octal text.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char device_major[8];
  char device_minor[8];
  char prefix[155];
  char pad[12];
};
static_assert(sizeof(Header) == kBlockBytes);

template <size_t N>
void put_octal(char (&field)[N], uint64_t value) {
  (void)snprintf(field, N, "%0*llo", static_cast<int>(N) - 1,
                 static_cast<unsigned long long>(value));
}

std::string make_header(const ArchivedFile& file, uint64_t unix_seconds) {
  Header header{};
  file.name.copy(header.name, sizeof header.name - 1);
  put_octal(header.mode, 0600);
  put_octal(header.uid, 0);
  put_octal(header.gid, 0);
  put_octal(header.size, file.bytes.size());
  put_octal(header.mtime, unix_seconds);
  header.type = '0';
  std::memcpy(header.magic, "ustar", 6);
  std::memcpy(header.version, "00", 2);
  std::memset(header.checksum, ' ', sizeof header.checksum);
  unsigned sum = 0;
  const std::string_view bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const char byte : bytes) sum += static_cast<unsigned char>(byte);
  (void)snprintf(header.checksum, sizeof header.checksum, "%06o", sum);
  return std::string(bytes);
}

Result<std::string> compress(const std::string& bytes) {
  constexpr int kGzip = 16;  // added to the window's bits: with gzip's header
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::InternalError("zlib: cannot begin to compress; free some memory");
  }
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // only read
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int ended = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  (void)deflateEnd(&stream);
  if (ended != Z_STREAM_END) return absl::InternalError("zlib: cannot compress");
  return packed;
}

}  // namespace

Result<std::string> make_tar_gzip(const std::vector<ArchivedFile>& files, uint64_t unix_seconds) {
  std::string tar;
  for (const ArchivedFile& file : files) {
    tar += make_header(file, unix_seconds);
    tar += file.bytes;
    tar.resize((tar.size() + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  }
  tar.resize(tar.size() + kEndBlocks * kBlockBytes);
  return compress(tar);
}

}  // namespace gpuperf::client
