#include "daemon/rpc/snapshot_pages.h"

#include "tests/unit/matchers.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

v1::Page make_page(const std::string& token) {
  v1::Page page;
  page.set_page_token(token);
  return page;
}

class SnapshotPagesTest : public ::testing::Test {
 protected:
  // Publishes a new snapshot and begins a list with it; the token of its second page.
  std::string begin_list(const std::string& key = "key") {
    board_.publish(std::make_shared<const Snapshot>());
    const auto place = pages_.find_place({}, key);
    EXPECT_TRUE(place.ok()) << place.status();
    return pages_.make_token(*place, 10, key);
  }
  std::string explain(const std::string& token, const std::string& key = "key") {
    const auto place = pages_.find_place(make_page(token), key);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(place.status().message());
  }

  SnapshotBoard board_;
  FakeClock clock_;
  SnapshotPages pages_{board_, clock_};
};

TEST_F(SnapshotPagesTest, LaterPagesComeFromTheSnapshotOfTheFirst) {
  const std::string token = begin_list();
  const std::shared_ptr<const Snapshot> first = board_.get();
  board_.publish(std::make_shared<const Snapshot>());

  const auto place = pages_.find_place(make_page(token), "key");

  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->snapshot, first);
  EXPECT_EQ(place->offset, 10u);
}

TEST_F(SnapshotPagesTest, RefusesTextThatIsNoToken) {
  const std::string token = begin_list();

  for (const std::string& text : {std::string("x"), std::string("!!!"), token + "AAAA",
                                  token.substr(1), std::string(32, 'A')}) {
    EXPECT_THAT(explain(text), HasSubstr("start again without a token")) << text;
  }
}

TEST_F(SnapshotPagesTest, RefusesATokenOfAnotherRequestOrRun) {
  const std::string token = begin_list();
  SnapshotPages other_run(board_, clock_);

  EXPECT_THAT(explain(token, "other key"), HasSubstr("another method, filter or order"));
  EXPECT_FALSE(other_run.find_place(make_page(token), "key").ok());
}

TEST_F(SnapshotPagesTest, ForgetsTheLeastUsedListWhenTooManyAreUnfinished) {
  const std::string oldest = begin_list();
  clock_.advance(std::chrono::nanoseconds(1));
  const std::string unused = begin_list();
  clock_.advance(std::chrono::nanoseconds(1));
  for (int i = 0; i < 2; ++i) begin_list();
  clock_.advance(std::chrono::nanoseconds(1));
  ASSERT_TRUE(pages_.find_place(make_page(oldest), "key").ok());

  begin_list();

  EXPECT_TRUE(pages_.find_place(make_page(oldest), "key").ok());
  EXPECT_THAT(explain(unused), HasSubstr("expired"));
}

TEST_F(SnapshotPagesTest, ForgetsAListNobodyContinuesForAMinute) {
  const std::string token = begin_list();
  const std::weak_ptr<const Snapshot> pinned = board_.get();
  board_.publish(std::make_shared<const Snapshot>());
  clock_.advance(std::chrono::seconds(60));
  ASSERT_TRUE(pages_.find_place(make_page(token), "key").ok());

  clock_.advance(std::chrono::seconds(60) + std::chrono::nanoseconds(1));

  EXPECT_THAT(explain(token), HasSubstr("expired"));
  EXPECT_TRUE(pinned.expired());
}

TEST_F(SnapshotPagesTest, ListsOfOneSnapshotShareItsPlace) {
  const std::string first = begin_list();
  for (int i = 0; i < 10; ++i) {
    const auto place = pages_.find_place({}, "other");
    ASSERT_TRUE(place.ok());
    (void)pages_.make_token(*place, 1, "other");
  }

  EXPECT_TRUE(pages_.find_place(make_page(first), "key").ok());
}

TEST_F(SnapshotPagesTest, LimitsRowsAsTheApiSays) {
  v1::Page page;
  EXPECT_EQ(SnapshotPages::get_limit(page), 1'000u);
  page.set_limit(1);
  EXPECT_EQ(SnapshotPages::get_limit(page), 1u);
  page.set_limit(4'000'000'000);
  EXPECT_EQ(SnapshotPages::get_limit(page), 10'000u);
}

}  // namespace
}  // namespace gpuperf
