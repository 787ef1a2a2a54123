#include "daemon/rpc/slow_call_list.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/rpc/stored_stacks.h"
#include "daemon/rpc/to_proto.h"
#include "tests/unit/matchers.h"
#include "tests/unit/model/make_stack.h"
#include "tests/unit/rpc/rpc_fixture.h"

namespace gpuperf {
namespace {

using testing::make_stack;
using testing::SnapshotBuilder;

using Ids = std::vector<uint64_t>;

// Of the clock's last minute: nothing is old enough to leave the store.
uint64_t start_of(uint64_t id) { return 1'000'000'000'000 + id; }

SlowCall make_call(uint64_t id, uint64_t duration_ns) {
  SlowCall call{
      .id = id, .category = "cuda", .function = "cudaMalloc", .start_unix_ns = start_of(id)};
  call.event.process = {.pid = 7, .start_boot_ns = 70};
  call.event.duration_ns = duration_ns;
  return call;
}

SlowCall make_open_call(uint64_t id, uint64_t age_ns) {
  SlowCall call = make_call(id, age_ns);
  call.event.in_flight = ThreadState::kBlocked;
  return call;
}

// Every field that the store has a column for, and some of the record.
SlowCall make_full_call(uint64_t id) {
  SlowCall call = make_call(id, 900);
  call.event.owner = {.container = "0123456789ab", .pod = "train-0", .pod_namespace = "ml"};
  call.event.comm = "python3";
  call.event.tid = 8;
  call.event.split = TimeSplit{.runnable_ns = 5};
  call.arguments = {{"bytes", "4096"}};
  call.user_stack = make_stack(
      {{.symbol = "main", .module = "/bin/a", .offset_bytes = 4, .address = 0x44}}, StackEnd::kCut);
  // One of the wakers was where the call was made.
  call.event.waits = {{.duration_ns = 30, .waker = {.tid = 9, .pid = 7}},
                      {.duration_ns = 20, .waker = {.tid = 10, .pid = 7}}};
  call.wait_stacks = {{make_stack({{.symbol = "futex_wait"}}), make_stack({{.symbol = "push"}})},
                      {make_stack({{.symbol = "futex_wait"}}), call.user_stack}};
  call.children = {{"cuda", "cuMemAlloc_v2", 2, 30}};
  call.explanation = "900 ns went into computing.";
  call.is_stored = true;
  return call;
}

class SlowCallListTest : public ::testing::Test {
 protected:
  void open_store() {
    store_ = SlowCallStore::start({.database = {.path = folder_ / "slow_calls.db"}}, clock_);
    ASSERT_EQ(store_->problem(), "");
  }
  // As another run of the daemon finds it.
  void reopen_store() {
    store_.reset();
    open_store();
  }
  void store(StoredCall call) {
    if (store_ == nullptr) open_store();
    std::promise<bool> written;
    uint64_t& last_id = builder_.snapshot().last_slow_call_id;
    last_id = std::max(last_id, call.id);
    ASSERT_TRUE(store_->post_write(
        {}, [&call] { return call; }, [&written](bool stored) { written.set_value(stored); }));
    ASSERT_TRUE(written.get_future().get());
  }
  void store(const SlowCall& call) { store(make_stored_call(call)); }
  void keep(SlowCall call) { builder_.add_slow_call(std::move(call)); }
  void forget_kept() { builder_.snapshot().slow_calls.clear(); }

  v1::ListSlowCallsResponse list(const v1::ListSlowCallsRequest& request) {
    v1::ListSlowCallsResponse response;
    status_ =
        list_slow_calls({.snapshot = builder_.build(), .store = store_.get()}, request, response);
    return response;
  }
  Ids list_ids(const std::string& request = "") {
    Ids ids;
    const auto response = list(parse_text<v1::ListSlowCallsRequest>(request));
    EXPECT_TRUE(status_.ok()) << status_;
    for (const v1::SlowCall& call : response.slow_calls()) ids.push_back(call.id());
    return ids;
  }
  v1::SlowCall get(uint64_t id) {
    v1::SlowCall call;
    status_ = get_slow_call({.snapshot = builder_.build(), .store = store_.get()}, id, call);
    return call;
  }

