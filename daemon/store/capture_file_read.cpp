#include <spdlog/fmt/fmt.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/store/capture_file.h"
#include "daemon/store/capture_layout.h"
#include "daemon/store/capture_proto.h"
#include "daemon/store/capture_reader.h"
#include "gpuperf/v1/stored_capture.pb.h"

namespace gpuperf {
namespace {

using v1::StoredCapture;
using Piece = CaptureReader::Piece;

Status damaged(std::string_view why) { return make_damage_error(why); }

std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 35 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The first piece, taken off `bytes`. nullopt = there is no whole one.
std::optional<Piece> take_piece(std::string_view& bytes) {
  std::string_view rest = bytes;
  const std::optional<uint64_t> tag = take_varint(rest);
  if (!tag || (*tag & 7) != 2) return std::nullopt;
  const std::optional<uint64_t> length = take_varint(rest);
  if (!length || *length > kStoredPieceBytes || *length > rest.size()) return std::nullopt;
  const Piece piece = {.field = static_cast<int>(*tag >> 3), .bytes = rest.substr(0, *length)};
  bytes = rest.substr(*length);
  return piece;
}

Result<v1::StoredHead> read_head(std::string_view& bytes) {
  const std::optional<Piece> piece = take_piece(bytes);
  v1::StoredHead head;
  if (!piece || piece->field != StoredCapture::kHeadFieldNumber ||
      !head.ParseFromArray(piece->bytes.data(), static_cast<int>(piece->bytes.size()))) {
    return damaged("it does not begin as one");
  }
  if (head.format() != kStoredFormat) {
    return damaged(
        fmt::format("its layout is {}, and this gpuperfd reads {}", head.format(), kStoredFormat));
  }
  return head;
}

}  // namespace

Status make_damage_error(std::string_view why) {
  return absl::DataLossError(fmt::format("no capture, or a damaged one: {}", why));
}

void CaptureReader::take_head(const v1::StoredHead& head) {
  const v1::Capture& row = head.capture();
  capture_.id = row.id();
  capture_.name = head.raw_name().empty() ? row.name() : head.raw_name();
  capture_.trigger = head.raw_trigger().empty() ? row.trigger() : head.raw_trigger();
  capture_.host = head.host();
  capture_.version = head.version();
  capture_.start_unix_ns = row.start_unix_ns();
  capture_.start_mono_ns = head.start_mono_ns();
  capture_.duration_ns = row.duration_ns();
  capture_.matches = from_proto(head.matches());
  counts_ = head.counts();
  reserve(capture_.calls, counts_.calls(), 7);
  reserve(capture_.launches, counts_.launches(), 8);
  reserve(capture_.work, counts_.work(), 12);
  reserve(capture_.waits, counts_.waits(), 5);
  reserve(capture_.gaps, counts_.gaps(), 5);
  reserve(capture_.capture_sites, counts_.capture_sites(), 8);
  reserve(capture_.gpu_counters, counts_.gpu_counters(), 20);  // a UUID, and four columns
  reserve(capture_.thread_times, counts_.thread_times(), 7);
  reserve(capture_.steps, counts_.steps(), 11);
}

void CaptureReader::take(const Piece& piece) {
  switch (piece.field) {
    case StoredCapture::kTextsFieldNumber: {
      v1::StoredTexts texts;
      if (parse(piece, texts)) take_texts(texts);
      return;
    }
    case StoredCapture::kTablesFieldNumber:
      if (!parse(piece, tables_)) return;
      take_processes(tables_);
      take_names(tables_);
      take_frames(tables_);
      take_stacks(tables_);
      take_operations(tables_);
      take_places(tables_);
      take_stalls(tables_);
      return;
    case StoredCapture::kCallsFieldNumber:
      if (parse(piece, calls_)) take_calls(calls_);
      return;
    case StoredCapture::kLaunchesFieldNumber:
      if (parse(piece, launches_)) take_launches(launches_, capture_.launches);
      return;
    case StoredCapture::kCaptureSitesFieldNumber:
      if (parse(piece, launches_)) take_launches(launches_, capture_.capture_sites);
      return;
    case StoredCapture::kWorkFieldNumber:
      if (parse(piece, work_)) take_work(work_);
      return;
    case StoredCapture::kWaitsFieldNumber: {
      v1::StoredWaits waits;
      if (parse(piece, waits)) take_waits(waits);
      return;
    }
    case StoredCapture::kGapsFieldNumber: {
      v1::StoredGaps gaps;
      if (parse(piece, gaps)) take_gaps(gaps);
      return;
    }
    case StoredCapture::kGpuCountersFieldNumber: {
      v1::StoredGpuCounters counters;
      if (parse(piece, counters)) take_gpu_counters(counters);
      return;
    }
    case StoredCapture::kThreadTimesFieldNumber:
      if (parse(piece, thread_times_)) take_thread_times(thread_times_);
      return;
    case StoredCapture::kStepsFieldNumber: {
      v1::StoredSteps steps;
      if (parse(piece, steps)) take_steps(steps);
      return;
    }
    default:  // a later version's: nothing this one shows
      return;
  }
}

Result<Capture> CaptureReader::finish() {
  const bool is_complete =
      capture_.calls.size() == counts_.calls() && capture_.launches.size() == counts_.launches() &&
      capture_.work.size() == counts_.work() && capture_.waits.size() == counts_.waits() &&
      capture_.gaps.size() == counts_.gaps() &&
      capture_.capture_sites.size() == counts_.capture_sites() &&
      capture_.gpu_counters.size() == counts_.gpu_counters() &&
      capture_.thread_times.size() == counts_.thread_times() &&
      capture_.steps.size() == counts_.steps();
  if (!is_complete) fail("fewer or more events than it says");
  RETURN_IF_ERROR(problem_);
  if (const Status checked = check_capture(capture_); !checked.ok()) {
    return damaged(std::string(checked.message()));
  }
  return std::move(capture_);
}

Result<CaptureHead> decode_capture_head(std::string_view beginning) {
  ASSIGN_OR_RETURN(const v1::StoredHead head, read_head(beginning));
  CaptureHead read = {.row = from_proto(head.capture()), .matches = from_proto(head.matches())};
  read.row.state = CaptureState::kStored;
  return read;
}

Result<Capture> decode_capture(std::string_view bytes) {
  if (bytes.size() > kMaxCaptureFileBytes) return damaged("too large for a capture file");
  if (bytes.size() < kCaptureTrailerBytes) return damaged("it ends before its beginning does");
  std::string_view rest = bytes.substr(0, bytes.size() - kCaptureTrailerBytes);
  if (bytes.substr(rest.size()) != make_capture_trailer(rest)) {
    return damaged("its checksum does not match: it was truncated or changed");
  }
  ASSIGN_OR_RETURN(const v1::StoredHead head, read_head(rest));
  CaptureReader reader(bytes.size());
  reader.take_head(head);
  int last_field = StoredCapture::kHeadFieldNumber;
  while (!rest.empty()) {
    const std::optional<Piece> piece = take_piece(rest);
    if (!piece || piece->field < last_field || piece->field == StoredCapture::kHeadFieldNumber) {
      return damaged("its pieces are not those of a capture");
    }
    last_field = piece->field;
    reader.take(*piece);
  }
  return reader.finish();
}

}  // namespace gpuperf
