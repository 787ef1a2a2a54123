#include "daemon/rpc/slow_call_list.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/rpc/row_filter.h"
#include "daemon/rpc/snapshot_pages.h"
#include "daemon/rpc/stored_stacks.h"
#include "daemon/rpc/to_proto.h"

namespace gpuperf {
namespace {

using Order = StoreQuery::Order;
using Cursor = StoreQuery::Cursor;

bool is_before(const Cursor& a, const Cursor& b) {  // the larger comes first
  return std::tie(a.value, a.id) > std::tie(b.value, b.id);
}

Cursor get_place(const SlowCall& call, Order order) {
  return {order == Order::kDuration ? call.event.duration_ns : call.start_unix_ns, call.id};
}

Cursor get_place(const StoredCall& call, Order order) {
  return {order == Order::kDuration ? call.duration_ns : call.start_unix_ns, call.id};
}

// Where a page begins.
struct Start {
  std::optional<Cursor> after;
  uint64_t max_id = 0;  // the newest call when the first page was made
};

// What a token was made for: all of a request but the page.
size_t hash_request(v1::ListSlowCallsRequest request) {
  request.clear_page();
  return std::hash<std::string>{}(request.SerializeAsString());
}

std::string make_token(const Start& start, const v1::ListSlowCallsRequest& request) {
  return fmt::format("{}.{}.{}.{}", start.after->value, start.after->id, start.max_id,
                     hash_request(request));
}

Result<Start> find_start(const v1::ListSlowCallsRequest& request, const Snapshot& snapshot) {
  const std::string& token = request.page().page_token();
  if (token.empty()) {
    // 0: there are none, or this is before the first snapshot.
    const uint64_t last_id = snapshot.last_slow_call_id;
    return Start{.max_id = last_id == 0 ? UINT64_MAX : last_id};
  }
  unsigned long long value = 0, id = 0, max_id = 0, hash = 0;
  int length = 0;
  const int fields =
      std::sscanf(token.c_str(), "%llu.%llu.%llu.%llu%n", &value, &id, &max_id, &hash, &length);
  if (fields != 4 || static_cast<size_t>(length) != token.size() || hash != hash_request(request)) {
    return absl::InvalidArgumentError(
        "page.page_token: not one of this list: the request must be that of the page before; begin "
        "again "
        "without a token");
  }
  return Start{.after = Cursor{value, id}, .max_id = max_id};
}

Result<Order> find_order(const std::string& sort) {
  if (sort.empty() || sort == "duration_ns") return Order::kDuration;
  if (sort == "start_unix_ns") return Order::kStart;
  return absl::InvalidArgumentError(
      fmt::format("sort: cannot sort by \"{}\"; fields: duration_ns, start_unix_ns", sort));
}

// Those in memory that match, in order.
std::vector<const SlowCall*> list_kept(const Snapshot& snapshot, const RowFilter& filter,
                                       const Start& start, Order order) {
  std::vector<const SlowCall*> calls;
  for (const auto& call : snapshot.slow_calls) {
    if (call->id > start.max_id || !filter.matches(*call)) continue;
    if (start.after && !is_before(*start.after, get_place(*call, order))) continue;
    calls.push_back(call.get());
  }
  std::ranges::sort(calls, [order](const SlowCall* a, const SlowCall* b) {
    return is_before(get_place(*a, order), get_place(*b, order));
  });
  return calls;
}

// The matching calls of the store that are not in memory too, one after the other.
class StoredCalls {
 public:
  StoredCalls(const SlowCallSources& sources, StoreQuery query)
      : sources_(sources), query_(std::move(query)) {}

  // Null = there are no more.
  const StoredCall* peek() {
    while (next_ == rows_.size() && !ended_) read_more();
    return next_ < rows_.size() ? &rows_[next_] : nullptr;
  }
  void pop() { ++next_; }

 private:
  void read_more() {
    ended_ = true;
    if (sources_.store == nullptr) return;
    Result<std::vector<StoredCall>> rows = sources_.store->query(query_);
    if (!rows.ok() || rows->empty()) return;
    ended_ = rows->size() < query_.limit;
    query_.after = get_place(rows->back(), query_.order);
    rows_ = *std::move(rows);
    std::erase_if(rows_, [this](const StoredCall& call) { return is_kept(call.id); });
    next_ = 0;
  }

  bool is_kept(uint64_t id) const {
    const auto& kept = sources_.snapshot->slow_calls;  // by id
    const auto place = std::ranges::lower_bound(kept, id, {}, &SlowCall::id);
    return place != kept.end() && (*place)->id == id;
  }