  TempFolder folder_;
  FakeClock clock_;
  SnapshotBuilder builder_;
  std::unique_ptr<SlowCallStore> store_;
  Status status_;
};

TEST_F(SlowCallListTest, IsThatOfMemoryWithoutAStore) {
  keep(make_call(1, 30));
  keep(make_call(2, 50));
  keep(make_call(3, 40));

  EXPECT_THAT(list_ids(), ElementsAre(2, 3, 1));
  EXPECT_THAT(list_ids("sort: \"duration_ns\""), ElementsAre(2, 3, 1));
  EXPECT_THAT(list_ids("sort: \"start_unix_ns\""), ElementsAre(3, 2, 1));
}

TEST_F(SlowCallListTest, IsThatOfTheStoreWithNothingInMemory) {
  store(make_call(1, 30));
  store(make_call(2, 50));
  store(make_call(3, 40));

  EXPECT_THAT(list_ids(), ElementsAre(2, 3, 1));
  EXPECT_THAT(list_ids("sort: \"start_unix_ns\""), ElementsAre(3, 2, 1));
}

TEST_F(SlowCallListTest, IsEmptyWhereThereIsNothing) {
  EXPECT_THAT(list_ids(), IsEmpty());
  open_store();
  EXPECT_THAT(list_ids(), IsEmpty());
}

TEST_F(SlowCallListTest, PutsMemoryAndStoreInOneOrderEachCallOnce) {
  store(make_call(1, 30));
  for (const auto& [id, duration_ns] : {std::pair{2, 50}, {4, 20}}) {
    store(make_call(id, duration_ns));
    keep(make_call(id, duration_ns));
  }
  store(make_call(3, 40));
  keep(make_call(5, 35));  // in memory only

  EXPECT_THAT(list_ids(), ElementsAre(2, 3, 5, 1, 4));
  EXPECT_THAT(list_ids("sort: \"start_unix_ns\""), ElementsAre(5, 4, 3, 2, 1));
}

TEST_F(SlowCallListTest, PutsTheLaterOfEquallyLongCallsFirst) {
  store(make_call(1, 30));
  keep(make_call(2, 30));
  store(make_call(3, 30));

  EXPECT_THAT(list_ids(), ElementsAre(3, 2, 1));
}

TEST_F(SlowCallListTest, ListsStoredCallsNewerThanAllInMemory) {
  keep(make_call(1, 90));
  store(make_call(1, 90));
  store(make_call(2, 30));  // not among the worst, and no longer recent

  EXPECT_THAT(list_ids(), ElementsAre(1, 2));
}

TEST_F(SlowCallListTest, ListsTheStoreBeforeTheFirstSnapshotOfARun) {
  store(make_call(1, 30));
  builder_ = {};

  EXPECT_THAT(list_ids(), ElementsAre(1));
}

class SlowCallPagesTest : public SlowCallListTest {
 protected:
  // All pages of at most `limit` rows; `between` is called after each but the last.
  Ids list_pages(
      v1::ListSlowCallsRequest request, uint32_t limit,
      const std::function<void()>& between = [] {}) {
    Ids ids;
    request.mutable_page()->set_limit(limit);
    for (int page = 0; page < 100; ++page) {
      const v1::ListSlowCallsResponse response = list(request);
      EXPECT_TRUE(status_.ok()) << status_;
      EXPECT_LE(response.slow_calls_size(), static_cast<int>(limit));
      for (const v1::SlowCall& call : response.slow_calls()) ids.push_back(call.id());
      if (response.next_page_token().empty()) return ids;
      request.mutable_page()->set_page_token(response.next_page_token());
      between();
    }
    ADD_FAILURE() << "more than 100 pages";
    return ids;
  }
  // Ten calls in the store, ten in memory, five in both, of durations in no order.
  void fill() {
    for (uint64_t id = 1; id <= 25; ++id) {
      const SlowCall call = make_call(id, 100 + id * 7 % 10);
      if (id <= 15) store(call);
      if (id > 10) keep(call);
    }
  }
};

TEST_F(SlowCallPagesTest, ShowEveryRowOnceInBothOrders) {
  fill();

  for (const std::string sort : {"duration_ns", "start_unix_ns"}) {
    v1::ListSlowCallsRequest request;
    request.set_sort(sort);
    const Ids whole = list_pages(request, 100);

    EXPECT_EQ(std::set(whole.begin(), whole.end()).size(), 25u);
    for (const uint32_t limit : {1, 2, 3, 7, 24, 25}) {
      EXPECT_EQ(list_pages(request, limit), whole) << sort << ", pages of " << limit;
    }
  }
}

TEST_F(SlowCallPagesTest, ShowEveryRowOnceWhileNewCallsArrive) {
  fill();
  for (const std::string sort : {"duration_ns", "start_unix_ns"}) {
    v1::ListSlowCallsRequest request;
    request.set_sort(sort);
    const Ids whole = list_pages(request, 100);
    uint64_t next_id = builder_.snapshot().last_slow_call_id + 1;

    const Ids paged = list_pages(request, 3, [&] {
      for (const uint64_t duration_ns : {50, 104, 1'000}) {
        const SlowCall call = make_call(next_id++, duration_ns);
        store(call);
        keep(call);
      }
    });

    EXPECT_EQ(paged, whole) << sort;
  }
}

TEST_F(SlowCallPagesTest, ShowNoNewCallsWhereNothingWasInMemoryBefore) {
  for (uint64_t id = 1; id <= 4; ++id) store(make_call(id, 100 + id));

  EXPECT_EQ(list_pages({}, 2,
                       [&] {
                         store(make_call(5, 50));
                         keep(make_call(6, 60));
                       }),
            (Ids{4, 3, 2, 1}));
}

TEST_F(SlowCallPagesTest, ShowCallsThatLeftMemoryForTheStoreMeanwhile) {
  for (uint64_t id = 1; id <= 6; ++id) {
    keep(make_call(id, 100 + id));
    store(make_call(id, 100 + id));
  }

  EXPECT_EQ(list_pages({}, 2, [&] { forget_kept(); }), (Ids{6, 5, 4, 3, 2, 1}));
}

TEST_F(SlowCallPagesTest, EndWithoutATokenWhereTheLastPageIsFull) {
  for (uint64_t id = 1; id <= 4; ++id) store(make_call(id, 100));

  const auto response = list(parse_text<v1::ListSlowCallsRequest>("page { limit: 4 }"));

  EXPECT_EQ(response.slow_calls_size(), 4);
  EXPECT_EQ(response.next_page_token(), "");
}

TEST_F(SlowCallPagesTest, EndWithoutATokenWhereTheRestOfTheStoreIsInMemoryToo) {
  for (uint64_t id = 1; id <= 9; ++id) store(make_call(id, 100 + id));
  for (uint64_t id = 1; id <= 8; ++id) keep(make_call(id, 500 + id));

  EXPECT_EQ(list_pages({}, 3), (Ids{8, 7, 6, 5, 4, 3, 2, 1, 9}));
}

TEST_F(SlowCallPagesTest, StayBelowWhatClientsAccept) {
  for (uint64_t id = 1; id <= 40; ++id) {
    SlowCall call = make_call(id, 100);
    call.explanation = std::string(100'000, 'x');
    store(call);
  }
  v1::ListSlowCallsRequest request;

  const auto first = list(request);

  EXPECT_LT(first.ByteSizeLong(), 4u * 1024 * 1024);
  EXPECT_NE(first.next_page_token(), "");
  EXPECT_EQ(list_pages(request, 1000).size(), 40u);
}

class SlowCallTokenTest : public SlowCallListTest {
 protected:
  SlowCallTokenTest() {
    for (uint64_t id = 1; id <= 3; ++id) keep(make_call(id, 100));
  }
  void expect_refused(const v1::ListSlowCallsRequest& request) {
    const auto response = list(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status_)) << status_;
    EXPECT_THAT(std::string(status_.message()), HasSubstr("page.page_token: not one of this list"));
    EXPECT_EQ(response.slow_calls_size(), 0);
  }
};

TEST_F(SlowCallTokenTest, IsRefusedWhereItIsNone) {
  auto request = parse_text<v1::ListSlowCallsRequest>("page { limit: 1 }");
  const std::string good = list(request).next_page_token();
  ASSERT_NE(good, "");

  for (const std::string& token :
       {std::string("nonsense"), std::string("1.2.3"), std::string("1.2.3.4"), good + "0",
        good + " ", "9" + good.substr(0, good.rfind('.')), std::string("AAAAAAAAAAAAAAAA")}) {
    request.mutable_page()->set_page_token(token);
    expect_refused(request);
  }
}

TEST_F(SlowCallTokenTest, IsRefusedForAnotherFilterOrOrder) {
  auto request = parse_text<v1::ListSlowCallsRequest>("page { limit: 1 }");
  request.mutable_page()->set_page_token(list(request).next_page_token());

  auto other_order = request;
  other_order.set_sort("start_unix_ns");
  expect_refused(other_order);
  auto other_filter = request;
  other_filter.mutable_filter()->set_pid(7);
  expect_refused(other_filter);
}

TEST_F(SlowCallTokenTest, IsTakenForAnotherSizeOfPage) {
  auto request = parse_text<v1::ListSlowCallsRequest>("page { limit: 1 }");
  request.mutable_page()->set_page_token(list(request).next_page_token());
  request.mutable_page()->set_limit(10);

  EXPECT_EQ(list(request).slow_calls_size(), 2);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SlowCallListTest, NamesTheFieldsToSortBy) {
  (void)list(parse_text<v1::ListSlowCallsRequest>("sort: \"id\""));

  EXPECT_TRUE(absl::IsInvalidArgument(status_));
  EXPECT_EQ(status_.message(), "sort: cannot sort by \"id\"; fields: duration_ns, start_unix_ns");
}

// 1 and 2 in the store, 3 and 4 in memory; 1 and 3 match every filter.
TEST_F(SlowCallListTest, FiltersMemoryAndStoreAlike) {
  for (const uint64_t id : {1, 2, 3, 4}) {
    SlowCall call = make_call(id, 100 * id);
    call.function = "cudaFree";
    if (id % 2 == 1) {
      call = make_full_call(id);
      call.event.process.pid = 9;
      call.event.duration_ns = 10'000;
      call.start_unix_ns += 1'000;
      call.category = "cublas";
    }
    if (id <= 2) {
      store(call);
    } else {
      keep(call);
    }
  }

  for (const std::string filter :
       {"pid: 9", "container: \"0123\"", "container: \"0123456789ab\"", "pod: \"train-0\"",
        "category: \"cublas\"", "function: \"cudaMalloc\"", "function: \"*Mal*\"",
        "since_unix_ns: 1000000001000", "min_duration_ns: 10000"}) {
    EXPECT_THAT(list_ids("filter { " + filter + " }"), ElementsAre(3, 1)) << filter;
  }
  EXPECT_THAT(list_ids("filter { pid: 9 function: \"cudaFree\" }"), IsEmpty());
}

TEST_F(SlowCallListTest, ShowsACallInFlightAsMemoryHasItAndNotAsItWasStored) {
  store(make_open_call(1, 50));
  store(make_call(2, 70));
  keep(make_open_call(1, 90));

  const auto response = list({});

  ASSERT_EQ(response.slow_calls_size(), 2);
  EXPECT_EQ(response.slow_calls(0).id(), 1u);
  EXPECT_EQ(response.slow_calls(0).duration_ns(), 90u);
  EXPECT_TRUE(response.slow_calls(0).in_flight());
  EXPECT_EQ(response.slow_calls(0).state(), "blocked");
}

TEST_F(SlowCallListTest, LeavesAStoredVersionOutWhoseCallInMemoryDoesNotMatch) {
  store(make_call(1, 900));
  keep(make_call(1, 50));

  EXPECT_THAT(list_ids("filter { min_duration_ns: 100 }"), IsEmpty());
}

TEST_F(SlowCallListTest, ShowsACallInFlightWhenTheDaemonEndedAsUnfinished) {
  store(make_open_call(1, 50));
  reopen_store();

  const auto response = list({});

  ASSERT_EQ(response.slow_calls_size(), 1);
  const v1::SlowCall& call = response.slow_calls(0);
  EXPECT_FALSE(call.in_flight());
  EXPECT_EQ(call.state(), "unfinished");
  EXPECT_EQ(call.duration_ns(), 50u);
  EXPECT_TRUE(call.stored());
}

TEST_F(SlowCallListTest, ShowsTheColumnsOfARecordThatDoesNotParse) {
  StoredCall stored = make_stored_call(make_full_call(1));
  stored.body.append("\xff\xff");  // behind fields that do
  store(stored);

  const auto response = list({});

  ASSERT_EQ(response.slow_calls_size(), 1);
  EXPECT_EQ(response.slow_calls(0).DebugString(), parse_text<v1::SlowCall>(R"(
      id: 1 category: "cuda" function: "cudaMalloc" pid: 7 container: "0123456789ab"
      pod: "train-0" start_unix_ns: 1000000000001 duration_ns: 900 stored: true)")
                                                      .DebugString());
}

TEST_F(SlowCallListTest, IsThatOfMemoryWhereTheStoreCannotBeRead) {
  std::ofstream(folder_ / "file") << "no folder";
  store_ = SlowCallStore::start({.database = {.path = folder_ / "file/slow_calls.db"}}, clock_);
  keep(make_call(1, 30));

  EXPECT_THAT(list_ids(), ElementsAre(1));
  EXPECT_NE(store_->problem(), "");
}

TEST_F(SlowCallListTest, GivesAStoredCallBackAsItWas) {
  const SlowCall call = make_full_call(1);
  store(call);

  const auto response = list({});

  ASSERT_EQ(response.slow_calls_size(), 1);
  EXPECT_EQ(response.slow_calls(0).DebugString(), to_proto(call).DebugString());
}

TEST_F(SlowCallListTest, ShowsNoStackWhereTheStoreLostIt) {
  StoredCall stored = make_stored_call(make_full_call(1));
  ASSERT_EQ(stored.stacks.size(), 3u);
  stored.stacks.clear();
  store(stored);

  const v1::SlowCall call = get(1);

  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(call.function(), "cudaMalloc");
  EXPECT_EQ(call.user_stack_size(), 0);
  EXPECT_EQ(call.user_stack_end(), "cut");
  EXPECT_EQ(call.user_stack_id(), to_proto(make_full_call(1)).user_stack_id());
  EXPECT_EQ(call.time_split().waits_size(), 2);
}

// As version 1 of the store kept it.
TEST_F(SlowCallListTest, ShowsACallThatHasItsStacksWithinAsItIs) {
  v1::SlowCall message = to_proto(make_full_call(1));
  message.clear_user_stack_end();
  message.clear_user_stack_id();
  for (v1::Wait& wait : *message.mutable_time_split()->mutable_waits()) {
    wait.clear_kernel_stack_id();
    wait.mutable_waker()->clear_stack_id();
  }
  message.mutable_time_split()->mutable_waker()->clear_stack_id();
  StoredCall stored = make_stored_call(make_full_call(1));
  stored.body = message.SerializeAsString();
  stored.stacks.clear();
  store(stored);

  EXPECT_EQ(get(1).DebugString(), message.DebugString());
}

TEST(StoredCallTest, HasInItsColumnsWhatItIsFoundBy) {
  const SlowCall call = make_full_call(17);
  v1::SlowCall message = to_proto(call);
  const std::vector<StoredStack> stacks = take_stacks(message);

  EXPECT_EQ(make_stored_call(call), (StoredCall{.id = 17,
                                                .start_unix_ns = start_of(17),
                                                .duration_ns = 900,
                                                .category = "cuda",
                                                .function = "cudaMalloc",
                                                .pid = 7,
                                                .process_start_boot_ns = 70,
                                                .container = "0123456789ab",
                                                .pod = "train-0",
                                                .in_flight = false,
                                                .body = message.SerializeAsString(),
                                                .stacks = stacks}));
}

TEST(StoredCallTest, SaysWhetherTheCallIsStillInFlight) {
  SlowCall gone = make_open_call(1, 50);
  gone.is_gone = true;

  EXPECT_TRUE(make_stored_call(make_open_call(1, 50)).in_flight);
  EXPECT_FALSE(make_stored_call(gone).in_flight);
  EXPECT_FALSE(make_stored_call(make_call(1, 50)).in_flight);
}

TEST(StoredCallTest, HasValidTextInItsColumns) {
  SlowCall call = make_call(1, 50);
  call.function = "f\xff";
  call.event.owner.pod = "p\xff";

  EXPECT_EQ(make_stored_call(call).function, "f\uFFFD");
  EXPECT_EQ(make_stored_call(call).pod, "p\uFFFD");
}

TEST_F(SlowCallListTest, GetsACallFromMemoryFirst) {
  store(make_open_call(4, 50));
  keep(make_call(4, 90));

  EXPECT_EQ(get(4).duration_ns(), 90u);
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SlowCallListTest, GetsACallFromTheStore) {
  const SlowCall call = make_full_call(4);
  store(call);
  keep(make_call(5, 90));

  EXPECT_EQ(get(4).DebugString(), to_proto(call).DebugString());
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(SlowCallListTest, GetsNoCallThatNeverWas) {
  store(make_call(4, 50));
  keep(make_call(5, 90));

  (void)get(6);

  EXPECT_TRUE(absl::IsNotFound(status_));
  EXPECT_THAT(std::string(status_.message()),
              HasSubstr("slow call 6: never existed or no longer kept"));
}

TEST_F(SlowCallListTest, GetsNoCallWithoutAStoreThatIsNotInMemory) {
  keep(make_call(5, 90));

  (void)get(4);

  EXPECT_TRUE(absl::IsNotFound(status_));
}

}  // namespace
}  // namespace gpuperf
