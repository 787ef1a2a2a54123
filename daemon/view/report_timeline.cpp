#include "daemon/view/report_timeline.h"

#include <absl/container/flat_hash_map.h>
#include <absl/strings/escaping.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/model/session_names.h"
#include "daemon/view/call_nesting.h"
#include "daemon/view/call_path.h"
#include "daemon/view/escape.h"
#include "daemon/view/frame_text.h"
#include "daemon/view/rows.h"

namespace gpuperf {

namespace {

constexpr uint32_t kNoTick = UINT32_MAX;
constexpr uint16_t kNoRow = UINT16_MAX;
constexpr uint32_t kMostLanes = 8;  // calls nested deeper are left out
constexpr char kWaitKind = '6';     // a colour beside those of FrameKind

struct Item {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t longest_ns = 0;  // of the pieces in it; 4 s are as good as more
  uint32_t name = 0;
  uint32_t launch = kNoIndex;  // of the longest piece
  uint32_t pieces = 1;
  uint32_t lane = 0;
};

uint32_t to_longest(uint64_t duration_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(duration_ns, UINT32_MAX));
}

struct Row {
  std::string label;
  bool is_host = false;
  uint32_t lanes = 1;
  uint64_t busy_ns = 0;
  uint32_t index = kNoIndex;  // of the capture's streams, or threads
  std::vector<Item> items;    // by lane, then start
};

class TimelineDrawing {
 public:
  TimelineDrawing(const Capture& capture, size_t most_items)
      : capture_(capture), most_items_(most_items), table_(capture, {}) {}

  std::string make_json() {
    add_threads();  // first: what it needs meanwhile is more than streams keep
    const auto threads = static_cast<ptrdiff_t>(rows_.size());
    add_streams();
    std::rotate(rows_.begin(), rows_.begin() + threads, rows_.end());
    for (Row& row : rows_) {
      std::sort(row.items.begin(), row.items.end(), [](const Item& left, const Item& right) {
        return std::tie(left.lane, left.start_ns) < std::tie(right.lane, right.start_ns);
      });
    }
    find_span();
    merge_items();
    return write();
  }

 private:
  void add_streams() {
    std::vector<Row> rows(capture_.streams.size() + 1);  // the last: of work without a stream
    for (uint32_t stream = 0; stream < rows.size(); ++stream) {
      rows[stream].index = stream;
      rows[stream].label = label_stream(stream);
    }
    std::vector<size_t> counts(rows.size());
    for (const CaptureWork& work : capture_.work) {
      ++counts[std::min<size_t>(work.stream, rows.size() - 1)];
    }
    for (size_t row = 0; row < rows.size(); ++row) rows[row].items.reserve(counts[row]);
    for (const CaptureWork& work : capture_.work) {
      Row& row = rows[std::min<size_t>(work.stream, rows.size() - 1)];
      row.items.push_back({.start_ns = work.start_mono_ns,
                           .end_ns = work.start_mono_ns + work.duration_ns,
                           .longest_ns = to_longest(work.duration_ns),
                           .name = add_frame_name(table_.find_gpu_frame(work)),
                           .launch = work.launch});
      row.busy_ns += work.duration_ns;
    }
    keep_busiest(rows, [&](const Row& row) {
      const CaptureStream* stream = find_row(capture_.streams, row.index);
      return stream == nullptr ? kNoIndex : stream->device;
    });
  }

  void add_threads() {
    std::vector<Row> rows(capture_.threads.size());
    for (uint32_t thread = 0; thread < rows.size(); ++thread) {
      rows[thread].index = thread;
      rows[thread].is_host = true;
      rows[thread].label = label_thread(thread);
    }
    add_calls(rows);
    for (const CaptureWait& wait : capture_.waits) {
      if (wait.thread >= rows.size()) continue;
      Row& row = rows[wait.thread];
      const std::string name = fmt::format("wait for {}", get_sync_type_name(wait.type));
      row.items.push_back({.start_ns = wait.start_mono_ns,
                           .end_ns = wait.start_mono_ns + wait.duration_ns,
                           .longest_ns = to_longest(wait.duration_ns),
                           .name = add_name(name, kWaitKind),
                           .lane = kMostLanes});  // below the calls, once all are known
      row.busy_ns += wait.duration_ns;
    }
    for (Row& row : rows) {
      for (Item& item : row.items) item.lane = std::min(item.lane, row.lanes);
      for (const Item& item : row.items) row.lanes = std::max(row.lanes, item.lane + 1);
    }
    keep_busiest(rows, [&](const Row& row) { return capture_.threads[row.index].process; });
  }

