#include "daemon/probe/placement.h"

#include <unistd.h>

#include <array>
#include <cstring>

namespace gpuperf {
namespace {

constexpr std::array<unsigned char, 4> kEndbr64 = {0xf3, 0x0f, 0x1e, 0xfa};

// push %rax to %rdi is one byte, push %r8 to %r15 has a prefix: Intel SDM, "PUSH".
bool is_push(const unsigned char* code) {
  const auto pushes = [](unsigned char byte) { return byte >= 0x50 && byte <= 0x57; };
  return pushes(code[0]) || (code[0] == 0x41 && pushes(code[1]));
}

}  // namespace

uint64_t place_probe(int fd, uint64_t function_offset_bytes) {
  std::array<unsigned char, kEndbr64.size() + 2> code{};
  const ssize_t read =
      ::pread(fd, code.data(), code.size(), static_cast<off_t>(function_offset_bytes));
  if (read != static_cast<ssize_t>(code.size())) return function_offset_bytes;
  const bool slides = std::memcmp(code.data(), kEndbr64.data(), kEndbr64.size()) == 0 &&
                      is_push(code.data() + kEndbr64.size());
  return function_offset_bytes + (slides ? kEndbr64.size() : 0);
}

}  // namespace gpuperf
