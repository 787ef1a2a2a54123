#include "daemon/base/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/fd.h"

namespace gpuperf {
namespace {

TEST(JournalStream, IsTheOneThatTheEnvironmentNames) {
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const Fd ours(ends[0]), other_end(ends[1]);
  struct stat found {};
  ASSERT_EQ(fstat(ours.get(), &found), 0);
  const std::string name = fmt::format("{}:{}", found.st_dev, found.st_ino);

  EXPECT_TRUE(is_journal_stream(ours.get(), name.c_str()));
  EXPECT_FALSE(is_journal_stream(ours.get(), (name + "0").c_str()));
  EXPECT_FALSE(is_journal_stream(ours.get(), "nonsense"));
  EXPECT_FALSE(is_journal_stream(ours.get(), nullptr));
  EXPECT_FALSE(is_journal_stream(-1, name.c_str()));
}

TEST(JournalEntry, HasAFieldForEachKeyWithItsValueAsItIs) {
  const auto entry = make_journal_entry(spdlog::level::warn, "slow pid=71",
                                        LogEvent("slow", "eda5299cbeca4ecbb2eaf6bd3b827770"),
                                        {{"share_ratio", "0.5"}, {"comm", "a\nb=\"c\""}});

  EXPECT_THAT(
      entry, testing::ElementsAre("MESSAGE=slow pid=71", "PRIORITY=4", "SYSLOG_IDENTIFIER=gpuperfd",
                                  "MESSAGE_ID=eda5299cbeca4ecbb2eaf6bd3b827770",
                                  "GPUPERF_SHARE_RATIO=0.5", "GPUPERF_COMM=a\nb=\"c\""));
}

TEST(JournalEntry, HasNoMessageIdWhereTheEventHasNone) {
  EXPECT_THAT(make_journal_entry(spdlog::level::info, "started", "started", {}),
              testing::ElementsAre("MESSAGE=started", "PRIORITY=6", "SYSLOG_IDENTIFIER=gpuperfd"));
}

TEST(JournalEntry, HasThePriorityOfItsLevel) {
  const auto get_priority = [](spdlog::level::level_enum level) {
    return make_journal_entry(level, "", "", {})[1];
  };

  EXPECT_EQ(get_priority(spdlog::level::debug), "PRIORITY=7");
  EXPECT_EQ(get_priority(spdlog::level::err), "PRIORITY=3");
  EXPECT_EQ(get_priority(spdlog::level::critical), "PRIORITY=2");
}

}  // namespace
}  // namespace gpuperf
