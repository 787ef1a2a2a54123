#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gpuperf/v1/model.pb.h"

namespace gpuperf::client {

// Bytes per second of each row of `functions --watch`, from the answer before to this one.
//
// Thread: one. Owns the last answer's counters.
class ByteRates {
 public:
  // `taken_mono_ns`: the moment the rows show, by the daemon. While it stands still, so do the
  // rates.
  void update(uint64_t taken_mono_ns, const std::vector<v1::FunctionStats>& rows);

  // Empty for a row that is new, or began anew with the daemon.
  std::optional<double> find_bytes_per_second(const v1::FunctionStats& row) const;

 private:
  // Category, function, pid and command: what tells rows apart.
  using Key = std::tuple<std::string, std::string, uint32_t, std::string>;
  static Key make_key(const v1::FunctionStats& row);

  uint64_t taken_mono_ns_ = 0;
  std::map<Key, uint64_t> bytes_;
  std::map<Key, double> rates_;
};

}  // namespace gpuperf::client
