#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "daemon/base/thread_checker.h"
#include "daemon/model/drops.h"
#include "daemon/model/event.h"
#include "daemon/model/snapshot.h"
#include "daemon/state/recent_processes.h"

namespace gpuperf {

// Adds up the GEMM shapes that the kernel found: one row per (function, process, dimensions,
// types).
//
// Thread: loop only. Owns its rows; `drops` must outlive it. Rows handed out by `fill` never
// change: the next delta copies. Bounds: `max_rows`. Rows of exited processes stay as they are
// while there is room. When there is none they are folded, shape by shape, into rows of no process
// (pid 0, comm "other"), so that their totals stay; if that frees too little, the folded rows with
// the fewest calls leave, an eighth of the table at a time, each counted (kStatsShapesFull). A
// shape that finds only rows of running processes is not kept and counted likewise; the kernel's
// own bound of 8,192 comes first. Memory: a row is about 500 bytes, 8 MB with 16,384 of them.
class ShapeTable {
 public:
  static constexpr size_t kMaxRows = 16'384;

  explicit ShapeTable(DropCounters& drops, size_t max_rows = kMaxRows)
      : max_rows_(max_rows), drops_(drops) {}
  ShapeTable(const ShapeTable&) = delete;
  ShapeTable& operator=(const ShapeTable&) = delete;

  void apply(const ShapeDelta& delta);
  void apply(const ProcessExited& exited);

  // Sets the shapes, most calls first.
  void fill(Snapshot& snapshot) const;

 private:
  struct Key {
    ProcessKey process;  // first: its rows stand together
    uint32_t function_id = 0;
    std::array<uint64_t, 4> dimensions{};
    std::array<uint16_t, 4> types{};
    auto operator<=>(const Key&) const = default;
  };
  struct Slot {
    std::shared_ptr<ShapeRow> row;
    mutable bool shared = false;  // some snapshot holds `row`: copy before changing it
    bool exited = false;
  };
  using Rows = std::map<Key, Slot>;

  void add(const Key& key, const Owner& owner, uint64_t calls, uint64_t total_ns);
  void make_room();
  void fold_exited();
  void drop_fewest(size_t count);

  // Set once in the constructor.
  const size_t max_rows_;
  DropCounters& drops_;
  // Loop thread only.
  ThreadChecker loop_thread_;
  Rows rows_;
  RecentProcesses exited_;
  // rows_ as `fill` shows them, made anew after a change.
  mutable std::vector<std::shared_ptr<const ShapeRow>> sorted_;
  mutable bool changed_ = false;
};

}  // namespace gpuperf
