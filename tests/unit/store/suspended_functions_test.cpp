#include "daemon/store/suspended_functions.h"

#include <fstream>
#include <vector>

#include "tests/unit/files.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

const SuspendedFunction kLinear{
    .category = "libtorch", .function = "linear", .comm = "train", .share_ratio = 0.25, .times = 3};

class SuspendedFunctionsTest : public ::testing::Test {
 protected:
  Result<std::vector<SuspendedFunction>> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_suspended_functions(path_);
  }
  const TempFolder folder_;
  const std::string path_ = folder_ / "suspended_functions.json";
};

TEST_F(SuspendedFunctionsTest, AreReadAsTheyWereWritten) {
  ASSERT_TRUE(write_suspended_functions(path_, {kLinear, {.function = "\xff", .times = 1}}).ok());
  const auto functions = read_suspended_functions(path_);
  ASSERT_TRUE(functions.ok()) << functions.status();
  ASSERT_EQ(functions->size(), 2u);
  EXPECT_EQ(functions->at(0), kLinear);

  ASSERT_TRUE(write_suspended_functions(path_, {}).ok());
  EXPECT_TRUE(read_suspended_functions(path_)->empty());
}

TEST_F(SuspendedFunctionsTest, AreBounded) {
  const std::vector<SuspendedFunction> many(kSuspendedFunctionsMax + 5, kLinear);
  ASSERT_TRUE(write_suspended_functions(path_, many).ok());
  EXPECT_EQ(read_suspended_functions(path_)->size(), kSuspendedFunctionsMax);
}

TEST_F(SuspendedFunctionsTest, NoFileIsNotFoundAndADamagedOneNamesItself) {
  EXPECT_TRUE(absl::IsNotFound(read_suspended_functions(path_).status()));
  for (const char* text :
       {"", "{}", "[1]", "[{}]", "nonsense",
        R"([{"category":"a","function":"b","comm":"c","share_ratio":-1,"times":1}])",
        R"([{"category":"a","function":"b","comm":"c","share_ratio":"1","times":1}])",
        R"([{"category":"a","function":"b","comm":"c","share_ratio":1,"times":-1}])",
        R"([{"category":7,"function":"b","comm":"c","share_ratio":1,"times":1}])"}) {
    const auto functions = read(text);
    EXPECT_TRUE(absl::IsInvalidArgument(functions.status())) << text;
    EXPECT_THAT(std::string(functions.status().message()), HasSubstr(path_));
  }
}

}  // namespace
}  // namespace gpuperf
