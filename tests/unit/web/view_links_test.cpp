#include "daemon/web/view_links.h"

#include <gtest/gtest.h>

#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

v1::FetchCaptureRequest make_request(uint64_t id) {
  v1::FetchCaptureRequest request;
  request.set_id(id);
  return request;
}

TEST(ViewLinksTest, FindsWhatALinkIsOf) {
  FakeClock clock;
  ViewLinks links(clock);
  const std::string a = *links.add(make_request(1)), b = *links.add(make_request(2));

  EXPECT_EQ(links.find(a)->id(), 1u);
  EXPECT_EQ(links.find(b)->id(), 2u);
  EXPECT_FALSE(links.find("").has_value());
}

TEST(ViewLinksTest, ForgetsALinkAfterItsTime) {
  FakeClock clock;
  ViewLinks links(clock);
  const std::string old = *links.add(make_request(1));
  clock.advance(ViewLinks::kLifetime - std::chrono::nanoseconds(1));
  const std::string young = *links.add(make_request(2));
  EXPECT_TRUE(links.find(old).has_value());

  clock.advance(std::chrono::nanoseconds(1));

  EXPECT_FALSE(links.find(old).has_value());
  EXPECT_TRUE(links.find(young).has_value());
}

TEST(ViewLinksTest, KeepsTheNewestWhenFull) {
  FakeClock clock;
  ViewLinks links(clock);
  const std::string first = *links.add(make_request(1));
  std::string last;
  for (size_t i = 0; i < ViewLinks::kMaxLinks; ++i) last = *links.add(make_request(2));

  EXPECT_FALSE(links.find(first).has_value());
  EXPECT_TRUE(links.find(last).has_value());
}

}  // namespace
}  // namespace gpuperf
