#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuperf {

// A stack that calls name by its id, opaque bytes. Equal ids mean equal stacks, whatever call they
// come with: the store keeps the one it saw first.
struct StoredStack {
  uint64_t id = 0;  // 1 and up
  std::string body;
  bool operator==(const StoredStack&) const = default;
};

// One slow call as the store keeps it: what it is found by, the record itself, opaque bytes (a
// serialised protobuf), and the stacks that the record names. Numbers of 2^63 and above are
// refused: SQLite's integers are signed.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): 8 bytes, beside five strings
struct StoredCall {
  uint64_t id = 0;  // 1 and up in order of arrival
  uint64_t start_unix_ns = 0;
  uint64_t duration_ns = 0;
  std::string category;
  std::string function;
  uint32_t pid = 0;
  uint64_t process_start_boot_ns = 0;
  std::string container;
  std::string pod;
  bool in_flight = false;   // has not returned yet; a later call with the same id replaces it
  bool unfinished = false;  // was in flight when its daemon died. Set by the store, not by writers
  std::string body;
  std::vector<StoredStack> stacks;  // each id once, ascending
  bool operator==(const StoredCall&) const = default;
};

// Which calls, in which order. Empty or zero = no restriction; what is set must all match.
struct StoreQuery {
  enum class Order { kDuration, kStart };
  // A row's place in the order: its duration or start, and its id.
  struct Cursor {
    uint64_t value = 0;
    uint64_t id = 0;
  };

  uint32_t pid = 0;
  std::optional<uint64_t> process_start_boot_ns;
  std::string container;  // id or the beginning of it
  std::string pod;
  std::string category;
  std::string function;  // `*` stands for any run of characters
  uint64_t since_unix_ns = 0;
  uint64_t min_duration_ns = 0;
  uint64_t max_id = UINT64_MAX;    // what arrives between two pages has larger ids
  Order order = Order::kDuration;  // descending; of equal ones the larger id first
  std::optional<Cursor> after;     // only rows strictly after it
  uint32_t limit = 100;            // the caller bounds it: every row comes with body and stacks
};

}  // namespace gpuperf
