#include "client/tar_gzip.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "client/sha256.h"

namespace gpuperf::client {
namespace {

TEST(Sha256Test, IsWrittenInHexadecimalDigits) {
  EXPECT_EQ(to_hex(hash_sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
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
