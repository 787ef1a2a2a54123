#include "daemon/view/perfetto_trace.h"

#include <google/protobuf/io/coded_stream.h>

#include <string_view>
#include <utility>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/view/perfetto_interned.h"
#include "daemon/view/rows.h"
#include "daemon/view/slice_facts.h"
#include "daemon/view/timeline.h"
#include "perfetto/trace.pb.h"

namespace gpuperf {
namespace {

using google::protobuf::io::CodedOutputStream;
using perfetto::protos::TracePacket;
using perfetto::protos::TrackDescriptor;
using perfetto::protos::TrackEvent;

constexpr uint32_t kSequence = 1;
constexpr uint8_t kPacketTag = 1 << 3 | 2;  // Trace.packet, with its length
constexpr size_t kBytesPerSlice = 90;       // both ends; for reserving

class PerfettoWriter {
 public:
  PerfettoWriter(const Capture& capture, Timeline timeline)
      : capture_(capture),
        timeline_(std::move(timeline)),
        interned_(capture),
        operations_(make_operation_texts(capture)),
        shapes_(make_shape_texts(capture)) {}

  std::string write() {
    const size_t slices = capture_.calls.size() + capture_.launches.size() + capture_.work.size() +
                          capture_.waits.size();
    out_.reserve(slices * kBytesPerSlice + 65'536);
    list_flows();
    write_clocks();
    for (uint32_t i = 0; i < timeline_.groups.size(); ++i) write_group(i);
    for (uint32_t i = 0; i < timeline_.tracks.size(); ++i) {
      write_track(i);
      write_slices(i);
      timeline_.tracks[i].slices = {};
    }
    for (uint32_t i = 0; i < timeline_.counters.size(); ++i) write_counter(i);
    return std::move(out_);
  }

 private:
  uint64_t uuid_of_group(uint32_t group) const { return 1 + group; }
  uint64_t uuid_of_track(uint32_t track) const { return 1 + timeline_.groups.size() + track; }
  uint64_t uuid_of_counter(uint32_t counter) const {
    return uuid_of_track(static_cast<uint32_t>(timeline_.tracks.size())) + counter;
  }
  bool is_process(uint32_t group) const { return group < capture_.processes.size(); }

  // The works of each launch that an arrow leads to, by launch: those of launch i are
  // flows_[flow_ends_[i - 1] .. flow_ends_[i]).
  void list_flows() {
    flow_ends_.resize(capture_.launches.size() + 1);
    for (const CaptureWork& work : capture_.work) {
      if (has_flow(capture_, work)) ++flow_ends_[work.launch + 1];
    }
    for (size_t i = 1; i < flow_ends_.size(); ++i) flow_ends_[i] += flow_ends_[i - 1];
    flows_.resize(flow_ends_.back());
    std::vector<uint32_t> next(flow_ends_.begin(), flow_ends_.end() - 1);
    for (uint32_t i = 0; i < capture_.work.size(); ++i) {
      const CaptureWork& work = capture_.work[i];
      if (has_flow(capture_, work)) flows_[next[work.launch]++] = i;
    }
  }

  TracePacket& begin_packet() {
    packet_.Clear();
    packet_.set_trusted_packet_sequence_id(kSequence);
    packet_.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    return packet_;
  }

  void end_packet() {
    const size_t size = packet_.ByteSizeLong();
    uint8_t header[1 + 5];
    header[0] = kPacketTag;
    const uint8_t* header_end =
        CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(size), header + 1);
    out_.append(reinterpret_cast<const char*>(header), static_cast<size_t>(header_end - header));
    const size_t begin = out_.size();
    out_.resize(begin + size);
    packet_.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out_.data() + begin));
  }

