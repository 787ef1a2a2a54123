#include "daemon/state/shape_table.h"

#include <algorithm>
#include <utility>

namespace gpuperf {

void ShapeTable::apply(const ShapeDelta& delta) {
  loop_thread_.check();
  const Key key{delta.process, delta.function_id, delta.dimensions, delta.types};
  if (rows_.size() >= max_rows_ && !rows_.contains(key)) make_room();
  add(key, delta.owner, delta.calls, delta.total_ns);
}

void ShapeTable::apply(const ProcessExited& exited) {
  loop_thread_.check();
  if (exited.process.pid == 0) return;
  exited_.add(exited.process);
  const auto begin = rows_.lower_bound(Key{.process = exited.process});
  for (auto row = begin; row != rows_.end() && row->first.process == exited.process; ++row) {
    row->second.exited = true;
  }
}

void ShapeTable::add(const Key& key, const Owner& owner, uint64_t calls, uint64_t total_ns) {
  const auto known = rows_.find(key);
  if (known == rows_.end() && rows_.size() >= max_rows_) {
    return drops_.add(DropCause::kStatsShapesFull);
  }
  Slot& slot = known == rows_.end() ? rows_[key] : known->second;
  if (slot.row == nullptr) {
    slot.row = std::make_shared<ShapeRow>(ShapeRow{.function_id = key.function_id,
                                                   .process = key.process,
                                                   .owner = owner,
                                                   .dimensions = key.dimensions,
                                                   .types = key.types});
    slot.exited = exited_.contains(key.process);
  } else if (slot.shared) {
    slot.row = std::make_shared<ShapeRow>(*slot.row);
  }
  slot.shared = false;
  slot.row->calls += calls;
  slot.row->total_ns += total_ns;
  changed_ = true;
}

void ShapeTable::make_room() {
  fold_exited();
  const size_t wanted = max_rows_ - std::max<size_t>(max_rows_ / 8, 1);
  if (rows_.size() > wanted) drop_fewest(rows_.size() - wanted);
}

void ShapeTable::fold_exited() {
  std::vector<std::shared_ptr<ShapeRow>> leaving;
  std::erase_if(rows_, [&leaving](const auto& entry) {
    if (entry.second.exited) leaving.push_back(entry.second.row);
    return entry.second.exited;
  });
  for (const auto& row : leaving) {
    add({ProcessKey{}, row->function_id, row->dimensions, row->types}, {.comm = "other"},
        row->calls, row->total_ns);
  }
}

void ShapeTable::drop_fewest(size_t count) {
  std::vector<Rows::iterator> folded;  // they stand first: no process has a smaller key
  for (auto row = rows_.begin(); row != rows_.end() && row->first.process.pid == 0; ++row) {
    folded.push_back(row);
  }
  std::ranges::sort(folded, {}, [](const auto& entry) { return entry->second.row->calls; });
  folded.resize(std::min(count, folded.size()));
  for (const auto& entry : folded) rows_.erase(entry);
  drops_.add(DropCause::kStatsShapesFull, folded.size());
  changed_ = true;
}

void ShapeTable::fill(Snapshot& snapshot) const {
  snapshot.self.add(Bound::kShapes, rows_.size(), max_rows_);
  if (std::exchange(changed_, false)) {
    sorted_.clear();
    for (const auto& [key, slot] : rows_) {
      slot.shared = true;
      sorted_.push_back(slot.row);
    }
    std::ranges::stable_sort(sorted_, std::ranges::greater(),
                             [](const auto& row) { return row->calls; });
  }
  snapshot.shapes = sorted_;
}

}  // namespace gpuperf
