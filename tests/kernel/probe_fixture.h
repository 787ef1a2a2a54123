#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/programs.h"
#include "daemon/probe/attach/self_test.h"

namespace gpuperf {

// What the kernel counted for one function of this process.
struct Counted {
  uint64_t calls = 0;
  uint64_t completed = 0;
  uint64_t abandoned = 0;
  uint64_t untimed = 0;
  uint64_t slow_calls = 0;
  bool operator==(const Counted&) const = default;
};
inline void PrintTo(const Counted& counted, std::ostream* out) {
  *out << "{calls " << counted.calls << ", completed " << counted.completed << ", abandoned "
       << counted.abandoned << ", untimed " << counted.untimed << ", slow " << counted.slow_calls
       << "}";
}

// The programs of one mechanism, and this very program to probe.
class FunctionProbeTest : public testing::TestWithParam<Mechanism> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: BPF programs are loaded";
    static std::map<Mechanism, Status> tried;  // loading and detaching take half a second
    const auto known = tried.find(GetParam());
    const Status works = known != tried.end()
                             ? known->second
                             : tried.emplace(GetParam(), try_mechanism(GetParam())).first->second;
    if (!works.ok() && absl::IsPermissionDenied(works)) GTEST_SKIP() << works.message();
    if (!works.ok() && GetParam() == Mechanism::kSession) {
      GTEST_SKIP() << "this kernel has no uprobe sessions (6.13 and later do): " << works.message();
    }
    ASSERT_TRUE(works.ok()) << works;
    load({.functions = 8, .cells = 64});
  }

  void load(Programs::Sizes sizes) {
    attacher_.reset();
    auto programs = Programs::load(GetParam(), sizes);
    ASSERT_TRUE(programs.ok()) << programs.status();
    programs_ = std::move(*programs);
    attacher_ = std::make_unique<Attacher>(*programs_);
  }

  static uint64_t find_offset(const void* function) {
    const auto offset = find_own_offset(function);
    EXPECT_TRUE(offset.ok()) << offset.status();
    return offset.value_or(0);
  }

  // Probes points of this program as the file `file_id`.
  void attach(int file_id, std::vector<ProbePoint> points) {
    for (const ProbeOutcome& outcome : attacher_->attach(self(file_id), points)) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    }
  }
  ProbedFile self(int file_id) const { return {.id = file_id, .fd = self_.get(), .name = "self"}; }

  template <typename F>
  void probe(uint32_t id, F* function, Function options = {}, Timing timing = Timing::kReturn) {
    options.id = id;
    programs_->set_function(options, true);
    attach(static_cast<int>(id),
           {{.function_id = id,
             .offset_bytes = find_offset(reinterpret_cast<const void*>(function)),
             .timing = timing}});
  }

  const gpuperf_cell& cell_of(uint32_t id, uint32_t pid = 0) {
    gpuperf_cell_key key{}, next{};
    gpuperf_cell_owner owner{};
    const int index = programs_->map_fd("cell_index");
    void* from = nullptr;
    while (bpf_map_get_next_key(index, from, &next) == 0) {
      key = next;
      from = &key;
      if (key.function_id != id || key.pid != (pid == 0 ? getpid() : pid)) continue;
      if (bpf_map_lookup_elem(index, &key, &owner) == 0) return programs_->cells()[owner.cell];
    }
    return programs_->cells()[id];  // the overflow cell
  }

  static Counted count(const gpuperf_cell& cell) {
    Counted counted{.calls = cell.calls,
                    .abandoned = cell.abandoned,
                    .untimed = cell.untimed,
                    .slow_calls = cell.slow_calls};
    for (const uint32_t bucket : cell.buckets) counted.completed += bucket;
    return counted;
  }
  Counted count(uint32_t id) { return count(cell_of(id)); }

  std::vector<gpuperf_slow_call> drain_slow_calls() {
    return drain<gpuperf_slow_call>("slow_ring");
  }

  // All that a ring holds.
  std::vector<std::string> drain(const char* ring_name) {
    std::vector<std::string> records;
    ring_buffer* ring = ring_buffer__new(
        programs_->map_fd(ring_name),
        [](void* context, void* data, size_t length) {
          static_cast<std::vector<std::string>*>(context)->emplace_back(
              static_cast<const char*>(data), length);
          return 0;
        },
        &records, nullptr);
    (void)ring_buffer__consume(ring);
    ring_buffer__free(ring);
    return records;
  }

  // Of records of one kind.
  template <typename Record>
  std::vector<Record> drain(const char* ring_name) {
    std::vector<Record> records;
    for (const std::string& bytes : drain(ring_name)) records.push_back(as<Record>(bytes));
    return records;
  }

  template <typename Record>
  static Record as(const std::string& bytes) {
    Record record{};
    EXPECT_EQ(bytes.size(), sizeof(Record));
    std::memcpy(&record, bytes.data(), std::min(bytes.size(), sizeof(Record)));
    return record;
  }

  const Fd self_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Attacher> attacher_;
};

}  // namespace gpuperf
