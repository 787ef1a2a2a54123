#include "daemon/probe/code/tensor_accessors.h"

#include <fcntl.h>

#include <random>

#include "daemon/base/fd.h"
#include "tests/unit/matchers.h"
#include "tests/unit/probe/elf_builder.h"

namespace gpuperf {
namespace {

Result<TensorLayout> read_sample(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  return read_tensor_layout(fd.get());
}

std::string read_all(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  std::string bytes(size_t{1} << 20, '\0');
  bytes.resize(static_cast<size_t>(read(fd.get(), bytes.data(), bytes.size())));
  return bytes;
}

TEST(TensorLayoutTest, IsWhatTheAccessorsSay) {
  const auto layout = read_sample(TENSOR_SAMPLE);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->fields.dimensions_at, 0x10);
  EXPECT_EQ(layout->fields.strides_at, 0x30);
  EXPECT_EQ(layout->fields.operation_at, 0x50);
  EXPECT_EQ(layout->fields.sources_at, 0x98);
  EXPECT_EQ(layout->fields.data_at, 0xf8);
  EXPECT_EQ(layout->fields.name_at, 0x100);
  EXPECT_EQ(layout->fields.routed_operation, 3);
  EXPECT_THAT(layout->operations, ElementsAre("NONE", "DUP", "MUL_MAT", "MUL_MAT_ID", "GLU"));
}

TEST(TensorLayoutTest, IsNotKnownWhereFieldsDoNotFitTogether) {
  const auto layout = read_sample(TENSOR_SAMPLE_GRAD);
  EXPECT_TRUE(absl::IsFailedPrecondition(layout.status())) << layout.status();
  EXPECT_THAT(layout.status().message(), HasSubstr("other fields"));
}

TEST(TensorLayoutTest, IsNotKnownWhereAnAccessorDoesSomethingElse) {
  const auto layout = read_sample(TENSOR_SAMPLE_ODD);
  EXPECT_TRUE(absl::IsFailedPrecondition(layout.status())) << layout.status();
  EXPECT_THAT(layout.status().message(), HasSubstr("ggml_get_data does something else"));
}

TEST(TensorLayoutTest, IsNotFoundInOtherFiles) {
  EXPECT_TRUE(absl::IsNotFound(read_sample(PROBES_SAMPLE).status()));
  EXPECT_FALSE(read_tensor_layout(elf_builder::make_file("no library").get()).ok());
}

TEST(TensorLayoutTest, AnyByteMayBeWrong) {
  const std::string good = read_all(TENSOR_SAMPLE);
  std::mt19937 random(7);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 4; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto layout = read_tensor_layout(elf_builder::make_file(bytes).get());
    EXPECT_TRUE(!layout.ok() || layout->operations.size() <= 256);
  }
}

}  // namespace
}  // namespace gpuperf
