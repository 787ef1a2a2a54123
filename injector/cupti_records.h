#pragma once

// Converts CUPTI's records to session_abi.h records. Injector's thread.
//
// Records are read with CUPTI's own iterator, and fields only where every supported version has
// them. What cannot be passed on is counted by cause.

#include <cstddef>
#include <cstdint>

#include "injector/batch.h"
#include "injector/call_join.h"
#include "injector/clocks.h"
#include "injector/cubin_sender.h"
#include "injector/cupti_api.h"
#include "injector/cupti_clock.h"
#include "injector/dictionary.h"
#include "injector/pc_sampler.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

// What a CUDA API function does, as far as it matters here.
enum class CallClass : uint8_t {
  kOther,
  kLaunch,
  kGraphLaunch,
  kGraphMaking,  // captures, creates, instantiates or updates a graph: rare and slow
  kCopy,
  kSet,
  kSyncEvent,
  kSyncStream,
  kSyncContext,
};

// By callback id; filled from the names that CUPTI reports.
struct CallClasses {
  static constexpr uint32_t kCountMax = 2048;
  CallClass runtime[kCountMax] = {};
  CallClass driver[kCountMax] = {};
  uint32_t runtime_count = 0;
  uint32_t driver_count = 0;
  uint16_t of_entry[kLoggedEntries] = {};  // driver callback id by LoggedCall.entry; 0 = none
};
CallClass classify_call(const char* name);

class CuptiRecords : public PcSampler::Sink, private CallJoin::Sink {
 public:
  CuptiRecords(const CuptiApi& api, const CuptiClock& clock, const CallClasses& calls, Batch& batch)
      : api_(api), clock_(clock), calls_(calls), batch_(batch) {}

  // A new connection begins: everything is announced again.
  void start_connection();
  void set_kinds(uint64_t kinds) { kinds_ = kinds; }
  void set_sample_every(uint32_t every) { sample_every_ = every == 0 ? 1 : every; }
  // While stopping, records without an end were cut off by us.
  void set_stopping(bool is_stopping) { is_stopping_ = is_stopping; }

  void decode(uint8_t* buffer, size_t valid_bytes, uint64_t now_ms);
  // Counts the buffer's records as lost to `loss` without decoding them.
  void discard(uint8_t* buffer, size_t valid_bytes, gpuperf_session_loss loss);
  void count(gpuperf_session_loss loss, uint64_t count);
  // CUPTI restarts its correlation ids at 1; ours continue.
  void renumber() { id_base_ = last_id_; }
  // From now on, call records are made from the hooks' log. `from_first_launch`: no launch has a
  // record yet, and none is in flight.
  void hook_calls(bool from_first_launch);
  // Makes the records of all calls whose work is known. The log must have ended (set_call_log), and
  // all of CUPTI's records must have been decoded. The work of the other calls is lost.
  void finish_hooked_calls(uint64_t now_ms);
  // Stops midway: calls whose work is not known yet get no record, and count as lost.
  void drop_hooked_calls();
  bool are_calls_hooked() const { return are_calls_hooked_; }
  // Why calls can no longer all be matched, which calls for drop_hooked_calls(). Null = they can.
  const char* why_lost_track() const { return are_calls_hooked_ ? join_.why_broken() : nullptr; }
  // Takes the logged calls. Call it often: a ring holds only some milliseconds of a thread that
  // does nothing but launch.
  void take_calls();
  // Also makes records of those whose work is known by now. `are_records_complete`: the records of
  // all work that has ended were added.
  void join_calls(bool are_records_complete, uint64_t now_ms);
  // join_calls() takes long if it is put off.
  bool is_join_urgent() const { return are_calls_hooked_ && join_.is_full(); }
  // Launches were held while collection began or ended.
  void add_hold(uint64_t start_unix_ns, uint64_t end_unix_ns, uint64_t now_ms);
  void add_gap(gpuperf_session_cause cause, uint64_t start_unix_ns, uint64_t end_unix_ns,
               uint64_t now_ms);

  // Devices are sampled from now on.
  void begin_sampling() { sampled_until_unix_ns_ = read_unix_ns(); }
  // What PcSampler hands over next is from the time since then, or since the last call. Without a
  // connection it is counted as lost.
  void expect_samples(bool is_connected, uint64_t now_ms);
  void take(const PcSampler::Instruction& instruction) override;
  void take(const PcSampler::Total& total) override;
  // The images of the modules that samples name are looked for and sent, a bounded piece at a time.
  void send_cubins(uint64_t now_ms) { cubins_.tend(now_ms); }

