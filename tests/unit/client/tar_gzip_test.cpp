#include "client/tar_gzip.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "client/sha256.h"

namespace gpuperf::client {
namespace {

// Of FIPS 180-4 and RFC 6234.
TEST(Sha256Test, HashesTheExamplesOfTheStandard) {
  EXPECT_EQ(to_hex(hash_sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(hash_sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(hash_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(hash_sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(to_hex(hash_sha256("abc"), 4), "ba7816bf");
}

// What a command prints.
std::string run_shell(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

TEST(TarGzipTest, IsReadByTar) {
  const std::string path = testing::TempDir() + "tar_gzip_test.tar.gz";
  const std::string large(100'000, 'x');

  const auto packed = make_tar_gzip({{"d/empty", ""},
                                     {"d/text", "hello\n"},
                                     {"d/block", std::string(512, 'b')},
                                     {"d/large", large}},
                                    1'700'000'000);

  ASSERT_TRUE(packed.ok());
  std::ofstream(path, std::ios::binary) << *packed;
  EXPECT_EQ(run_shell("tar tzf " + path), "d/empty\nd/text\nd/block\nd/large\n");
  EXPECT_EQ(run_shell("tar xzOf " + path + " d/text"), "hello\n");
  EXPECT_EQ(run_shell("tar xzOf " + path + " d/large | wc -c"), "100000\n");
  EXPECT_NE(run_shell("TZ=UTC tar tvzf " + path).find("-rw------- 0/0"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gpuperf::client