  void add_calls(std::vector<Row>& rows) {
    const std::vector<NestedCall> calls = nest_calls(capture_, table_);
    const auto get_row = [&](const NestedCall& call) {
      const uint32_t thread = call.call != kNoIndex ? capture_.calls[call.call].thread
                                                    : capture_.launches[call.launch].thread;
      return call.depth < kMostLanes ? thread : kNoIndex;
    };
    std::vector<size_t> counts(rows.size());
    for (const NestedCall& call : calls) {
      if (get_row(call) < rows.size()) ++counts[get_row(call)];
    }
    for (size_t row = 0; row < rows.size(); ++row) rows[row].items.reserve(counts[row]);
    for (const NestedCall& call : calls) {
      if (get_row(call) < rows.size()) add_call(rows[get_row(call)], call);
    }
  }

  void add_call(Row& row, const NestedCall& call) {
    const uint32_t function = call.call != kNoIndex ? capture_.calls[call.call].function
                                                    : capture_.launches[call.launch].function;
    row.items.push_back({.start_ns = call.start_mono_ns,
                         .end_ns = call.start_mono_ns + call.duration_ns,
                         .longest_ns = to_longest(call.duration_ns),
                         .name = add_function_name(function),
                         .lane = call.depth});
    row.lanes = std::max(row.lanes, call.depth + 1);
    row.busy_ns += call.self_ns;
  }

  // Rows that hold something, by group, those of one group in order of their index.
  template <typename GetGroup>
  void keep_busiest(std::vector<Row>& rows, GetGroup get_group) {
    std::erase_if(rows, [](const Row& row) { return row.items.empty(); });
    std::sort(rows.begin(), rows.end(),
              [](const Row& left, const Row& right) { return left.busy_ns > right.busy_ns; });
    if (rows.size() > kMostTimelineRows) {
      left_out_ += rows.size() - kMostTimelineRows;
      rows.resize(kMostTimelineRows);
    }
    std::sort(rows.begin(), rows.end(), [&](const Row& left, const Row& right) {
      return std::pair(get_group(left), left.index) < std::pair(get_group(right), right.index);
    });
    std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
  }

  std::string label_stream(uint32_t index) const {
    const CaptureStream* stream = find_row(capture_.streams, index);
    if (stream == nullptr) return "GPU, stream unknown";
    const CaptureDevice* device = find_row(capture_.devices, stream->device);
    std::string label = device == nullptr ? "GPU" : fmt::format("GPU {}", device->number);
    if (stream->stream != UINT32_MAX) label += fmt::format(", stream {}", stream->stream);
    const CaptureProcess* process = find_row(capture_.processes, stream->process);
    if (process != nullptr && capture_.processes.size() > 1) {
      label += fmt::format(", pid {}", process->process.pid);
    }
    return label;
  }

  std::string label_thread(uint32_t index) const {
    const CaptureThread& thread = capture_.threads[index];
    std::string comm = thread.comm;
    const CaptureProcess* process = find_row(capture_.processes, thread.process);
    if (comm.empty() && process != nullptr) comm = process->owner.comm;
    return fmt::format("{} {}", comm.empty() ? "thread" : to_path_text(comm), thread.tid);
  }

  uint32_t add_name(const std::string& name, char kind) {
    const auto [found, is_new] = name_ids_.try_emplace(name, names_.size());
    if (is_new) {
      names_.push_back(name);
      kinds_ += kind;
    }
    return found->second;
  }

  uint32_t add_frame_name(uint32_t frame) {
    if (frame >= frame_names_.size()) frame_names_.resize(frame + 1, kNoIndex);
    if (frame_names_[frame] == kNoIndex) {
      frame_names_[frame] =
          add_name(table_.get_text(frame),
                   static_cast<char>('0' + static_cast<int>(table_.get_kind(frame))));
    }
    return frame_names_[frame];
  }

  uint32_t add_function_name(uint32_t function) {
    const CaptureFunction* found = find_row(capture_.functions, function);
    if (found == nullptr) return add_name("call", '3');
    if (function_names_.empty()) function_names_.assign(capture_.functions.size(), kNoIndex);
    if (function_names_[function] == kNoIndex) {
      const auto kind = static_cast<int>(get_function_kind(*found));
      function_names_[function] =
          add_name(to_path_text(found->name), static_cast<char>('0' + kind));
    }
    return function_names_[function];
  }

  void find_span() {
    begin_ns_ = capture_.start_mono_ns;
    uint64_t end_ns = capture_.start_mono_ns + capture_.duration_ns;
    for (const Row& row : rows_) {
      for (const Item& item : row.items) {
        begin_ns_ = std::min(begin_ns_, item.start_ns);
        end_ns = std::max(end_ns, item.end_ns);
      }
    }
    span_ns_ = std::max<uint64_t>(end_ns - begin_ns_, 1);
    tick_ns_ = span_ns_ / kNoTick + 1;
  }

  size_t count_items() const {
    size_t count = 0;
    for (const Row& row : rows_) count += row.items.size();
    return count;
  }

