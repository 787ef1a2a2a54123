#include "daemon/inject/cdi_spec.h"

#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "daemon/store/whole_file.h"

namespace gpuperf {
namespace {

using Json = nlohmann::ordered_json;

constexpr mode_t kReadableByAll = 0644;  // users without root run containers too
constexpr size_t kMaxBytes = 65'536;     // ours has some 900

// Whether the text is a specification of ours, of whatever version.
bool is_ours(const std::string& text) {
  const Json spec = Json::parse(text, nullptr, false);
  return spec.is_object() && spec.contains("kind") && spec["kind"] == std::string(kInjectResource);
}

Status make_folder(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  if (folder.empty() || mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return errno_status(errno, folder + ": make folder");
}

}  // namespace

std::string render_cdi_spec(const ContainerEdits& edits) {
  Json environment = Json::array();
  for (const auto& [name, value] : edits.environment) environment.push_back(name + "=" + value);
  Json mounts = Json::array();
  for (const ContainerEdits::Mount& mount : edits.mounts) {
    mounts.push_back({{"hostPath", mount.host_path},
                      {"containerPath", mount.container_path},
                      {"options", {"ro", "nosuid", "nodev", "bind"}}});
  }
  Json device = {{"name", "all"}};
  device["containerEdits"] = {{"env", std::move(environment)}, {"mounts", std::move(mounts)}};
  // The oldest version that has all of this: older runtimes read it too.
  const Json spec = {{"cdiVersion", "0.3.0"},
                     {"kind", std::string(kInjectResource)},
                     {"devices", Json::array({std::move(device)})}};
  return spec.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_cdi_spec(const std::string& path, const std::string& text) {
  RETURN_IF_ERROR(make_folder(path));
  const Result<std::string> present = read_file_beginning(path, kMaxBytes);
  if (present.ok() && *present == text) return absl::OkStatus();
  if (!present.ok() && !absl::IsNotFound(present.status())) return present.status();
  if (present.ok() && !is_ours(*present)) {
    return absl::AlreadyExistsError(path + ": is not a file of gpuperf and was left alone; give " +
                                    "ingest.cdi_spec another name");
  }
  return write_whole_file(path, text, kReadableByAll);
}

}  // namespace gpuperf
