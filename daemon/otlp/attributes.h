#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/model/display_text.h"
#include "daemon/model/function.h"
#include "opentelemetry/proto/common/v1/common.pb.h"
#include "opentelemetry/proto/resource/v1/resource.pb.h"

namespace gpuperf::otlp {

namespace common = ::opentelemetry::proto::common::v1;
namespace resource = ::opentelemetry::proto::resource::v1;

// What is not known is not said: nothing is added for an empty text.
template <typename Message>
void add_text(Message& message, std::string_view key, std::string value) {
  if (value.empty()) return;
  common::KeyValue& added = *message.add_attributes();
  added.set_key(std::string(key));
  added.mutable_value()->set_string_value(std::move(value));
}

template <typename Message>
void add_number(Message& message, std::string_view key, uint64_t value) {
  common::KeyValue& added = *message.add_attributes();
  added.set_key(std::string(key));
  added.mutable_value()->set_int_value(static_cast<int64_t>(value));
}

template <typename Message>
void add_flag(Message& message, std::string_view key, bool value) {
  common::KeyValue& added = *message.add_attributes();
  added.set_key(std::string(key));
  added.mutable_value()->set_bool_value(value);
}

inline constexpr const char* kServiceName = "service.name";

// Whose it is.
template <typename Message>
void add_process(Message& message, const ProcessKey& process, const Owner& owner) {
  add_number(message, "process.pid", process.pid);
  add_text(message, "process.executable.name", to_valid_utf8(owner.comm));
  add_text(message, "container.id", to_valid_utf8(owner.container));
  add_text(message, "k8s.pod.name", to_valid_utf8(owner.pod));
  add_text(message, "k8s.namespace.name", to_valid_utf8(owner.pod_namespace));
  add_text(message, "gpuperf.slurm.job", to_valid_utf8(owner.slurm_job));
  add_text(message, "gpuperf.slurm.rank", to_valid_utf8(owner.slurm_rank));
}

// Who says it, the same in every message.
struct Origin {
  resource::Resource resource;
  common::InstrumentationScope scope;
};
Origin make_origin(const std::map<std::string, std::string>& attributes, std::string_view version);

}  // namespace gpuperf::otlp