  const SlowCallSources& sources_;
  StoreQuery query_;
  std::vector<StoredCall> rows_;
  size_t next_ = 0;
  bool ended_ = false;
};

StoreQuery make_query(const v1::Filter& filter, const Start& start, Order order, uint32_t limit) {
  return {.pid = filter.pid(),
          .container = filter.container(),
          .pod = filter.pod(),
          .category = filter.category(),
          .function = filter.function(),
          .since_unix_ns = filter.since_unix_ns(),
          .min_duration_ns = filter.min_duration_ns(),
          .max_id = start.max_id,
          .order = order,
          .after = start.after,
          .limit = limit};
}

v1::SlowCall parse_stored(const StoredCall& stored) {
  v1::SlowCall call;
  // A body of a version that wrote something else shows what the columns know.
  if (!call.ParseFromString(stored.body)) {
    call.Clear();  // of what was parsed up to the fault
    call.set_container(stored.container);
    call.set_pod(stored.pod);
    call.set_in_flight(stored.in_flight);
    call.set_category(stored.category);
    call.set_function(stored.function);
    call.set_pid(stored.pid);
    call.set_start_unix_ns(stored.start_unix_ns);
    call.set_duration_ns(stored.duration_ns);
  }
  put_back_stacks(stored.stacks, call);
  call.set_id(stored.id);
  call.set_stored(true);
  if (stored.unfinished) {
    call.set_in_flight(false);
    call.set_state("unfinished");
  }
  return call;
}

}  // namespace

Status list_slow_calls(const SlowCallSources& sources, const v1::ListSlowCallsRequest& request,
                       v1::ListSlowCallsResponse& response) {
  // gRPC clients refuse messages over 4 MiB unless told otherwise; one row more still fits.
  constexpr size_t kPageBytes = size_t{3} * 1024 * 1024;
  constexpr uint32_t kStoreRows = 500;
  ASSIGN_OR_RETURN(const Order order, find_order(request.sort()));
  ASSIGN_OR_RETURN(Start start, find_start(request, *sources.snapshot));
  const uint32_t limit = SnapshotPages::get_limit(request.page());
  const std::vector<const SlowCall*> kept =
      list_kept(*sources.snapshot, RowFilter(request.filter()), start, order);
  StoredCalls stored(sources,
                     make_query(request.filter(), start, order, std::min(limit, kStoreRows)));
  size_t next_kept = 0;
  size_t bytes = 0;
  const auto is_over = [&] { return next_kept == kept.size() && stored.peek() == nullptr; };
  for (uint32_t row = 0; row < limit && bytes < kPageBytes && !is_over(); ++row) {
    const StoredCall* from_disk = stored.peek();
    const bool take_kept = next_kept < kept.size() &&
                           (from_disk == nullptr || is_before(get_place(*kept[next_kept], order),
                                                              get_place(*from_disk, order)));
    v1::SlowCall& added = *response.add_slow_calls();
    if (take_kept) {
      start.after = get_place(*kept[next_kept], order);
      added = to_proto(*kept[next_kept++]);
    } else {
      start.after = get_place(*from_disk, order);
      added = parse_stored(*from_disk);
      stored.pop();
    }
    bytes += added.ByteSizeLong();
  }
  if (start.after && !is_over()) response.set_next_page_token(make_token(start, request));
  return absl::OkStatus();
}

StoredCall make_stored_call(const SlowCall& call) {
  v1::SlowCall message = to_proto(call);
  std::vector<StoredStack> stacks = take_stacks(message);
  return {.id = call.id,
          .start_unix_ns = call.start_unix_ns,
          .duration_ns = call.event.duration_ns,
          .category = message.category(),
          .function = message.function(),
          .pid = call.event.process.pid,
          .process_start_boot_ns = call.event.process.start_boot_ns,
          .container = message.container(),
          .pod = message.pod(),
          .in_flight = message.in_flight(),
          .body = message.SerializeAsString(),
          .stacks = std::move(stacks)};
}

Status get_slow_call(const SlowCallSources& sources, uint64_t id, v1::SlowCall& found) {
  const auto& kept = sources.snapshot->slow_calls;
  const auto place = std::ranges::lower_bound(kept, id, {}, &SlowCall::id);
  if (place != kept.end() && (*place)->id == id) {
    found = to_proto(**place);
    return absl::OkStatus();
  }
  if (sources.store != nullptr) {
    const auto stored = sources.store->find(id);
    if (stored.ok() && stored->has_value()) {
      found = parse_stored(**stored);
      return absl::OkStatus();
    }
  }
  return absl::NotFoundError(
      fmt::format("slow call {}: never existed or no longer kept (slow.worst_per_function, "
                  "slow.recent, storage)",
                  id));
}

}  // namespace gpuperf
