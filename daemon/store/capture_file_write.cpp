#include <spdlog/fmt/fmt.h>
#include <zlib.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/store/capture_file.h"
#include "daemon/store/capture_layout.h"
#include "daemon/store/capture_proto.h"
#include "gpuperf/v1/stored_capture.pb.h"

namespace gpuperf {
namespace {

using v1::StoredCapture;

// Tag and length before a piece's bytes, as protobuf writes a field.
void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

void append_piece(std::string& bytes, int field, const google::protobuf::MessageLite& piece) {
  const size_t piece_bytes = piece.ByteSizeLong();
  if (piece_bytes == 0) return;
  append_varint(bytes, static_cast<uint64_t>(field) << 3 | 2);
  append_varint(bytes, piece_bytes);
  piece.AppendToString(&bytes);
}

// Calls `add(row, piece)` for each row, `kStoredBlockRows` of them to a piece.
template <typename Piece, typename Row, typename Add>
void append_rows(std::string& bytes, int field, std::span<const Row> rows, Add add) {
  Piece piece;
  while (!rows.empty()) {
    const size_t count = std::min(rows.size(), kStoredBlockRows);
    piece.Clear();
    Differences before;
    for (const Row& row : rows.first(count)) add(row, piece, before);
    append_piece(bytes, field, piece);
    rows = rows.subspan(count);
  }
}

// Gives texts their numbers.
class TextNumbers {
 public:
  TextNumbers() { get(""); }
  // The text must outlive this.
  uint32_t get(std::string_view text) {
    text = text.substr(0, kMaxCaptureTextBytes);
    used_bytes_ += text.size();
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  // Of all texts, as often as they are named: what a reader needs.
  uint64_t used_bytes() const { return used_bytes_; }

  void append_to(std::string& bytes) const {
    v1::StoredTexts piece;
    size_t piece_bytes = 0;
    for (const std::string_view text : texts_) {
      piece.add_text(text.data(), text.size());
      piece_bytes += text.size() + 4;
      if (piece_bytes < kStoredTextsBytes) continue;
      append_piece(bytes, StoredCapture::kTextsFieldNumber, piece);
      piece.Clear();
      piece_bytes = 0;
    }
    append_piece(bytes, StoredCapture::kTextsFieldNumber, piece);
  }

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;
  std::vector<std::string_view> texts_;
  uint64_t used_bytes_ = 0;
};

uint32_t plus_one(uint32_t index) { return index + 1; }  // kNoIndex becomes 0

// The tables, which number their texts on the way.
class TableWriter {
 public:
  TableWriter(const Capture& capture, TextNumbers& texts) : capture_(capture), texts_(texts) {}

  std::string write() {
    add_processes_and_threads();
    add_names();
    add_frames();
    add_stacks();
    add_operations();
    add_places();
    add_stalls();
    return std::move(bytes_);
  }

 private:
  template <typename Row, typename Add>
  void add_rows(const std::vector<Row>& rows, Add add) {
    append_rows<v1::StoredTables>(
        bytes_, StoredCapture::kTablesFieldNumber, std::span<const Row>(rows),
        [&](const Row& row, v1::StoredTables& piece, Differences&) { add(row, piece); });
  }

  void add_processes_and_threads() {
    add_rows(capture_.processes, [this](const CaptureProcess& row, v1::StoredTables& piece) {
      piece.add_process_pid(row.process.pid);
      piece.add_process_start_boot_ns(row.process.start_boot_ns);
      piece.add_process_comm(texts_.get(row.owner.comm));
      piece.add_process_container(texts_.get(row.owner.container));
      piece.add_process_pod(texts_.get(row.owner.pod));
      piece.add_process_pod_namespace(texts_.get(row.owner.pod_namespace));
      piece.add_process_slurm_job(texts_.get(row.owner.slurm_job));
      piece.add_process_slurm_rank(texts_.get(row.owner.slurm_rank));
      piece.add_process_is_injected(row.is_injected);
    });
    add_rows(capture_.threads, [this](const CaptureThread& row, v1::StoredTables& piece) {
      piece.add_thread_process(plus_one(row.process));
      piece.add_thread_tid(row.tid);
      piece.add_thread_comm(texts_.get(row.comm));
    });
  }

  void add_names() {
    add_rows(capture_.functions, [this](const CaptureFunction& row, v1::StoredTables& piece) {
      piece.add_function_category(texts_.get(row.category));
      piece.add_function_name(texts_.get(row.name));
    });
    add_rows(capture_.kernels, [this](const CaptureKernel& row, v1::StoredTables& piece) {
      piece.add_kernel_name(texts_.get(row.name));
      piece.add_kernel_short_name(texts_.get(row.short_name));
    });
  }

