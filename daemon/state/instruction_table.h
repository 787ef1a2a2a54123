#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "daemon/model/kernel_stalls.h"
#include "daemon/model/session.h"
#include "daemon/state/session_memory.h"

namespace gpuperf {

// The samples of one kernel's instructions.
//
// Thread: loop only. Bounds: kMaxInstructions, and the account of its process; samples of others
// are added to the kernel's totals only, and are its `other_samples`.
class InstructionTable {
 public:
  static constexpr size_t kMaxInstructions = 4'096;

  explicit InstructionTable(SessionMemory::Account& account) : account_(account) {}

  void add(const StallRecord& record);
  bool has(uint64_t cubin_crc) const;
  // `function`: the kernel, mangled.
  KernelStalls summarise(std::string_view function, const CubinLinesByCrc& cubins) const;

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // cubin, offset
  using Samples = std::array<uint32_t, GPUPERF_STALL_COUNT>;

  SessionMemory::Account& account_;
  std::map<Key, Samples> instructions_;
  StallCounts stalls_{};
  uint64_t other_samples_ = 0;
};

}  // namespace gpuperf
