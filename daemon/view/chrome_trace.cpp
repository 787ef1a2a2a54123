#include "daemon/view/chrome_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/view/chrome_stacks.h"
#include "daemon/view/json_text.h"
#include "daemon/view/rows.h"
#include "daemon/view/slice_facts.h"
#include "daemon/view/timeline.h"

namespace gpuperf {
namespace {

// More than any event has had, names aside: only address space until it is used.
constexpr size_t kBytesPerSlice = 400;
constexpr size_t kBytesPerArrow = 250;

// Names of events are repeated a million times; what is longer is whole in the arguments.
constexpr size_t kMaxNameBytes = 200;

// Texts that many events repeat, as JSON.
struct EventTexts {
  std::vector<std::string> functions;
  std::vector<std::string> categories;  // by function
  std::vector<std::string> short_kernels;
  std::vector<std::string> full_kernels;
  std::vector<std::string> operations;
  std::vector<std::string> shapes;
  bool is_inline = true;  // else arguments are indexes
};

std::vector<std::string> to_json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> result;
  result.reserve(texts.size());
  for (const std::string& text : texts) result.push_back(to_json_text(text));
  return result;
}

std::string_view shorten(std::string_view name) { return name.substr(0, kMaxNameBytes); }

uint64_t size_of(const std::vector<std::string>& texts, uint32_t index) {
  const std::string* text = find_row(texts, index);
  return text == nullptr ? 0 : text->size();
}

EventTexts make_texts(const Capture& capture, const ChromeLimits& limits) {
  EventTexts texts;
  for (const CaptureFunction& function : capture.functions) {
    texts.functions.push_back(to_json_text(shorten(function.name)));
    texts.categories.push_back(to_json_text(function.category));
  }
  for (const CaptureKernel& kernel : capture.kernels) {
    texts.full_kernels.push_back(to_json_text(kernel.name));
    texts.short_kernels.push_back(
        to_json_text(shorten(kernel.short_name.empty() ? kernel.name : kernel.short_name)));
  }
  texts.operations = to_json_strings(make_operation_texts(capture));
  texts.shapes = to_json_strings(make_shape_texts(capture));
  uint64_t bytes = 0;
  for (const CaptureWork& work : capture.work) {
    bytes += size_of(texts.full_kernels, work.kernel) + size_of(texts.shapes, work.shape);
  }
  for (const CaptureLaunch& launch : capture.launches) {
    bytes += size_of(texts.operations, launch.operation);
  }
  texts.is_inline = bytes <= limits.text_bytes;
  return texts;
}

class ChromeWriter {
 public:
  ChromeWriter(const Capture& capture, const ChromeLimits& limits)
      : capture_(capture),
        timeline_(make_timeline(capture)),
        texts_(make_texts(capture, limits)),
        stacks_(capture),
        stacks_json_(stacks_.take_json()) {
    uint64_t arrows = 0;
    has_arrow_.resize(capture.launches.size());
    for (const CaptureWork& work : capture.work) {
      if (!has_flow(capture, work)) continue;
      has_arrow_[work.launch] = true;
      ++arrows;
    }
    binds_ids_ = arrows > limits.arrows;
  }

