#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/hook_notes.h"
#include "bpf/records.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/model/function.h"
#include "daemon/probe/attach/mapped_array.h"

struct bpf_object;
struct bpf_link;
struct bpf_program;

namespace gpuperf {

// How entry and return of a function are probed, best first.
enum class Mechanism {
  kSession,  // one link and program for both, with a cookie per call: kernel 6.13 and later
  kMulti,    // two links per file: kernel 6.6 and later
  kPerf,     // two perf events per function: kernel 5.15 and later, slow to detach
};
inline constexpr Mechanism kMechanisms[] = {Mechanism::kSession, Mechanism::kMulti,
                                            Mechanism::kPerf};
std::string_view get_mechanism_name(Mechanism mechanism);
std::optional<Mechanism> find_mechanism(std::string_view name);

// What users beside root may have of so many cells: an eighth is kept for root.
constexpr uint32_t get_users_cells(uint32_t cells) { return cells - cells / 8; }

// How the end of a call is seen.
enum class Timing {
  kReturn,  // return probe: never where an exception may pass, it would abort the workload
  kExits,   // probes on the function's own returns and tail jumps
  kNone,    // entry only: counted, not timed
};

// The BPF programs and maps in the kernel, loaded for one mechanism. Closing it removes them.
//
// Thread: made and destroyed on one thread; the descriptors and arrays may be used from others
// while it lives. The maps are bounded by `Sizes`; what happens when one is full is in
// bpf/maps.bpf.h.
class Programs {
 public:
  struct Sizes {
    uint32_t functions = 0;
    uint32_t cells = 0;  // beside the one overflow cell per function
    // Whether threads inside of calls are followed through the scheduler.
    bool follow_threads = false;
    // Whether connections of processes that serve requests are followed.
    bool follow_requests = false;
    // For trying out: only what probes of these timings run is loaded, for verifying all is most of
    // what a start costs. Empty = all.
    std::vector<Timing> trial = {};
  };
  // Errors: the kernel's own reason, and what to do about it.
  static Result<std::unique_ptr<Programs>> load(Mechanism mechanism, const Sizes& sizes);
  ~Programs();
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  Mechanism mechanism() const { return mechanism_; }
  const Sizes& sizes() const { return sizes_; }
  int program_fd(const char* name) const;
  bpf_program* program(const char* name) const;
  int map_fd(const char* name) const;

  // What the kernel knows of a function; may be told anew at any time.
  void set_function(const Function& function, bool stacks);
  // What probing one of its calls costs its caller beyond the call's own duration.
  void set_outside_cost(uint32_t function_id, uint32_t outside_ns);
  // What one of its calls costs its thread, and how many of a process within a second make the
  // daemon read the totals at once (gpuperf_function::alarm_mask).
  void set_call_cost(uint32_t function_id, uint64_t cost_ns, uint32_t alarm_mask);
  // A call at least this long is slow too; 0 = none.
  void set_adaptive_threshold(uint32_t function_id, uint64_t threshold_ns);
  // What an entry of the driver (enum gpuperf_hook_entry) is counted as where launch hooks count
  // it; nullopt = it is not.
  void set_hooked_function(size_t entry, std::optional<uint32_t> function_id);
  // `number`: 1 + its index (bpf/records.h). Before the first probe that says it.
  Status set_tensor_layout(uint32_t number, const gpuperf_tensor_layout& layout) const;
  bool follows_threads() const { return sizes_.follow_threads; }
  bool follows_requests() const { return sizes_.follow_requests; }
  // Whether processes of that session, setsid(2), serve requests. False: there was no room.
  bool set_request_session(uint32_t session, bool serves) const;
  // Functions of the kernel without which what hooks counted (bpf/hook_notes.h) is not taken at
  // some ends of processes; empty = it is at all.
  const std::string& unseen_ends() const { return unseen_ends_; }
  // Generation of a lane and GPUPERF_LANE_CHANGING: see bpf/records.h.
  void set_lane(uint32_t lane, uint32_t word);
  // What is traced of processes without an order of their own; `scoped_count` is ours.
  void set_trace(const gpuperf_trace_order& order);
  // False: there was no room for all.
  bool set_trace_of(std::span<const uint32_t> pids, const gpuperf_trace_order& order);
  void clear_trace_of_all();
  // Each is there once map_cell() said so. One thread at a time.
  Status map_cell(uint32_t cell) { return cells_.map_entry(cell); }
  // Kernel memory of its maps, bytes, as the kernel counts it: without what task storage keeps for
  // each thread. Reads a file of /proc/self for each map.
  uint64_t read_map_bytes() const;
  std::span<gpuperf_cell> cells() const { return cells_.as<gpuperf_cell>(); }
  std::span<const uint64_t> losses() const { return losses_.as<const uint64_t>(); }

 private:
  Programs(Mechanism mechanism, const Sizes& sizes) : mechanism_(mechanism), sizes_(sizes) {}
  Status load_form(std::span<const std::byte> object);
  Status fill_free_cells();
  bool is_trial() const { return !sizes_.trial.empty(); }
  void leave_out_what_is_not_tried();
  Status attach_hooks(std::span<const char* const> names);
  void choose_end_hooks();

  // Set once by load.
  const Mechanism mechanism_;
  const Sizes sizes_;
  bpf_object* object_ = nullptr;
  std::vector<bpf_link*> hook_links_;
  std::vector<const char*> end_hooks_;
  std::string unseen_ends_;
  MappedArray cells_;
  MappedArray functions_;
  MappedArray plans_;
  MappedArray hooked_functions_;
  MappedArray lanes_;
  MappedArray losses_;
  MappedArray trace_everyone_;
};

}  // namespace gpuperf
