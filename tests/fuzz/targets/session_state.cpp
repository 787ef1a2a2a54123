// Any bytes as what the sessions of a process send, one message after the other, and what the
// daemon makes of it (daemon/state): statistics, windows of recording, costs, measured overhead,
// and a capture (daemon/capture), which can be stored.
//
//   input: steps: 'm', length of the message, 2 bytes, the message | 't', 1 byte: time passes; its
//          lower 3 bits say in how many steps, its upper 3 how long each is | 'c': the session
//          closes and the next one opens | other bytes say nothing

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "daemon/capture/capture_builder.h"
#include "daemon/capture/trace_recorder.h"
#include "daemon/model/snapshot.h"
#include "daemon/session/decode_session.h"
#include "daemon/state/gpu_state.h"
#include "daemon/state/overhead_trial.h"
#include "daemon/state/session_costs.h"
#include "daemon/state/session_windows.h"
#include "daemon/store/capture_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/base/fake_clock.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf::fuzz {
namespace {

constexpr int64_t kNowUnixNs = 1'700'000'000'000'000'000;
constexpr std::chrono::milliseconds kStep{250};
constexpr size_t kSlicesMax = 100;
constexpr uint64_t kRecorderBytes = uint64_t{4} << 20;
const ProcessKey kProcess{.pid = 71, .start_boot_ns = 1};
constexpr Shares::Holder kHolder{.uid = 1, .pid = 71};

class State {
 public:
  State() {
    statistics_.follow(sessions_);
    costs_.follow(sessions_);
    windows_.follow(sessions_);
    recorder_.follow(sessions_);
    open();
  }

  void reopen() {
    give_back_cubin_room(cubin_room_, kHolder, tables_.cubin);
    room_left_taken_ |= cubin_room_.used() != 0;
    sessions_.apply(SessionClosed{.session_id = id_}, clock_.mono_ns());
    open();
  }

  void take(std::span<const std::byte> packet) {
    const auto status = decode_session_status(packet, id_);
    if (status.ok() && status->has_value()) {
      trial_.apply(kProcess, {}, {.calls = (*status)->hooked_calls, .mono_ns = (*status)->mono_ns});
      sessions_.apply(**status, clock_.mono_ns());
    }
    auto batch = decode_session_batch(packet,
                                      {.session_id = id_,
                                       .now_unix_ns = clock_.unix_ns(),
                                       .name_bytes_max = 1'024,
                                       .clock = offset_,
                                       .find_thread = find_thread_,
                                       .cubin_room = cubin_room_,
                                       .holder = kHolder},
                                      tables_);
    if (!batch.ok()) return reopen();
    kernels_ += batch->batch.kernels.size();
    sessions_.apply(std::move(batch->batch), clock_.mono_ns());
  }