  std::string write() {
    const size_t slices = capture_.calls.size() + capture_.launches.size() + capture_.work.size() +
                          capture_.waits.size() + capture_.steps.size();
    out_.reserve(slices * kBytesPerSlice +
                 (binds_ids_ ? 0 : capture_.work.size() * kBytesPerArrow) + stacks_json_.size() +
                 65'536);
    // No displayTimeUnit: Perfetto takes "ns" for the unit of ts.
    out_ += "{\"traceEvents\":[";
    write_names();
    find_launch_tracks();
    for (TraceTrack& track : timeline_.tracks) {
      track_prefix_ = make_prefix(track.group, track.id);
      for (const TraceSlice& slice : track.slices) write_slice(slice);
      track.slices = {};  // the text grows by more than that
    }
    write_counters();
    out_ += "],\n\"stackFrames\":";
    out_ += stacks_json_;
    write_other_data();
    out_ += "}\n";
    return std::move(out_);
  }

 private:
  std::string make_prefix(uint32_t group, uint32_t tid) const {
    return fmt::format("\"pid\":{},\"tid\":{},\"ts\":", timeline_.groups[group].id, tid);
  }

  void begin_event() {
    out_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
  }

  void write_names() {
    for (uint32_t i = 0; i < timeline_.groups.size(); ++i) {
      const TraceGroup& group = timeline_.groups[i];
      write_name("process", group.id, 0, to_json_text(group.name), i);
    }
    for (uint32_t i = 0; i < timeline_.tracks.size(); ++i) {
      const TraceTrack& track = timeline_.tracks[i];
      write_name("thread", timeline_.groups[track.group].id, track.id, to_json_text(track.name), i);
    }
  }

  void write_name(std::string_view what, uint32_t pid, uint32_t tid, const std::string& name,
                  uint32_t order) {
    begin_event();
    fmt::format_to(std::back_inserter(out_),
                   R"({{"ph":"M","name":"{0}_name","pid":{1},"tid":{2},"args":{{"name":{3}}}}},)"
                   "\n"
                   R"({{"ph":"M","name":"{0}_sort_index","pid":{1},"tid":{2},)"
                   R"("args":{{"sort_index":{4}}}}})",
                   what, pid, tid, name, order);
  }

  void append_time(uint64_t mono_ns) { append_us(mono_ns - timeline_.start_mono_ns, out_); }

  void write_slice(const TraceSlice& slice) {
    begin_event();
    out_ += "{\"ph\":\"X\",\"cat\":";
    append_category(slice);
    out_ += ",\"name\":";
    append_name(slice);
    out_ += ',';
    out_ += track_prefix_;
    append_time(slice.start_mono_ns);
    out_ += ",\"dur\":";
    append_us(slice.duration_ns, out_);
    separator_ = ",\"args\":{";
    if (slice.is_cut) append_arg("cut_to_fit", "true");
    switch (slice.kind) {
      case SliceKind::kCall:
        append_call(capture_.calls[slice.index]);
        break;
      case SliceKind::kLaunch:
        append_launch(capture_.launches[slice.index]);
        break;
      case SliceKind::kWait:
        append_wait(capture_.waits[slice.index]);
        break;
      case SliceKind::kWork:
        append_work(capture_.work[slice.index]);
        break;
      case SliceKind::kStep:
        append_step(capture_.steps[slice.index]);
        break;
      case SliceKind::kGap:
        append_gap(capture_.gaps[slice.index]);
        break;
    }
    if (separator_ == ",") out_ += '}';
    append_stack(slice);
    if (binds_ids_) append_bind_id(slice);
    out_ += '}';
    if (!binds_ids_ && slice.kind == SliceKind::kWork) write_arrow(slice);
  }

  // Of a call, that of its function.
  void append_category(const TraceSlice& slice) {
    if (slice.kind == SliceKind::kCall) {
      const std::string* category =
          find_row(texts_.categories, capture_.calls[slice.index].function);
      out_ += category == nullptr ? "\"call\"" : *category;
      return;
    }
    out_ += '"';
    if (slice.kind == SliceKind::kWork) {
      out_ += get_work_kind_name(capture_.work[slice.index].kind);
    } else {
      out_ += slice.kind == SliceKind::kLaunch ? "launch"
              : slice.kind == SliceKind::kWait ? "wait"
              : slice.kind == SliceKind::kStep ? "step"
                                               : "missing";
    }
    out_ += '"';
  }

  void append_name(const TraceSlice& slice) {
    const bool is_call = slice.kind == SliceKind::kCall;
    if (is_call || slice.kind == SliceKind::kLaunch) {
      const uint32_t function =
          is_call ? capture_.calls[slice.index].function : capture_.launches[slice.index].function;
      if (const std::string* name = find_row(texts_.functions, function)) {
        out_ += *name;
        return;
      }
    }
    if (slice.kind == SliceKind::kWork) {
      const CaptureWork& work = capture_.work[slice.index];
      const std::string* name = find_row(texts_.short_kernels, work.kernel);
      if (work.kind == WorkKind::kKernel && name != nullptr) {
        out_ += *name;
        return;
      }
    }
    out_ += to_json_text(shorten(make_slice_name(capture_, slice)));
  }

  void append_stack(const TraceSlice& slice) {
    uint32_t stack = kNoIndex;
    if (slice.kind == SliceKind::kCall) stack = capture_.calls[slice.index].stack;
    if (slice.kind == SliceKind::kLaunch) stack = capture_.launches[slice.index].stack;
    const uint32_t id = stacks_.get_id(stack);
    if (id == 0) return;
    out_ += ",\"sf\":";
    append_number(id, out_);
  }

  void append_key(std::string_view key) {
    out_ += separator_;
    separator_ = ",";
    out_ += '"';
    out_ += key;
    out_ += "\":";
  }
  void append_arg(std::string_view key, std::string_view json) {
    append_key(key);
    out_ += json;
  }
  void append_arg(std::string_view key, uint64_t number) {
    append_key(key);
    append_number(number, out_);
  }

  void append_text(std::string_view key, const std::vector<std::string>& texts, uint32_t index) {
    if (index >= texts.size()) return;
    if (texts_.is_inline) {
      append_arg(key, texts[index]);
    } else {
      append_arg(key, index);
    }
  }

  void append_call(const CaptureCall& call) {
    if (call.off_cpu_ns == 0) return;
    append_key("off_cpu_us");
    append_us(call.off_cpu_ns, out_);
  }

  void append_launch(const CaptureLaunch& launch) {
    if (launch.correlation_id != 0 && texts_.is_inline) {
      append_arg("correlation", launch.correlation_id);
    }
    if (launch.match != LaunchMatch::kExact) {
      append_arg("match", to_json_text(get_launch_match_name(launch.match)));
    }
    append_text("operation", texts_.operations, launch.operation);
  }

  void append_wait(const CaptureWait& wait) {
    if (const CaptureStream* stream = find_row(capture_.streams, wait.stream)) {
      append_arg("stream", stream->stream);
    }
  }

  void append_work(const CaptureWork& work) {
    const CaptureLaunch* launch = find_row(capture_.launches, work.launch);
    if (work.kind == WorkKind::kKernel) append_text("kernel", texts_.full_kernels, work.kernel);
    append_text("shape", texts_.shapes, work.shape);
    if (work.kind == WorkKind::kCopy || work.kind == WorkKind::kSet) {
      append_arg("bytes", work.bytes);
      append_arg("gb_per_second", fmt::format("{:.3f}", get_gigabytes_per_second(work)));
    }
    if (work.graph_id != 0) append_arg("graph", work.graph_id);
    if (work.node_id != 0) append_arg("node", work.node_id);
    if (const CaptureLaunch* capturer = find_row(capture_.capture_sites, work.capture_site)) {
      append_arg("captured_by", make_captured_by(*capturer));
    }
    if (launch == nullptr) append_arg("launch", "\"unknown\"");
    if (launch != nullptr && launch->match != LaunchMatch::kExact) {
      append_arg("match", to_json_text(get_launch_match_name(launch->match)));
    }
  }

  // Of a graph's node, the call that put it there, and what that was part of.
  std::string make_captured_by(const CaptureLaunch& launch) const {
    const std::string* operation = find_row(texts_.operations, launch.operation);
    if (operation != nullptr) return *operation;
    const std::string* function = find_row(texts_.functions, launch.function);
    return function == nullptr ? "\"unknown call\"" : *function;
  }

  void append_step(const CaptureStep& step) {
    if (const std::string* function = find_row(texts_.functions, step.function)) {
      append_arg("function", *function);
    }
    append_arg("phase", to_json_text(get_step_phase_name(step.phase)));
    if (step.tokens.quality != StepQuality::kUnknown) append_arg("tokens", step.tokens.value);
    if (step.sequences.quality != StepQuality::kUnknown) {
      append_arg("sequences", step.sequences.value);
    }
  }

  void append_gap(const CaptureGap& gap) {
    append_arg("cause", to_json_text(gap.cause));
    if (gap.count != 0) append_arg("records", gap.count);
  }

  // The arrow's two ends, within the events themselves.
  void append_bind_id(const TraceSlice& slice) {
    const bool is_launch = slice.kind == SliceKind::kLaunch && has_arrow_[slice.index];
    const bool is_work =
        slice.kind == SliceKind::kWork && has_flow(capture_, capture_.work[slice.index]);
    if (!is_launch && !is_work) return;
    out_ += ",\"bind_id\":";
    append_number((is_launch ? slice.index : capture_.work[slice.index].launch) + 1, out_);
    out_ += is_launch ? ",\"flow_out\":true" : ",\"flow_in\":true";
  }

  // From the launch's slice to the one just written.
  void write_arrow(const TraceSlice& slice) {
    const CaptureWork& work = capture_.work[slice.index];
    if (!has_flow(capture_, work)) return;
    const CaptureLaunch& launch = capture_.launches[work.launch];
    begin_event();
    out_ += "{\"ph\":\"s\",\"id\":";
    append_number(slice.index + 1, out_);
    out_ += ",\"cat\":\"launch\",\"name\":\"launch\",";
    out_ += launch_prefixes_[launch_tracks_[work.launch]];
    append_time(launch.start_mono_ns);
    out_ += "},\n{\"ph\":\"f\",\"bp\":\"e\",\"id\":";
    append_number(slice.index + 1, out_);
    out_ += ",\"cat\":\"launch\",\"name\":\"launch\",";
    out_ += track_prefix_;
    append_time(slice.start_mono_ns);
    out_ += '}';
  }

  void find_launch_tracks() {
    launch_tracks_.resize(capture_.launches.size());
    for (uint32_t i = 0; i < timeline_.tracks.size(); ++i) {
      const TraceTrack& track = timeline_.tracks[i];
      launch_prefixes_.push_back(make_prefix(track.group, track.id));
      for (const TraceSlice& slice : track.slices) {
        if (slice.kind == SliceKind::kLaunch) launch_tracks_[slice.index] = i;
      }
    }
  }

  void write_counters() {
    for (const TraceCounter& counter : timeline_.counters) {
      const std::string begin =
          fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":)", to_json_text(counter.name),
                      timeline_.groups[counter.group].id);
      for (const QueueStep& step : counter.steps) {
        begin_event();
        out_ += begin;
        append_time(step.mono_ns);
        out_ += ",\"args\":{\"value\":";
        append_number(step.depth, out_);
        out_ += "}}";
      }
    }
  }

