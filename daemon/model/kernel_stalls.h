#pragma once

// What the warps of a kernel were found doing by PC sampling: how often, in which state, at which
// instructions. Source: CUPTI's PC sampling in injected processes (model/session).

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/cubin_lines.h"
#include "injector/session_abi.h"

namespace gpuperf {

struct StallCount {
  uint64_t samples = 0;
  uint64_t idle_samples = 0;  // of those: while no warp of the scheduler issued an instruction
  bool operator==(const StallCount&) const = default;
};
using StallCounts = std::array<StallCount, GPUPERF_STALL_COUNT>;  // by enum gpuperf_stall

// Where code comes from. Line 0 = not known.
struct SourceLine {
  std::string file;
  uint32_t line = 0;
  std::string function;    // that was inlined, demangled; empty = the kernel's own code
  std::string outer_file;  // where in the kernel's own code
  uint32_t outer_line = 0;
  auto operator<=>(const SourceLine&) const = default;
};

struct HotLine {
  SourceLine source;
  uint64_t samples = 0;
  uint32_t stall = 0;  // enum gpuperf_stall: the most frequent
  uint64_t stall_samples = 0;
  bool operator==(const HotLine&) const = default;
};

struct HotInstruction {
  uint64_t cubin_crc = 0;        // of its module, by CUPTI
  uint32_t pc_offset_bytes = 0;  // from the kernel's beginning
  uint64_t samples = 0;
  uint32_t stall = 0;  // enum gpuperf_stall: the most frequent
  uint64_t stall_samples = 0;
  SourceLine source;
  bool operator==(const HotInstruction&) const = default;
};

struct KernelStalls {
  static constexpr size_t kHottest = 20;

  uint64_t samples = 0;
  StallCounts stalls{};
  std::vector<HotInstruction> hottest;  // most samples first; at most kHottest
  uint64_t instructions = 0;            // told apart
  uint64_t other_samples = 0;           // of instructions there was no room to tell apart
  std::vector<HotLine> lines;           // most samples first; at most kHottest
  // Of instructions whose line is not known, by LineFate.
  std::array<uint64_t, kLineFates> unlined_samples{};
  bool operator==(const KernelStalls&) const = default;
};

// Of the same kernel in another process: adds it up.
void merge_stalls(KernelStalls& stalls, const KernelStalls& other);
// Keeps the kHottest with the most samples, in order.
void keep_hottest(std::vector<HotInstruction>& instructions);
void keep_hottest(std::vector<HotLine>& lines);

// A state of a warp, for people.
struct StallName {
  std::string_view name;   // "long_scoreboard": NVIDIA's
  std::string_view plain;  // "waits for data from global or local memory"
};
const StallName& get_stall_name(uint32_t stall);

}  // namespace gpuperf