  // Devices that ran kernels or graphs: a bit by CUDA ordinal. NCCL, for one, also has contexts on
  // devices of other processes.
  uint64_t working_devices() const { return working_devices_; }

  const uint64_t* losses() const { return losses_; }
  uint64_t cupti_overhead_ns() const { return cupti_overhead_ns_; }
  // Since the process began, over all decoded records: kernels that ran as nodes of a graph,
  // kernels, calls, calls that launched a graph, records without times.
  uint64_t node_count() const { return node_count_; }
  uint64_t kernel_count() const { return kernel_count_; }
  uint64_t call_count() const { return call_count_; }
  uint64_t graph_launch_count() const { return graph_launch_count_; }
  uint64_t untimed_count() const { return losses_[GPUPERF_SESSION_LOSS_DEVICE_BUFFER]; }

 private:
  struct Span {
    uint64_t start_unix_ns = 0;
    uint64_t duration_ns = 0;
  };
  template <typename Record>
  void put(Record record, uint16_t kind, uint32_t id);
  bool read_span(uint64_t start, uint64_t end, Span& span);
  bool is_sampled(uint32_t correlation_id) const;
  bool is_left_out(uint32_t correlation_id);
  uint32_t take_id(uint32_t correlation_id);
  void note_work(CallKind kind, uint32_t correlation_id, uint32_t stream, const Span& span,
                 uint64_t size);
  void note_unknown_work();
  void lose_calls(uint64_t count);
  void take_logged(const LoggedCall& call);
  void put_sync(uint32_t type, uint64_t start_unix_ns, uint64_t duration_ns, uint32_t id);
  void take(const CallJoin::Call& call, uint32_t correlation_id) override;
  void put_call(const CallJoin::Call& call, uint32_t id, uint16_t flags);
  uint32_t find_name(const char* text);
  void note_working(uint32_t device) {
    if (device < 64) working_devices_ |= uint64_t{1} << device;
  }
  uint32_t find_place(uint32_t device, uint32_t context, uint32_t stream);
  void take(const CUpti_Activity* activity);
  void take_kernel(const CUpti_Activity* activity);
  template <typename Copy>
  void take_copy(const Copy& copy, uint8_t direction);
  void take_memcpy(const CUpti_Activity* activity);
  void take_memcpy_peer(const CUpti_Activity* activity);
  void take_memset(const CUpti_Activity* activity);
  void take_api(const CUpti_Activity* activity, bool is_driver);
  void take_graph(const CUpti_Activity* activity);
  void take_memory(const CUpti_Activity* activity);

  const CuptiApi& api_;
  const CuptiClock& clock_;
  const CallClasses& calls_;
  Batch& batch_;
  uint64_t kinds_ = 0;
  uint32_t sample_every_ = 1;
  bool is_stopping_ = false;
  uint64_t now_ms_ = 0;
  uint64_t losses_[GPUPERF_SESSION_LOSS_COUNT] = {};
  bool are_calls_hooked_ = false;
  bool were_calls_hooked_ = false;  // at some time: there may be logged calls
  uint32_t id_base_ = 0;            // added to CUPTI's correlation ids
  uint32_t last_id_ = 0;
  CallJoin join_;
  uint64_t mono_to_unix_ns_ = 0;
  uint64_t lost_calls_ = 0;  // lost by the log
  uint64_t lone_calls_ = 0;  // calls that have no work
  uint64_t cupti_overhead_ns_ = 0;
  uint64_t node_count_ = 0;
  uint64_t kernel_count_ = 0;
  uint64_t call_count_ = 0;
  uint64_t graph_launch_count_ = 0;
  NameDictionary names_;
  Dictionary<gpuperf_session_shape, GPUPERF_SHAPES_MAX - 1> shapes_;
  Dictionary<gpuperf_session_place, GPUPERF_PLACES_MAX - 1> places_;
  gpuperf_session_place devices_[64] = {};  // what is the same in all places of a CUDA ordinal
  bool is_device_known_[64] = {};
  uint64_t working_devices_ = 0;
  uint64_t sampled_since_unix_ns_ = 0;
  uint64_t sampled_until_unix_ns_ = 0;
  bool has_sample_reader_ = false;
  CubinSender cubins_{api_, batch_};
};

}  // namespace gpuperf::injector