  void write_other_data() {
    const uint64_t before_ns = capture_.start_mono_ns - timeline_.start_mono_ns;
    std::string window_us;
    append_us(before_ns, window_us);
    std::string duration_us;
    append_us(capture_.duration_ns, duration_us);
    // Nanoseconds since 1970 are more than a number of JavaScript can hold.
    fmt::format_to(std::back_inserter(out_),
                   ",\n\"otherData\":{{\"tool\":\"gpuperf\",\"version\":{},\"host\":{},"
                   "\"capture\":{},\"name\":{},\"trigger\":{},\"clock\":\"CLOCK_MONOTONIC\","
                   "\"ts0_mono_ns\":\"{}\",\"ts0_unix_ns\":\"{}\",\"window_start_us\":{},"
                   "\"window_duration_us\":{}",
                   to_json_text(capture_.version), to_json_text(capture_.host), capture_.id,
                   to_json_text(capture_.name), to_json_text(capture_.trigger),
                   timeline_.start_mono_ns, capture_.start_unix_ns - before_ns, window_us,
                   duration_us);
    if (!texts_.is_inline) {
      write_rows("kernels", texts_.full_kernels);
      write_rows("shapes", texts_.shapes);
      write_rows("operations", texts_.operations);
    }
    out_ += '}';
  }

  void write_rows(std::string_view key, const std::vector<std::string>& texts) {
    fmt::format_to(std::back_inserter(out_), ",\n\"{}\":[", key);
    for (size_t i = 0; i < texts.size(); ++i) {
      out_ += i == 0 ? "\n" : ",\n";
      out_ += texts[i];
    }
    out_ += ']';
  }

  const Capture& capture_;
  Timeline timeline_;
  const EventTexts texts_;
  ChromeStacks stacks_;
  const std::string stacks_json_;
  std::string out_;
  bool is_first_ = true;
  std::string track_prefix_;
  std::string_view separator_;
  bool binds_ids_ = false;
  std::vector<bool> has_arrow_;               // by launch
  std::vector<uint32_t> launch_tracks_;       // by launch
  std::vector<std::string> launch_prefixes_;  // by track
};

}  // namespace

std::string render_chrome_trace(const Capture& capture, const ViewOptions&) {
  return render_chrome_trace(capture, ChromeLimits{});
}

std::string render_chrome_trace(const Capture& capture, const ChromeLimits& limits) {
  return ChromeWriter(capture, limits).write();
}

}  // namespace gpuperf