  void add_stalls() {
    add_rows(capture_.stalls, [](const CaptureStall& row, v1::StoredTables& piece) {
      piece.add_stall_process(plus_one(row.process));
      piece.add_stall_kernel(plus_one(row.kernel));
      piece.add_stall(row.stall);
      piece.add_stall_samples(row.samples);
      piece.add_stall_idle_samples(row.idle_samples);
    });
  }

  void add_frames() {
    add_rows(capture_.frames, [this](const StackFrame& row, v1::StoredTables& piece) {
      piece.add_frame_symbol(texts_.get(row.symbol));
      piece.add_frame_module(texts_.get(row.module));
      piece.add_frame_offset_bytes(row.offset_bytes);
      piece.add_frame_address(row.address);
      piece.add_frame_file(texts_.get(row.file));
      piece.add_frame_line(row.line);
      piece.add_frame_is_inlined(row.is_inlined);
      piece.add_frame_kind(static_cast<uint32_t>(row.kind));
    });
  }

  // Pieces end by their frames too.
  void add_stacks() {
    v1::StoredTables piece;
    for (const CaptureStack& row : capture_.stacks) {
      piece.add_stack_frame_count(static_cast<uint32_t>(row.frames.size()));
      piece.add_stack_end(static_cast<uint32_t>(row.end));
      for (const uint32_t frame : row.frames) piece.add_stack_frame(frame);
      if (piece.stack_frame_size() < static_cast<int>(kStoredStackFrames) &&
          piece.stack_end_size() < static_cast<int>(kStoredBlockRows)) {
        continue;
      }
      append_piece(bytes_, StoredCapture::kTablesFieldNumber, piece);
      piece.Clear();
    }
    append_piece(bytes_, StoredCapture::kTablesFieldNumber, piece);
  }

  void add_operations() {
    add_rows(capture_.operations, [](const CaptureOperation& row, v1::StoredTables& piece) {
      piece.add_operation_parent(plus_one(row.parent));
      piece.add_operation_function(plus_one(row.function));
      for (const uint64_t dimension : row.shape) piece.add_operation_shape(dimension);
    });
    add_rows(capture_.shapes, [](const CaptureShape& row, v1::StoredTables& piece) {
      for (const uint32_t dimension : row.grid) piece.add_shape(dimension);
      for (const uint32_t dimension : row.block) piece.add_shape(dimension);
      piece.add_shape(row.shared_memory_bytes);
      piece.add_shape(row.registers_per_thread);
    });
  }

  void add_places() {
    add_rows(capture_.devices, [](const CaptureDevice& row, v1::StoredTables& piece) {
      piece.mutable_device_uuid()->append(reinterpret_cast<const char*>(row.uuid.data()),
                                          row.uuid.size());
      piece.add_device_number(row.number);
    });
    add_rows(capture_.streams, [](const CaptureStream& row, v1::StoredTables& piece) {
      piece.add_stream_process(plus_one(row.process));
      piece.add_stream_device(plus_one(row.device));
      piece.add_stream_context(row.context);
      piece.add_stream_stream(plus_one(row.stream));
    });
  }

