#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf {

// Functions made at run time, as the text of a perf map tells them: "START SIZE name" a line, in
// hexadecimal.
//
// Value. Any process may write anything there: lines of another form are skipped, names cut after
// kMaxNameBytes, and lines beyond `max_bytes` of memory left out.
class PerfMap {
 public:
  static constexpr size_t kMaxNameBytes = 1'024;

  explicit PerfMap(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Adds the whole lines of `text`; answers how many bytes they have. A function replaces those
  // added before it that begin at the same address.
  size_t append(std::string_view text);
  // A line was left out for want of room; so will be others.
  bool is_full() const { return is_full_; }

  struct Match {
    std::string_view name;  // until the next append
    uint64_t start_address = 0;
    bool operator==(const Match&) const = default;
  };
  std::optional<Match> find(uint64_t address) const;

  size_t size_bytes() const;

 private:
  struct Entry {
    uint64_t start_address = 0;
    uint64_t size_bytes = 0;
    uint32_t name_offset = 0;  // in names_
    uint32_t name_bytes = 0;
  };

  size_t max_bytes_;
  bool is_full_ = false;
  std::vector<Entry> entries_;  // by address
  std::string names_;
};

}  // namespace gpuperf
