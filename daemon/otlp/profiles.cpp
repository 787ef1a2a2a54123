#include "daemon/otlp/profiles.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/model/display_text.h"
#include "daemon/model/session_names.h"
#include "daemon/otlp/ids.h"
#include "daemon/otlp/profile_tables.h"
#include "daemon/view/rows.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb.h"

namespace gpuperf::otlp {
namespace {

using ExportProfiles =
    ::opentelemetry::proto::collector::profiles::v1development::ExportProfilesServiceRequest;

constexpr std::array kWeights = {ViewWeight::kGpuTime, ViewWeight::kCpuTime,
                                 ViewWeight::kOffCpuTime};
// A sample: its header, a stack, four attributes and a value.
constexpr size_t kSampleBytes = 6 + 6 + 6 + 4 * 5 + 6 + 10;

struct WeightedRow {
  ViewWeight weight;
  SampleRow row;
};

// Of one kind and process there is one profile, so they come together.
auto get_place(const WeightedRow& entry) { return std::pair(entry.row.process, entry.weight); }

class RequestWriter {
 public:
  RequestWriter(const Capture& capture, const Origin& origin, std::string_view host_id,
                size_t max_bytes)
      : capture_(capture),
        origin_(origin),
        host_id_(host_id),
        max_bytes_(max_bytes),
        paths_(capture, {.with_lines = true}),
        source_(capture) {}

  std::vector<Request> write() {
    for (const WeightedRow& entry : list_rows()) {
      if (tables_ == nullptr) begin_request();
      if (profile_ == nullptr || get_place(entry) != place_) begin_profile(entry);
      add_sample(entry.row);
      if (bytes_ + tables_->bytes() >= max_bytes_) close();
    }
    close();
    return std::move(requests_);
  }

 private:
  std::vector<WeightedRow> list_rows() {
    std::vector<WeightedRow> rows;
    for (const ViewWeight weight : kWeights) {
      const ViewOptions options{.weight = weight, .path = {.with_lines = true}};
      for (const SampleRow& row : list_samples(capture_, options, paths_)) {
        if (row.time_ns > 0) rows.push_back({weight, row});
      }
    }
    std::ranges::stable_sort(rows, {}, get_place);
    return rows;
  }

  void begin_request() {
    tables_ = std::make_unique<ProfileTables>(paths_, source_, *request_.mutable_dictionary());
  }

  void begin_profile(const WeightedRow& entry) {
    if (profile_ == nullptr || entry.row.process != place_.first) begin_process(entry.row.process);
    place_ = get_place(entry);
    auto& scope = *request_.mutable_resource_profiles(request_.resource_profiles_size() - 1)
                       ->mutable_scope_profiles(0);
    profile_ = scope.add_profiles();
    ++items_;
    set_type(*profile_->mutable_sample_type(), entry.weight);
    set_type(*profile_->mutable_period_type(), entry.weight);
    profile_->set_period(1);  // every nanosecond is in it: nothing is sampled
    profile_->set_time_unix_nano(capture_.start_unix_ns);
    profile_->set_duration_nano(capture_.duration_ns);
    profile_->set_profile_id(make_id(0) + make_id(1));
    bytes_ += profile_->ByteSizeLong();
  }

  void begin_process(uint32_t index) {
    auto& added = *request_.add_resource_profiles();
    *added.mutable_resource() = origin_.resource;
    if (const CaptureProcess* process = find_row(capture_.processes, index)) {
      add_process(*added.mutable_resource(), process->process, process->owner);
      add_service_name(process->owner, *added.mutable_resource());
    }
    *added.add_scope_profiles()->mutable_scope() = origin_.scope;
    bytes_ += added.ByteSizeLong();
  }

  // What a profile is of is found by this everywhere. A name that was configured stands.
  static void add_service_name(const Owner& owner, resource::Resource& resource) {
    for (const auto& attribute : resource.attributes()) {
      if (attribute.key() == kServiceName) return;
    }
    add_text(resource, kServiceName, to_valid_utf8(owner.comm));
  }

  void set_type(profiles::ValueType& type, ViewWeight weight) {
    type.set_type_strindex(tables_->find_text(get_time_name(weight)));
    type.set_unit_strindex(tables_->find_text("nanoseconds"));
  }

  std::string make_id(uint64_t half) const {
    const CaptureProcess* process = find_row(capture_.processes, place_.first);
    const ProcessKey key = process == nullptr ? ProcessKey() : process->process;
    return IdHash(half)
        .add(host_id_)
        .add(capture_.start_unix_ns)
        .add(key.pid)
        .add(key.start_boot_ns)
        .add(static_cast<uint64_t>(place_.second))
        .add(requests_.size())  // a profile that goes on is another one
        .take();
  }

  void add_sample(const SampleRow& row) {
    profiles::Sample& sample = *profile_->add_samples();
    sample.set_stack_index(tables_->find_stack(row.path, row.gpu_frame));
    sample.add_values(static_cast<int64_t>(row.time_ns));
    bytes_ += kSampleBytes;
    const CaptureWork* work = find_row(capture_.work, row.work);
    const CaptureStream* stream =
        work == nullptr ? nullptr : find_row(capture_.streams, work->stream);
    if (stream == nullptr) return;
    if (const CaptureDevice* device = find_row(capture_.devices, stream->device)) {
      sample.add_attribute_indices(
          tables_->find_text_attribute("gpuperf.gpu.uuid", format_gpu_uuid(device->uuid)));
      sample.add_attribute_indices(
          tables_->find_number_attribute("gpuperf.gpu.device", device->number));
    }
    if (stream->stream != UINT32_MAX) {
      sample.add_attribute_indices(
          tables_->find_number_attribute("gpuperf.gpu.stream", stream->stream));
    }
  }

  void close() {
    if (items_ > 0) requests_.push_back({.bytes = request_.SerializeAsString(), .items = items_});
    request_.Clear();
    tables_.reset();
    profile_ = nullptr;
    bytes_ = items_ = 0;
  }

  const Capture& capture_;
  const Origin& origin_;
  const std::string_view host_id_;
  const size_t max_bytes_;
  PathTable paths_;
  const SourceFrames source_;
  std::vector<Request> requests_;
  // The one being written.
  ExportProfiles request_;
  std::unique_ptr<ProfileTables> tables_;
  profiles::Profile* profile_ = nullptr;  // null = none yet
  std::pair<uint32_t, ViewWeight> place_;
  size_t bytes_ = 0;  // beside the tables
  size_t items_ = 0;
};

}  // namespace

std::vector<Request> make_profile_requests(const Capture& capture, const Origin& origin,
                                           std::string_view host_id, size_t max_bytes) {
  return RequestWriter(capture, origin, host_id, max_bytes).write();
}

}  // namespace gpuperf::otlp
