#include "client/byte_rates.h"

#include <utility>

namespace gpuperf::client {

ByteRates::Key ByteRates::make_key(const v1::FunctionStats& row) {
  return {row.category(), row.function(), row.pid(), row.comm()};
}

void ByteRates::update(uint64_t taken_mono_ns, const std::vector<v1::FunctionStats>& rows) {
  if (taken_mono_ns == taken_mono_ns_) return;
  const bool comparable = taken_mono_ns_ != 0 && taken_mono_ns > taken_mono_ns_;
  const double seconds = comparable ? static_cast<double>(taken_mono_ns - taken_mono_ns_) / 1e9 : 0;
  rates_.clear();
  std::map<Key, uint64_t> now;
  for (const v1::FunctionStats& row : rows) {
    const Key key = make_key(row);
    now[key] = row.bytes();
    const auto before = bytes_.find(key);
    if (!comparable || before == bytes_.end() || row.bytes() < before->second) continue;
    rates_[key] = static_cast<double>(row.bytes() - before->second) / seconds;
  }
  bytes_ = std::move(now);
  taken_mono_ns_ = taken_mono_ns;
}

std::optional<double> ByteRates::find_bytes_per_second(const v1::FunctionStats& row) const {
  const auto found = rates_.find(make_key(row));
  return found == rates_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gpuperf::client
