#include "client/view.h"

#include <gtest/gtest.h>

namespace gpuperf::client {
namespace {

TEST(ViewTest, CutsToTheHeightOfTheTerminalAndSaysSo) {
  EXPECT_EQ(cut_to_height("1\n2\n3\n4\n5\n6\n", 5), "1\n2\n3\n… 3 more lines\n");
}

TEST(ViewTest, LeavesWhatFits) {
  EXPECT_EQ(cut_to_height("1\n2\n3\n4\n", 5), "1\n2\n3\n4\n");
  EXPECT_EQ(cut_to_height("1\n2\n3\n4\n", 0), "1\n2\n3\n4\n");
}

}  // namespace
}  // namespace gpuperf::client