  const Capture& capture_;
  TextNumbers& texts_;
  std::string bytes_;
};

int64_t subtract(uint64_t value, uint64_t& before) {
  return static_cast<int64_t>(value - std::exchange(before, value));
}

void append_calls(std::string& bytes, const std::vector<CaptureCall>& calls) {
  append_rows<v1::StoredCalls>(
      bytes, StoredCapture::kCallsFieldNumber, std::span<const CaptureCall>(calls),
      [](const CaptureCall& row, v1::StoredCalls& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_off_cpu_ns(row.off_cpu_ns);
        piece.add_thread(plus_one(row.thread));
        piece.add_function(plus_one(row.function));
        piece.add_stack(plus_one(row.stack));
        piece.add_depth(row.depth);
      });
}

void append_launches(std::string& bytes, int field, const std::vector<CaptureLaunch>& launches) {
  append_rows<v1::StoredLaunches>(
      bytes, field, std::span<const CaptureLaunch>(launches),
      [](const CaptureLaunch& row, v1::StoredLaunches& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_thread(plus_one(row.thread));
        piece.add_function(plus_one(row.function));
        piece.add_stack(plus_one(row.stack));
        piece.add_operation(plus_one(row.operation));
        piece.add_correlation_id(subtract(row.correlation_id, before.index));
        piece.add_match(static_cast<uint32_t>(row.match));
      });
}

void append_work(std::string& bytes, const std::vector<CaptureWork>& work) {
  append_rows<v1::StoredWork>(
      bytes, StoredCapture::kWorkFieldNumber, std::span<const CaptureWork>(work),
      [](const CaptureWork& row, v1::StoredWork& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_size_bytes(row.bytes);
        piece.add_kind(static_cast<uint32_t>(row.kind));
        piece.add_direction(row.direction);
        piece.add_kernel(plus_one(row.kernel));
        piece.add_stream(plus_one(row.stream));
        piece.add_launch(subtract(plus_one(row.launch), before.index));
        piece.add_capture_site(plus_one(row.capture_site));
        piece.add_shape(plus_one(row.shape));
        piece.add_graph_id(row.graph_id);
        piece.add_node_id(row.node_id);
      });
}

void append_waits(std::string& bytes, const std::vector<CaptureWait>& waits) {
  append_rows<v1::StoredWaits>(
      bytes, StoredCapture::kWaitsFieldNumber, std::span<const CaptureWait>(waits),
      [](const CaptureWait& row, v1::StoredWaits& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_thread(plus_one(row.thread));
        piece.add_stream(plus_one(row.stream));
        piece.add_type(row.type);
      });
}

void append_thread_times(std::string& bytes, const std::vector<CaptureThreadTime>& times) {
  append_rows<v1::StoredThreadTimes>(
      bytes, StoredCapture::kThreadTimesFieldNumber, std::span<const CaptureThreadTime>(times),
      [](const CaptureThreadTime& row, v1::StoredThreadTimes& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_thread(plus_one(row.thread));
        piece.add_state(static_cast<uint32_t>(row.state));
        piece.add_stack(plus_one(row.stack));
        piece.add_waker_pid(row.waker_pid);
        piece.add_waker_tid(row.waker_tid);
      });
}

void append_steps(std::string& bytes, const std::vector<CaptureStep>& steps) {
  append_rows<v1::StoredSteps>(
      bytes, StoredCapture::kStepsFieldNumber, std::span<const CaptureStep>(steps),
      [](const CaptureStep& row, v1::StoredSteps& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_thread(plus_one(row.thread));
        piece.add_function(plus_one(row.function));
        piece.add_phase(static_cast<uint32_t>(row.phase));
        piece.add_phase_quality(static_cast<uint32_t>(row.phase_quality));
        piece.add_duration_quality(static_cast<uint32_t>(row.duration_quality));
        piece.add_tokens(row.tokens.value);
        piece.add_tokens_quality(static_cast<uint32_t>(row.tokens.quality));
        piece.add_sequences(row.sequences.value);
        piece.add_sequences_quality(static_cast<uint32_t>(row.sequences.quality));
      });
}

std::string write_gaps(const std::vector<CaptureGap>& gaps, TextNumbers& texts) {
  std::string bytes;
  append_rows<v1::StoredGaps>(
      bytes, StoredCapture::kGapsFieldNumber, std::span<const CaptureGap>(gaps),
      [&texts](const CaptureGap& row, v1::StoredGaps& piece, Differences& before) {
        piece.add_start_mono_ns(subtract(row.start_mono_ns, before.start_ns));
        piece.add_duration_ns(row.duration_ns);
        piece.add_process(plus_one(row.process));
        piece.add_cause(texts.get(row.cause));
        piece.add_count(row.count);
      });
  return bytes;
}

void append_gpu_counters(std::string& bytes, const std::vector<GpuCounterRecord>& records) {
  append_rows<v1::StoredGpuCounters>(
      bytes, StoredCapture::kGpuCountersFieldNumber, std::span<const GpuCounterRecord>(records),
      [](const GpuCounterRecord& row, v1::StoredGpuCounters& piece, Differences& before) {
        const auto start_ns = static_cast<uint64_t>(row.window.start_mono_ns);
        piece.add_start_mono_ns(subtract(start_ns, before.start_ns));
        piece.add_duration_ns(static_cast<uint64_t>(row.window.end_mono_ns) - start_ns);
        piece.mutable_gpu_uuid()->append(reinterpret_cast<const char*>(row.uuid.data()),
                                         row.uuid.size());
        piece.add_gpu(row.gpu);
        piece.add_gpu_instance(row.gpu_instance ? *row.gpu_instance + 1 : 0);
        piece.set_counters(kGpuCounters);
        for (const auto& value : row.window.values) piece.add_value(value ? *value + 1 : 0);
      });
}

v1::StoredHead make_head(const Capture& capture, const CaptureRow& row) {
  v1::StoredHead head;
  head.set_format(kStoredFormat);
  *head.mutable_capture() = to_proto(row);
  head.mutable_capture()->set_id(capture.id);
  head.mutable_capture()->set_name(to_valid_utf8(capture.name));
  head.mutable_capture()->set_trigger(to_valid_utf8(capture.trigger));
  head.mutable_capture()->set_start_unix_ns(capture.start_unix_ns);
  head.mutable_capture()->set_duration_ns(capture.duration_ns);
  if (head.capture().name() != capture.name) head.set_raw_name(capture.name);
  if (head.capture().trigger() != capture.trigger) head.set_raw_trigger(capture.trigger);
  *head.mutable_matches() = to_proto(capture.matches);
  head.set_host(capture.host);
  head.set_version(capture.version);
  head.set_start_mono_ns(capture.start_mono_ns);
  head.mutable_counts()->set_calls(capture.calls.size());
  head.mutable_counts()->set_launches(capture.launches.size());
  head.mutable_counts()->set_work(capture.work.size());
  head.mutable_counts()->set_waits(capture.waits.size());
  head.mutable_counts()->set_gaps(capture.gaps.size());
  head.mutable_counts()->set_capture_sites(capture.capture_sites.size());
  head.mutable_counts()->set_gpu_counters(capture.gpu_counters.size());
  head.mutable_counts()->set_thread_times(capture.thread_times.size());
  head.mutable_counts()->set_steps(capture.steps.size());
  return head;
}

Status check_count(const char* what, size_t count, size_t most) {
  if (count <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{} {}: a file holds at most {}; capture for a shorter time", count, what, most));
}

Status check_sizes(const Capture& capture) {
  for (const size_t count : {capture.calls.size(), capture.launches.size(), capture.work.size(),
                             capture.waits.size(), capture.gaps.size(), capture.gpu_counters.size(),
                             capture.thread_times.size(), capture.steps.size()}) {
    RETURN_IF_ERROR(check_count("events", count, kMaxCaptureEvents));
  }
  for (const size_t count :
       {capture.processes.size(), capture.threads.size(), capture.functions.size(),
        capture.kernels.size(), capture.frames.size(), capture.stacks.size(),
        capture.operations.size(), capture.devices.size(), capture.streams.size(),
        capture.shapes.size()}) {
    RETURN_IF_ERROR(check_count("names", count, kMaxCaptureTableRows));
  }
  size_t frames = 0;
  for (const CaptureStack& stack : capture.stacks) {
    RETURN_IF_ERROR(check_count("frames of a stack", stack.frames.size(), kStoredStackFrames));
    frames += stack.frames.size();
  }
  return check_count("frames", frames, kMaxCaptureFrames);
}

}  // namespace

std::string make_capture_trailer(std::string_view bytes) {
  const auto crc = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  std::string trailer = {kStoredTrailerTag};
  for (int shift = 0; shift < 32; shift += 8) trailer.push_back(static_cast<char>(crc >> shift));
  return trailer;
}

Result<std::string> encode_capture(const Capture& capture, const CaptureRow& row) {
  RETURN_IF_ERROR(check_sizes(capture));
  RETURN_IF_ERROR(check_capture(capture));
  std::string bytes;
  append_piece(bytes, StoredCapture::kHeadFieldNumber, make_head(capture, row));
  if (bytes.size() > kCaptureHeadBytes) {
    return absl::ResourceExhaustedError("name, host or target: too long");
  }
  TextNumbers texts;
  const std::string tables = TableWriter(capture, texts).write();
  const std::string gaps = write_gaps(capture.gaps, texts);
  RETURN_IF_ERROR(check_count("bytes of names", texts.used_bytes(), kMaxCaptureTextsBytes));
  texts.append_to(bytes);
  bytes += tables;
  append_calls(bytes, capture.calls);
  append_launches(bytes, StoredCapture::kLaunchesFieldNumber, capture.launches);
  append_work(bytes, capture.work);
  append_waits(bytes, capture.waits);
  bytes += gaps;
  append_launches(bytes, StoredCapture::kCaptureSitesFieldNumber, capture.capture_sites);
  append_gpu_counters(bytes, capture.gpu_counters);
  append_thread_times(bytes, capture.thread_times);
  append_steps(bytes, capture.steps);
  RETURN_IF_ERROR(check_count("bytes", bytes.size() + kCaptureTrailerBytes, kMaxCaptureFileBytes));
  bytes += make_capture_trailer(bytes);
  return bytes;
}

}  // namespace gpuperf
