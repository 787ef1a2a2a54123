#pragma once

#include <cstddef>
#include <deque>

namespace gpuperf {

// Of more than `max` rows the oldest leaves.
template <typename Row>
void keep_newest(std::deque<Row>& rows, const Row& row, size_t max) {
  rows.push_back(row);
  if (rows.size() > max) rows.pop_front();
}

}  // namespace gpuperf
