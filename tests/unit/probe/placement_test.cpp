#include "daemon/probe/placement.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

using namespace std::string_literals;

// Where the function at `offset` of a file with this content is probed.
uint64_t place(const std::string& content, uint64_t offset) {
  const Fd file(memfd_create("code", MFD_CLOEXEC));
  EXPECT_EQ(write(file.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return place_probe(file.get(), offset);
}

const std::string kEndbr64 = "\xf3\x0f\x1e\xfa";
const std::string kRest = "\x48\x89\xe5\x5d\xc3\x90\x90"s;

TEST(PlaceProbeTest, GoesBehindAnEndbr64ThatAPushFollows) {
  EXPECT_EQ(place("\x90\x90" + kEndbr64 + "\x55" + kRest, 2), 6u);      // push %rbp
  EXPECT_EQ(place("\x90\x90" + kEndbr64 + "\x41\x57" + kRest, 2), 6u);  // push %r15
}

TEST(PlaceProbeTest, StaysWhereNothingIsWon) {
  EXPECT_EQ(place(kEndbr64 + "\x48\x83\xec\x08" + kRest, 0), 0u);  // sub $8, %rsp
  EXPECT_EQ(place(kEndbr64 + "\x41\x89\xf8" + kRest, 0), 0u);      // mov %edi, %r8d
  EXPECT_EQ(place("\x55" + kRest, 0), 0u);
}

TEST(PlaceProbeTest, StaysWhereTheFileEnds) {
  EXPECT_EQ(place(kEndbr64 + "\x55", 0), 0u);
  EXPECT_EQ(place(kEndbr64, 4), 4u);
  EXPECT_EQ(place("", uint64_t{1} << 40), uint64_t{1} << 40);
}

}  // namespace
}  // namespace gpuperf
