#include "daemon/rpc/stored_stacks.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/matchers.h"
#include "tests/unit/proto_text.h"

namespace gpuperf {
namespace {

StoredStack make_stored(uint64_t id, const std::string& text) {
  return {.id = id, .body = parse_text<v1::StoredStack>(text).SerializeAsString()};
}

// A stack in each place; that of the second waker is the call's own.
constexpr const char* kWhole = R"(
    id: 7 user_stack { symbol: "main" address: 16 } user_stack { module: "/l" }
    user_stack_end: "cut" user_stack_id: "7fffffffffffffff"
    time_split {
      waker { tid: 5 stack { symbol: "push" } stack_id: "000000000000001f" }
      waits {
        kernel_stack { symbol: "schedule" } kernel_stack_id: "0000000000000002"
        waker { tid: 5 stack { symbol: "push" } stack_id: "000000000000001f" }
      }
      waits {
        kernel_stack { symbol: "schedule" } kernel_stack_id: "0000000000000002"
        waker {
          tid: 6 stack { symbol: "main" address: 16 } stack { module: "/l" }
          stack_id: "7fffffffffffffff"
        }
      }
      waits { kind: "sleep" }
    })";
constexpr const char* kWithoutFrames = R"(
    id: 7 user_stack_end: "cut" user_stack_id: "7fffffffffffffff"
    time_split {
      waker { tid: 5 stack_id: "000000000000001f" }
      waits {
        kernel_stack_id: "0000000000000002"
        waker { tid: 5 stack_id: "000000000000001f" }
      }
      waits {
        kernel_stack_id: "0000000000000002"
        waker { tid: 6 stack_id: "7fffffffffffffff" }
      }
      waits { kind: "sleep" }
    })";

std::vector<StoredStack> make_stacks() {
  return {make_stored(2, "frames { symbol: 'schedule' }"),
          make_stored(0x1f, "frames { symbol: 'push' }"),
          make_stored(INT64_MAX, "frames { symbol: 'main' address: 16 } frames { module: '/l' }")};
}

TEST(StoredStacksTest, TakesEachStackOnce) {
  auto call = parse_text<v1::SlowCall>(kWhole);

  EXPECT_EQ(take_stacks(call), make_stacks());

  expect_message(call, kWithoutFrames);
}

TEST(StoredStacksTest, PutsThemBackInEveryPlace) {
  auto call = parse_text<v1::SlowCall>(kWithoutFrames);

  put_back_stacks(make_stacks(), call);

  expect_message(call, kWhole);
}

TEST(StoredStacksTest, TakesNothingOfACallWithoutStacks) {
  auto call = parse_text<v1::SlowCall>("id: 7");

  EXPECT_THAT(take_stacks(call), IsEmpty());
  put_back_stacks({}, call);

  expect_message(call, "id: 7");
}

TEST(StoredStacksTest, LeavesFramesInPlaceWithoutAnIdThatTheStoreTakes) {
  for (const std::string id : {"", "0000000000000000", "8000000000000000", "12x", "x", "-1", " 1",
                               "0x1", "123456789abcdef01"}) {
    const std::string text = "user_stack { symbol: 'f' } user_stack_id: '" + id + "'";
    auto call = parse_text<v1::SlowCall>(text);

    EXPECT_THAT(take_stacks(call), IsEmpty()) << id;
    put_back_stacks({{make_stored(1, "frames { symbol: 'g' }")}}, call);

    expect_message(call, text);
  }
}

TEST(StoredStacksTest, TakesNoStackOfNoFrames) {
  auto call = parse_text<v1::SlowCall>(
      "user_stack_id: '01' time_split { waker { stack { symbol: 'f' } stack_id: '01' } }");

  EXPECT_THAT(take_stacks(call), ElementsAre(make_stored(1, "frames { symbol: 'f' }")));
}

TEST(StoredStacksTest, LeavesAStackEmptyThatIsMissingOrDoesNotParse) {
  const std::string text = "user_stack_id: '01' time_split { waits { kernel_stack_id: '02' } }";
  auto call = parse_text<v1::SlowCall>(text);
  StoredStack damaged = make_stored(2, "frames { symbol: 'f' }");
  damaged.body += "\xff\xff";  // behind a frame that does

  put_back_stacks({{damaged, make_stored(3, "frames { symbol: 'g' }")}}, call);

  expect_message(call, text);
}

TEST(StoredStacksTest, KeepsTheFramesOfACallThatHasThemWithin) {
  const std::string text = "user_stack { symbol: 'f' } user_stack_id: '01'";
  auto call = parse_text<v1::SlowCall>(text);

  put_back_stacks({{make_stored(1, "frames { symbol: 'g' }")}}, call);

  expect_message(call, text);
}

}  // namespace
}  // namespace gpuperf