  void merge_items() {
    uint64_t within_ns = std::max<uint64_t>(span_ns_ / 1'000'000, 1);
    while (count_items() > most_items_ && within_ns < span_ns_) {
      for (Row& row : rows_) merge_row(row, within_ns);
      merge_ns_ = within_ns;
      within_ns *= 2;
    }
  }

  static void merge_row(Row& row, uint64_t within_ns) {
    size_t kept = 0;
    for (size_t index = 1; index < row.items.size(); ++index) {
      Item& last = row.items[kept];
      const Item& item = row.items[index];
      const uint64_t end_ns = std::max(last.end_ns, item.end_ns);
      if (item.lane != last.lane || end_ns - last.start_ns > within_ns) {
        row.items[++kept] = item;
        continue;
      }
      last.end_ns = end_ns;
      last.pieces += item.pieces;
      if (item.longest_ns > last.longest_ns) {
        last.longest_ns = item.longest_ns;
        last.name = item.name;
        last.launch = item.launch;
      }
    }
    if (!row.items.empty()) row.items.resize(kept + 1);
  }

  uint32_t to_tick(uint64_t time_ns) const {
    return static_cast<uint32_t>(std::min<uint64_t>((time_ns - begin_ns_) / tick_ns_, kNoTick - 1));
  }

  uint32_t find_launch_tick(const Item& item) const {
    const CaptureLaunch* launch = find_row(capture_.launches, item.launch);
    const bool is_there = launch != nullptr && launch->start_mono_ns >= begin_ns_;
    return is_there ? to_tick(launch->start_mono_ns) : kNoTick;
  }

  template <typename Value>
  static void append(std::string& bytes, Value value) {
    for (size_t byte = 0; byte < sizeof value; ++byte) {
      bytes += static_cast<char>(value >> (8 * byte) & 0xff);
    }
  }

  std::string pack_items(const Row& row, const std::vector<uint16_t>& thread_rows) const {
    std::string bytes;
    bytes.reserve(row.items.size() * 20);
    for (const Item& item : row.items) append(bytes, to_tick(item.start_ns));
    for (const Item& item : row.items) {
      append(bytes, to_tick(item.end_ns) - to_tick(item.start_ns));
    }
    for (const Item& item : row.items) append(bytes, item.name);
    for (const Item& item : row.items) append(bytes, row.is_host ? 0u : find_launch_tick(item));
    for (const Item& item : row.items) {
      const CaptureLaunch* launch = find_row(capture_.launches, item.launch);
      const bool is_known = launch != nullptr && launch->thread < thread_rows.size();
      const uint16_t thread = is_known ? thread_rows[launch->thread] : kNoRow;
      append(bytes, row.is_host ? static_cast<uint16_t>(item.lane) : thread);
    }
    for (const Item& item : row.items) {
      append(bytes, static_cast<uint16_t>(std::min<uint32_t>(item.pieces, UINT16_MAX)));
    }
    return absl::Base64Escape(bytes);
  }

  std::string write() const {
    std::vector<uint16_t> thread_rows(capture_.threads.size(), kNoRow);
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].is_host) thread_rows[rows_[row].index] = static_cast<uint16_t>(row);
    }
    std::string json = fmt::format(
        "{{\"span_ns\":{},\"tick_ns\":{},\"begin_ns\":{},\"window_ns\":{},\"merge_ns\":{},"
        "\"left_out\":{},\"kinds\":\"{}\",\"names\":[",
        span_ns_, tick_ns_, capture_.start_mono_ns - begin_ns_, capture_.duration_ns, merge_ns_,
        left_out_, kinds_);
    for (size_t name = 0; name < names_.size(); ++name) {
      json += (name == 0 ? "" : ",") + to_json_string(names_[name]);
    }
    json += "],\"rows\":[";
    for (size_t row = 0; row < rows_.size(); ++row) {
      json += fmt::format("{}{{\"label\":{},\"is_host\":{},\"lanes\":{},\"count\":{},\"items\":\"",
                          row == 0 ? "" : ",", to_json_string(rows_[row].label), rows_[row].is_host,
                          rows_[row].lanes, rows_[row].items.size());
      json += pack_items(rows_[row], thread_rows);
      json += "\"}";
    }
    json += "]}";
    return json;
  }

  const Capture& capture_;
  const size_t most_items_;
  PathTable table_;
  std::vector<Row> rows_;  // streams, then threads
  std::vector<std::string> names_;
  std::string kinds_;
  absl::flat_hash_map<std::string, uint32_t> name_ids_;
  std::vector<uint32_t> frame_names_;     // by frame of the table
  std::vector<uint32_t> function_names_;  // by function of the capture
  uint64_t begin_ns_ = 0;
  uint64_t span_ns_ = 1;
  uint64_t tick_ns_ = 1;
  uint64_t merge_ns_ = 0;
  size_t left_out_ = 0;
};

}  // namespace

std::string make_timeline_json(const Capture& capture, size_t most_items) {
  return TimelineDrawing(capture, most_items).make_json();
}

}  // namespace gpuperf
