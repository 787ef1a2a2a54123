// The daemon's unit tests: those of one folder of tests/unit with --folder NAME, all without.

#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

#include "daemon/resolve/worker_main.h"

namespace {

bool is_in_folder(const testing::TestInfo& test, const std::string& folder) {
  return std::string_view(test.file()).find("/unit/" + folder + "/") != std::string_view::npos;
}

// GoogleTest's filter of the folder's tests; empty where it has none.
std::string make_filter(const std::string& folder) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (is_in_folder(test, folder)) filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  gpuperf::run_if_worker({argv, static_cast<size_t>(argc)});
  testing::InitGoogleMock(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  if (argc != 3 || std::string_view(argv[1]) != "--folder") {
    std::cerr << "usage: unit_test [--folder NAME] [GoogleTest's options]\n";
    return 2;
  }
  const std::string filter = make_filter(argv[2]);
  if (filter.empty()) {
    std::cerr << "unit_test: tests/unit/" << argv[2] << " has no test\n";
    return 2;
  }
  // With a filter of its own: a test that runs itself again, or who looks for one test.
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = filter;
  return RUN_ALL_TESTS();
}