  void write_clocks() {
    TracePacket& packet = begin_packet();
    packet.set_sequence_flags(TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
    packet.mutable_trace_packet_defaults()->set_timestamp_clock_id(
        perfetto::protos::BUILTIN_CLOCK_MONOTONIC);
    auto& clocks = *packet.mutable_clock_snapshot();
    clocks.set_primary_trace_clock(perfetto::protos::BUILTIN_CLOCK_MONOTONIC);
    auto& monotonic = *clocks.add_clocks();
    monotonic.set_clock_id(perfetto::protos::BUILTIN_CLOCK_MONOTONIC);
    monotonic.set_timestamp(capture_.start_mono_ns);
    auto& realtime = *clocks.add_clocks();
    realtime.set_clock_id(perfetto::protos::BUILTIN_CLOCK_REALTIME);
    realtime.set_timestamp(capture_.start_unix_ns);
    end_packet();
  }

  void write_group(uint32_t group) {
    TrackDescriptor& track = *begin_packet().mutable_track_descriptor();
    track.set_uuid(uuid_of_group(group));
    const TraceGroup& row = timeline_.groups[group];
    if (is_process(group)) {
      track.mutable_process()->set_pid(static_cast<int32_t>(row.id));
      track.mutable_process()->set_process_name(to_valid_utf8(row.name));
    } else {
      track.set_name(to_valid_utf8(row.name));
    }
    end_packet();
  }

  void write_track(uint32_t track) {
    const TraceTrack& row = timeline_.tracks[track];
    TrackDescriptor& descriptor = *begin_packet().mutable_track_descriptor();
    descriptor.set_uuid(uuid_of_track(track));
    if (row.is_thread && is_process(row.group)) {
      auto& thread = *descriptor.mutable_thread();
      thread.set_pid(static_cast<int32_t>(timeline_.groups[row.group].id));
      thread.set_tid(static_cast<int32_t>(row.id));
      thread.set_thread_name(to_valid_utf8(row.name));
    } else {
      descriptor.set_parent_uuid(uuid_of_group(row.group));
      descriptor.set_name(to_valid_utf8(row.name));
    }
    end_packet();
  }

  void write_slices(uint32_t track) {
    std::vector<uint64_t> ends_ns;  // of slices that are open, outermost first
    const uint64_t uuid = uuid_of_track(track);
    for (const TraceSlice& slice : timeline_.tracks[track].slices) {
      while (!ends_ns.empty() && ends_ns.back() <= slice.start_mono_ns) {
        write_end(uuid, ends_ns.back());
        ends_ns.pop_back();
      }
      write_begin(uuid, slice);
      ends_ns.push_back(slice.start_mono_ns + slice.duration_ns);
    }
    for (; !ends_ns.empty(); ends_ns.pop_back()) write_end(uuid, ends_ns.back());
  }

  void write_end(uint64_t uuid, uint64_t mono_ns) {
    TracePacket& packet = begin_packet();
    packet.set_timestamp(mono_ns);
    TrackEvent& event = *packet.mutable_track_event();
    event.set_type(TrackEvent::TYPE_SLICE_END);
    event.set_track_uuid(uuid);
    end_packet();
  }

  void write_begin(uint64_t uuid, const TraceSlice& slice) {
    TracePacket& packet = begin_packet();
    packet.set_timestamp(slice.start_mono_ns);
    TrackEvent& event = *packet.mutable_track_event();
    event.set_type(TrackEvent::TYPE_SLICE_BEGIN);
    event.set_track_uuid(uuid);
    event.set_name_iid(interned_.find_event_name(make_slice_name(capture_, slice), packet));
    if (slice.is_cut) set_bool("cut_to_fit");
    switch (slice.kind) {
      case SliceKind::kCall:
        add_call(capture_.calls[slice.index]);
        break;
      case SliceKind::kLaunch:
        add_launch(slice.index);
        break;
      case SliceKind::kWait:
        add_wait(capture_.waits[slice.index]);
        break;
      case SliceKind::kWork:
        add_work(slice.index);
        break;
      case SliceKind::kStep:
        add_step(capture_.steps[slice.index]);
        break;
      case SliceKind::kGap:
        add_gap(capture_.gaps[slice.index]);
        break;
    }
    end_packet();
  }

  void set_category(std::string_view category) {
    packet_.mutable_track_event()->add_category_iids(interned_.find_category(category, packet_));
  }
  perfetto::protos::DebugAnnotation& add_argument(std::string_view name) {
    auto& argument = *packet_.mutable_track_event()->add_debug_annotations();
    argument.set_name_iid(interned_.find_argument(name, packet_));
    return argument;
  }
  void set_bool(std::string_view name) { add_argument(name).set_bool_value(true); }
  void set_number(std::string_view name, uint64_t number) {
    add_argument(name).set_uint_value(number);
  }
  void set_text(std::string_view name, std::string_view text) {
    add_argument(name).set_string_value_iid(interned_.find_value(text, packet_));
  }
  void set_stack(uint32_t stack) {
    const uint64_t iid = interned_.find_stack(stack, packet_);
    if (iid != 0) packet_.mutable_track_event()->set_callstack_iid(iid);
  }

  void add_call(const CaptureCall& call) {
    set_category("call");
    if (const CaptureFunction* function = find_row(capture_.functions, call.function)) {
      set_text("category", function->category);
    }
    set_number("off_cpu_ns", call.off_cpu_ns);
    set_stack(call.stack);
  }

  void add_launch(uint32_t index) {
    const CaptureLaunch& launch = capture_.launches[index];
    set_category("launch");
    if (launch.correlation_id != 0) set_number("correlation", launch.correlation_id);
    if (launch.match != LaunchMatch::kExact) {
      set_text("match", get_launch_match_name(launch.match));
    }
    if (const std::string* operation = find_row(operations_, launch.operation)) {
      set_text("operation", *operation);
    }
    set_stack(launch.stack);
    for (uint32_t i = flow_ends_[index]; i < flow_ends_[index + 1]; ++i) {
      packet_.mutable_track_event()->add_flow_ids(uint64_t{flows_[i]} + 1);
    }
  }

  void add_wait(const CaptureWait& wait) {
    set_category("wait");
    if (const CaptureStream* stream = find_row(capture_.streams, wait.stream)) {
      set_number("stream", stream->stream);
    }
  }

  void add_work(uint32_t index) {
    const CaptureWork& work = capture_.work[index];
    set_category(get_work_kind_name(work.kind));
    if (has_flow(capture_, work)) {
      packet_.mutable_track_event()->add_terminating_flow_ids(uint64_t{index} + 1);
    }
    const CaptureKernel* kernel = find_row(capture_.kernels, work.kernel);
    if (work.kind == WorkKind::kKernel && kernel != nullptr) set_text("kernel", kernel->name);
    if (const std::string* shape = find_row(shapes_, work.shape)) set_text("shape", *shape);
    if (work.kind == WorkKind::kCopy || work.kind == WorkKind::kSet) {
      set_number("bytes", work.bytes);
      add_argument("gb_per_second").set_double_value(get_gigabytes_per_second(work));
    }
    if (work.graph_id != 0) set_number("graph", work.graph_id);
    if (work.node_id != 0) set_number("node", work.node_id);
    if (const CaptureLaunch* capturer = find_row(capture_.capture_sites, work.capture_site)) {
      set_text("captured_by", make_captured_by(*capturer));
    }
    const CaptureLaunch* launch = find_row(capture_.launches, work.launch);
    if (launch == nullptr) set_text("launch", "unknown");
    if (launch != nullptr && launch->match != LaunchMatch::kExact) {
      set_text("match", get_launch_match_name(launch->match));
    }
  }

  // Of a graph's node, the call that put it there, and what that was part of.
  std::string_view make_captured_by(const CaptureLaunch& launch) const {
    if (const std::string* operation = find_row(operations_, launch.operation)) return *operation;
    const CaptureFunction* function = find_row(capture_.functions, launch.function);
    return function == nullptr ? "unknown call" : std::string_view(function->name);
  }

  void add_step(const CaptureStep& step) {
    set_category("step");
    if (const CaptureFunction* function = find_row(capture_.functions, step.function)) {
      set_text("function", function->name);
    }
    set_text("phase", get_step_phase_name(step.phase));
    if (step.tokens.quality != StepQuality::kUnknown) set_number("tokens", step.tokens.value);
    if (step.sequences.quality != StepQuality::kUnknown) {
      set_number("sequences", step.sequences.value);
    }
  }

  void add_gap(const CaptureGap& gap) {
    set_category("missing");
    set_text("cause", gap.cause);
    if (gap.count != 0) set_number("records", gap.count);
  }

  void write_counter(uint32_t index) {
    const TraceCounter& counter = timeline_.counters[index];
    const uint64_t uuid = uuid_of_counter(index);
    TrackDescriptor& track = *begin_packet().mutable_track_descriptor();
    track.set_uuid(uuid);
    track.set_parent_uuid(uuid_of_group(counter.group));
    track.set_name(to_valid_utf8(counter.name));
    track.mutable_counter()->set_unit(perfetto::protos::CounterDescriptor::UNIT_COUNT);
    end_packet();
    for (const QueueStep& step : counter.steps) {
      TracePacket& packet = begin_packet();
      packet.set_timestamp(step.mono_ns);
      TrackEvent& event = *packet.mutable_track_event();
      event.set_type(TrackEvent::TYPE_COUNTER);
      event.set_track_uuid(uuid);
      event.set_counter_value(step.depth);
      end_packet();
    }
  }

  const Capture& capture_;
  Timeline timeline_;
  PerfettoInterned interned_;
  const std::vector<std::string> operations_;
  const std::vector<std::string> shapes_;
  std::vector<uint32_t> flows_;
  std::vector<uint32_t> flow_ends_;  // one more than launches; the first is 0
  TracePacket packet_;               // used again, so that nothing is allocated per event
  std::string out_;
};

}  // namespace

std::string render_perfetto_trace(const Capture& capture, const ViewOptions&) {
  return PerfettoWriter(capture, make_timeline(capture)).write();
}

}  // namespace gpuperf
