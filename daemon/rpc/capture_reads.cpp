#include "daemon/rpc/capture_reads.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/display_text.h"
#include "daemon/rpc/explain_capture.h"
#include "daemon/rpc/work_rows.h"
#include "daemon/store/capture_proto.h"
#include "daemon/view/diff.h"
#include "daemon/view/formats.h"

namespace gpuperf {
namespace {

using CapturePtr = std::shared_ptr<const Capture>;

constexpr std::string_view kRaw = "raw";
constexpr std::string_view kDiffFlamegraph = "diff-flamegraph";
constexpr size_t kMaxTitleBytes = 256;
constexpr uint32_t kDefaultRows = 100;  // as the proto says
constexpr uint32_t kMaxRows = 10'000;
// Whole stacks are long: 500 of PyTorch take 4 MiB, which is what gRPC clients accept by default
// and gpuperfctl does not mind.
constexpr size_t kMaxRowsBytes = size_t{12} << 20;

const CaptureRow* find_row_of(const Snapshot& snapshot, uint64_t id) {
  const auto found = std::ranges::find(snapshot.captures, id, &CaptureRow::id);
  return found == snapshot.captures.end() ? nullptr : &*found;
}

// Why a capture that is not stored cannot be read.
Status explain_missing(const CaptureSources& sources, uint64_t id, const Status& missing) {
  if (!absl::IsNotFound(missing)) return missing;
  const std::shared_ptr<const Snapshot> snapshot = sources.board.get();
  const CaptureRow* row = find_row_of(*snapshot, id);
  if (row == nullptr || row->state == CaptureState::kStored) return missing;
  if (row->state == CaptureState::kFailed) {
    return absl::FailedPreconditionError(fmt::format("capture {} failed: {}", id, row->problem));
  }
  return absl::FailedPreconditionError(
      fmt::format("capture {} is {}: wait until it is stored: gpuperfctl trace show {}", id,
                  get_capture_state_name(row->state), id));
}

Status check_store(const CaptureSources& sources) {
  if (sources.store != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no captures are stored: storage.path is empty or does not work; see: gpuperfctl status");
}

Result<CapturePtr> read_capture(const CaptureSources& sources, uint64_t id) {
  RETURN_IF_ERROR(check_store(sources));
  Result<CapturePtr> capture = sources.store->read(id);
  if (capture.ok()) return capture;
  return explain_missing(sources, id, capture.status());
}

// What is added up by default: an empty picture would say nothing.
ViewWeight choose_weight(v1::CaptureWeight weight, bool has_gpu_work) {
  if (weight == v1::CAPTURE_WEIGHT_OFF_CPU_TIME) return ViewWeight::kOffCpuTime;
  const bool is_cpu = weight == v1::CAPTURE_WEIGHT_CPU_TIME ||
                      (weight == v1::CAPTURE_WEIGHT_UNSPECIFIED && !has_gpu_work);
  return is_cpu ? ViewWeight::kCpuTime : ViewWeight::kGpuTime;
}

ViewOptions make_options(ViewWeight weight, const v1::PathOptions& path, const std::string& title) {
  return {.weight = weight,
          .path = {.with_process = path.per_process(),
                   .with_thread = path.per_thread(),
                   .with_lines = path.lines(),
                   .with_operations = !path.without_operations(),
                   .with_interpreter = path.interpreter_frames()},
          .title = title,
          .by_capture_site = path.by_capture_site(),
          .with_stalls = true};
}

Result<RenderedCapture> render_diff(const CaptureSources& sources,
                                    const v1::FetchCaptureRequest& request) {
  ASSIGN_OR_RETURN(const CapturePtr before, read_capture(sources, request.before_id()));
  ASSIGN_OR_RETURN(const CapturePtr after, read_capture(sources, request.id()));
  return RenderedCapture{.bytes = render_diff_flamegraph(
                             *before, *after,
                             make_options(choose_weight(request.weight(), !before->work.empty() ||
                                                                              !after->work.empty()),
                                          request.path(), request.title())),
                         .suffix = "svg",
                         .media_type = "image/svg+xml"};
}

Result<RenderedCapture> read_raw(const CaptureSources& sources, uint64_t id) {
  RETURN_IF_ERROR(check_store(sources));
  Result<std::string> bytes = sources.store->read_bytes(id);
  if (!bytes.ok()) return explain_missing(sources, id, bytes.status());
  return RenderedCapture{
      .bytes = *std::move(bytes), .suffix = "capture", .media_type = "application/x-protobuf"};
}

size_t get_limit(uint32_t limit) { return limit == 0 ? kDefaultRows : std::min(limit, kMaxRows); }

void fill_row(const WorkRow& row, uint64_t total_ns, v1::CaptureWorkRow& message) {
  message.set_name(to_valid_utf8(row.name));
  for (const std::string& frame : row.path) message.add_path(to_valid_utf8(frame));
  message.set_gpu_ns(row.gpu_ns);
  if (total_ns > 0) {
    message.set_share_ratio(static_cast<double>(row.gpu_ns) / static_cast<double>(total_ns));
  }
  message.set_work(row.work);
  message.set_launches(row.launches);
  message.set_min_ns(row.min_ns);
  message.set_avg_ns(row.work == 0 ? 0 : row.gpu_ns / row.work);
  message.set_max_ns(row.max_ns);
  message.set_bytes(row.bytes);
  for (const std::string& kernel : row.top_kernels) message.add_top_kernels(to_valid_utf8(kernel));
}

Result<WorkGrouping> find_grouping(v1::CaptureGrouping by) {
  switch (by) {
    case v1::CAPTURE_GROUPING_UNSPECIFIED:
    case v1::CAPTURE_GROUPING_KERNEL:
      return WorkGrouping::kKernel;
    case v1::CAPTURE_GROUPING_OPERATOR:
      return WorkGrouping::kOperator;
    case v1::CAPTURE_GROUPING_STACK:
      return WorkGrouping::kStack;
    case v1::CAPTURE_GROUPING_LINE:
      return WorkGrouping::kLine;
    case v1::CAPTURE_GROUPING_LIBRARY:
      return WorkGrouping::kLibrary;
    default:
      return absl::InvalidArgumentError(fmt::format("by: {} is no CaptureGrouping", int{by}));
  }
}

Result<DiffOptions> make_diff_options(const v1::DiffCapturesRequest& request, bool has_gpu_work) {
  DiffOptions options = {
      .view = make_options(choose_weight(request.weight(), has_gpu_work), request.path(), "")};
  if (!v1::CaptureDiffBy_IsValid(request.by())) {
    return absl::InvalidArgumentError(fmt::format("by: {} is no CaptureDiffBy", int{request.by()}));
  }
  if (!v1::CaptureDiffScale_IsValid(request.scale())) {
    return absl::InvalidArgumentError(
        fmt::format("scale: {} is no CaptureDiffScale", int{request.scale()}));
  }
  if (request.by() == v1::CAPTURE_DIFF_BY_FRAME) options.by = DiffBy::kFrame;
  if (request.by() == v1::CAPTURE_DIFF_BY_KERNEL) options.by = DiffBy::kKernel;
  if (request.by() == v1::CAPTURE_DIFF_BY_STALL) options.by = DiffBy::kStall;
  options.view.with_stalls = options.by == DiffBy::kStall;
  if (request.scale() == v1::CAPTURE_DIFF_SCALE_ABSOLUTE) options.scale = DiffScale::kAbsolute;
  if (request.scale() == v1::CAPTURE_DIFF_SCALE_SHARE) options.scale = DiffScale::kShare;
  return options;
}

void fill_row(const DiffRow& row, v1::CaptureDiffRow& message) {
  message.set_name(to_valid_utf8(row.name));
  message.set_path(to_valid_utf8(row.path));
  message.set_before_ns(row.before_ns);
  message.set_after_ns(row.after_ns);
  message.set_delta_ns(row.delta_ns);
  message.set_explained_ns(row.explained_ns);
  message.set_before_count(row.before_count);
  message.set_after_count(row.after_count);
}

}  // namespace

Status get_capture(const CaptureSources& sources, uint64_t id, v1::GetCaptureResponse& response) {
  const std::shared_ptr<const Snapshot> snapshot = sources.board.get();
  const CaptureRow* row = find_row_of(*snapshot, id);
  if (row != nullptr && row->state != CaptureState::kStored) {
    *response.mutable_capture() = to_proto(*row);
    return absl::OkStatus();
  }
  Result<CaptureHead> head = absl::NotFoundError(
      fmt::format("capture {}: not found; list captures: gpuperfctl trace list", id));
  // Also without a row: the snapshot may be older than the file.
  if (sources.store != nullptr) head = sources.store->read_head(id);
  if (head.ok()) {
    *response.mutable_capture() = to_proto(head->row);
    *response.mutable_matches() = to_proto(head->matches);
    return absl::OkStatus();
  }
  if (row == nullptr || absl::IsNotFound(head.status())) return head.status();
  *response.mutable_capture() = to_proto(*row);  // its file has been damaged since
  return absl::OkStatus();
}

Status check_fetch(const v1::FetchCaptureRequest& request) {
  if (request.title().size() > kMaxTitleBytes) {
    return absl::InvalidArgumentError(
        fmt::format("title: {} bytes; at most {}", request.title().size(), kMaxTitleBytes));
  }
  if (!v1::CaptureWeight_IsValid(request.weight())) {
    return absl::InvalidArgumentError(
        fmt::format("weight: {} is no CaptureWeight", int{request.weight()}));
  }
  const bool is_diff = request.format() == kDiffFlamegraph;
  if (is_diff != (request.before_id() != 0)) {
    return absl::InvalidArgumentError("before_id: goes with the format diff-flamegraph, and only");
  }
  std::string names = fmt::format("{}, {}", kRaw, kDiffFlamegraph);
  if (is_diff || request.format() == kRaw) return absl::OkStatus();
  for (const ViewFormat& format : list_view_formats()) {
    if (format.name == request.format()) return absl::OkStatus();
    names += fmt::format(", {}", format.name);
  }
  return absl::InvalidArgumentError(
      fmt::format("format: unknown format \"{}\"; formats: {}", request.format(), names));
}

Result<RenderedCapture> render_capture(const CaptureSources& sources,
                                       const v1::FetchCaptureRequest& request) {
  if (request.format() == kRaw) return read_raw(sources, request.id());
  if (request.format() == kDiffFlamegraph) return render_diff(sources, request);
  ASSIGN_OR_RETURN(const CapturePtr capture, read_capture(sources, request.id()));
  RenderedCapture rendered;
  ASSIGN_OR_RETURN(rendered.bytes,
                   render_view(*capture, request.format(),
                               make_options(choose_weight(request.weight(), !capture->work.empty()),
                                            request.path(), request.title())));
  for (const ViewFormat& format : list_view_formats()) {
    if (format.name != request.format()) continue;
    rendered.suffix = format.suffix;
    rendered.media_type = format.media_type;
  }
  return rendered;
}

Result<v1::SummariseCaptureResponse> summarise_capture(const CaptureSources& sources,
                                                       const v1::SummariseCaptureRequest& request) {
  ASSIGN_OR_RETURN(const WorkGrouping by, find_grouping(request.by()));
  ASSIGN_OR_RETURN(const CapturePtr capture, read_capture(sources, request.id()));
  const auto [rows, estimated_work] =
      list_work_rows(*capture, {.by = by,
                                .kernel = request.kernel(),
                                .short_names = request.short_names(),
                                .module = request.module(),
                                .depth = std::max(request.depth(), 1u),
                                .interpreter_frames = request.interpreter_frames()});
  uint64_t total_ns = 0;
  for (const WorkRow& row : rows) total_ns += row.gpu_ns;
  v1::SummariseCaptureResponse response;
  response.set_total_rows(rows.size());
  response.set_total_gpu_ns(total_ns);
  response.set_estimated_work(estimated_work);
  size_t bytes = 0;
  for (size_t i = 0; i < std::min(rows.size(), get_limit(request.limit())); ++i) {
    if (bytes > kMaxRowsBytes) break;
    v1::CaptureWorkRow& row = *response.add_rows();
    fill_row(rows[i], total_ns, row);
    bytes += row.ByteSizeLong();
  }
  return response;
}

Result<v1::ExplainCaptureResponse> explain_stored_capture(
    const CaptureSources& sources, const v1::ExplainCaptureRequest& request) {
  ASSIGN_OR_RETURN(const CapturePtr capture, read_capture(sources, request.id()));
  return explain_capture(*capture, request);
}

Result<v1::DiffCapturesResponse> diff_stored_captures(const CaptureSources& sources,
                                                      const v1::DiffCapturesRequest& request) {
  ASSIGN_OR_RETURN(const CapturePtr before, read_capture(sources, request.before_id()));
  ASSIGN_OR_RETURN(const CapturePtr after, read_capture(sources, request.after_id()));
  ASSIGN_OR_RETURN(const DiffOptions options,
                   make_diff_options(request, !before->work.empty() || !after->work.empty()));
  const std::vector<DiffRow> rows = diff_captures(*before, *after, options);
  v1::DiffCapturesResponse response;
  response.set_total_rows(rows.size());
  response.set_before_duration_ns(before->duration_ns);
  response.set_after_duration_ns(after->duration_ns);
  size_t bytes = 0;
  for (size_t i = 0; i < std::min(rows.size(), get_limit(request.limit())); ++i) {
    if (bytes > kMaxRowsBytes) break;
    v1::CaptureDiffRow& row = *response.add_rows();
    fill_row(rows[i], row);
    bytes += row.ByteSizeLong();
  }
  return response;
}

}  // namespace gpuperf