  void pass(int steps, std::chrono::milliseconds step) {
    for (int i = 0; i < steps; ++i) {
      clock_.advance(step);
      const int64_t now_ns = clock_.mono_ns();
      sessions_.expire(now_ns);
      statistics_.expire(now_ns);
      costs_.advance(now_ns);
      windows_.advance(now_ns);
      recorder_.expire(now_ns);
    }
    launch_costs_.apply(kProcess, 1'000);
    launch_costs_.end_reading(clock_.mono_ns());
    trial_.end_slice();
    if (trial_.slices() < kSlicesMax) trial_.begin_slice(trial_.slices() % 2 == 0);
  }

  std::string find_fault() {
    GpuReport report;
    sessions_.fill(report);
    statistics_.fill(report);
    Snapshot snapshot;
    costs_.fill(snapshot);
    for (const OverheadMeasurement& measured : trial_.measure()) {
      if (!std::isfinite(measured.ratio) || !std::isfinite(measured.calls_per_second)) {
        return "a measurement that is no number";
      }
    }
    for (const OverheadRow& row : snapshot.overhead) {
      if (!(row.ratio >= 0) || !std::isfinite(row.ratio)) return "a cost that is no number";
    }
    uint64_t counted = 0;
    for (const auto* rows : {&report.kernels, &report.retired_kernels}) {
      for (const auto& row : *rows) counted += get_launches(row->totals);
    }
    if (counted > kernels_) return "more kernels than were sent";
    if (room_left_taken_) return "room for images that a session which ended has kept";
    const Status stored = check_capture(build_capture());
    return stored.ok() ? "" : "a capture that cannot be stored: " + stored.ToString();
  }

 private:
  Capture build_capture() {
    const TraceWindow window = recorder_.take(pin_);
    const CaptureScope scope{.id = 1, .end_mono_ns = static_cast<uint64_t>(clock_.mono_ns())};
    const FunctionList functions;
    const CaptureNames names{.get_owner = [](const ProcessKey&) { return Owner(); },
                             .read_thread_comm = [](uint32_t, uint32_t) { return std::string(); },
                             .functions = &functions};
    CaptureBuilder builder(window, scope, names);
    const std::vector<StackPtr> stacks(builder.stacks().size());
    return builder.finish(stacks);
  }

  void open() {
    tables_ = {};
    sessions_.apply(
        SessionOpened{.session_id = ++id_, .process = kProcess, .mono_ns = clock_.mono_ns()},
        clock_.mono_ns());
  }

  FakeClock clock_{400'000'000'000'000, kNowUnixNs};
  const RealtimeOffset offset_{clock_};
  const std::function<uint32_t(uint32_t)> find_thread_ = [](uint32_t tid) { return tid; };
  uint64_t id_ = 0;
  uint64_t kernels_ = 0;
  SessionTables tables_;
  Shares cubin_room_{{.total = uint64_t{1} << 20}};
  bool room_left_taken_ = false;
  DropCounters drops_;
  SessionMemory memory_{drops_};
  SessionRegistry sessions_{{}, drops_, memory_};
  LaunchCosts launch_costs_;
  SessionCosts costs_{launch_costs_};
  SessionWindows windows_{{.percent = 1}, launch_costs_, [](uint64_t, SessionOrder::Mode) {}};
  GpuStatistics statistics_{{}, drops_};
  OverheadTrial trial_;
  TraceRecorder recorder_{{.max_bytes = kRecorderBytes}, drops_};
  const std::shared_ptr<TraceRecorder::Pin> pin_ = recorder_.pin(0, kRecorderBytes);
};

std::string make_step(const session_packets::Packet& message) {
  const auto length = static_cast<uint16_t>(message.size());
  return "m" + session_packets::make_bytes(length) + message;
}

gpuperf_status make_collecting() {
  gpuperf_status status = session_packets::make_status();
  status.state = GPUPERF_SESSION_STATE_COLLECTING;
  status.level = 2 * GPUPERF_SESSION_LEVEL_CUPTI - 1;
  return status;
}

// Slices of a measurement by a clock that begins so and goes on by so much.
std::string make_measured(uint64_t mono_ns, uint64_t slice_ns) {
  gpuperf_status status = make_collecting();
  status.mono_ns = mono_ns;
  std::string steps = "t\1";
  for (int slice = 0; slice < 14; ++slice) {
    for (const bool is_end : {false, true}) {
      if (is_end) status.mono_ns += slice_ns;
      status.hooked_calls += is_end ? 1'000 : 1;
      steps += make_step(session_packets::make_message(GPUPERF_MESSAGE_STATUS, status));
    }
    steps += "t\1";
  }
  return steps;
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  const auto state = std::make_unique<State>();
  while (!bytes.empty()) {
    const char step = bytes.front();
    bytes.remove_prefix(1);
    uint16_t length = 0;
    if (step == 'm' && bytes.size() >= sizeof length) {
      std::memcpy(&length, bytes.data(), sizeof length);
      bytes.remove_prefix(sizeof length);
      const std::string message(bytes.substr(0, length));
      state->take(std::as_bytes(std::span(message)));
      bytes.remove_prefix(message.size());
    } else if (step == 't' && !bytes.empty()) {
      const auto time = static_cast<uint8_t>(bytes.front());
      state->pass((time & 7) + 1, kStep * (1 << (time >> 5)));
      bytes.remove_prefix(1);
    } else if (step == 'c') {
      state->reopen();
    }
  }
  return state->find_fault();
}

std::vector<std::string> make_seeds() {
  using namespace session_packets;
  const auto records = make_all_records(kNowUnixNs - 1'000'000);
  const std::string batch = make_step(make_batch(records));
  return {make_step(make_message(GPUPERF_MESSAGE_STATUS, make_collecting())) + batch + "t\7",
          batch + "t\7c" + batch + "t\xff", make_measured(5, 500'000'000),
          make_measured(UINT64_MAX, 0)};
}

}  // namespace gpuperf::fuzz
