#include "daemon/attach/attach_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace gpuperf {
namespace {

constexpr uint64_t kCode = 0x7f00'0000'1000, kData = 0x7f00'0000'9000;

AttachTarget make_target() {
  AttachTarget target{.pid = 71, .inner_pid = 5};
  target.maps = parse_maps(
      "7f0000001000-7f0000005000 r-xp 00001000 08:01 99 /usr/lib/gpuperf/libgpuperf_injector.so\n"
      "7f0000009000-7f000000a000 rw-p 00009000 08:01 99 /usr/lib/gpuperf/libgpuperf_injector.so\n"
      "7f0000020000-7f0000021000 rw-s 00000000 00:01 7 /memfd:gpuperf-attach (deleted)\n"
      "7f0000030000-7f0000032000 rwxp 00000000 00:00 0 \n");
  return target;
}

gpuperf_attach_block make_block() {
  gpuperf_attach_block block{};
  block.magic = GPUPERF_ATTACH_MAGIC;
  block.version = GPUPERF_ATTACH_VERSION;
  block.state = GPUPERF_ATTACH_ATTACHED;
  block.entry = kCode + 0x100;
  block.stub = kCode + 0x200;
  return block;
}

TEST(AttachBlockTest, TakesOneThatMakesSense) {
  gpuperf_attach_block block = make_block();

  EXPECT_TRUE(check_block(make_target(), block));
}

TEST(AttachBlockTest, TakesNoneOfAnotherFormOrState) {
  const auto is_taken = [](auto change) {
    gpuperf_attach_block block = make_block();
    change(block);
    return check_block(make_target(), block);
  };

  EXPECT_FALSE(is_taken([](auto& block) { block.magic ^= 1; }));
  EXPECT_FALSE(is_taken([](auto& block) { block.version = GPUPERF_ATTACH_VERSION + 1; }));
  EXPECT_FALSE(is_taken([](auto& block) { block.state = 0; }));
  EXPECT_FALSE(is_taken([](auto& block) { block.state = GPUPERF_ATTACH_FAILED + 1; }));
}

TEST(AttachBlockTest, TakesNoEntryOutsideTheLibrarysCode) {
  for (const uint64_t entry :
       {uint64_t{1}, kData, kCode - 1, kCode + 0x4000, uint64_t{0x7f00'0003'0000}, UINT64_MAX}) {
    gpuperf_attach_block block = make_block();
    block.entry = entry;
    EXPECT_FALSE(check_block(make_target(), block)) << entry;
    block = make_block();
    block.stub = entry;
    EXPECT_FALSE(check_block(make_target(), block)) << entry;
  }
}

TEST(AttachBlockTest, EndsItsTexts) {
  gpuperf_attach_block block = make_block();
  std::memset(block.path, 'a', sizeof block.path);
  std::memset(block.text, 'b', sizeof block.text);
  std::memset(block.entry_name, 'c', sizeof block.entry_name);

  ASSERT_TRUE(check_block(make_target(), block));

  EXPECT_EQ(std::strlen(block.path), sizeof(block.path) - 1);
  EXPECT_EQ(std::strlen(block.text), sizeof(block.text) - 1);
  EXPECT_EQ(std::strlen(block.entry_name), sizeof(block.entry_name) - 1);
}

TEST(AttachTargetTest, FindsItsBlockByNameSharingAndSize) {
  AttachTarget target = make_target();
  ASSERT_NE(target.find_block(), nullptr);
  EXPECT_EQ(target.find_block()->start_address, 0x7f00'0002'0000u);

  target.maps = parse_maps(
      "7f0000020000-7f0000022000 rw-s 00000000 00:01 7 /memfd:gpuperf-attach (deleted)\n"
      "7f0000030000-7f0000031000 rw-p 00000000 00:01 7 /memfd:gpuperf-attach (deleted)\n"
      "7f0000040000-7f0000041000 r--s 00000000 00:01 7 /memfd:gpuperf-attach (deleted)\n"
      "7f0000050000-7f0000051000 rw-s 00000000 00:01 7 /tmp/gpuperf-attach\n");
  EXPECT_EQ(target.find_block(), nullptr);
}

}  // namespace
}  // namespace gpuperf
