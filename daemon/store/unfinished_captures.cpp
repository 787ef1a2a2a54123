#include "daemon/store/unfinished_captures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/store/whole_file.h"

namespace gpuperf {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxListBytes = 1 << 16;  // at most ten captures run or are built at once
constexpr size_t kMaxCaptures = 100;
constexpr uint64_t kMaxId = uint64_t{1} << 53;  // none is ever reached
constexpr const char* kLost =
    "gpuperfd stopped while it ran, and what it held is lost; start it again";

Json to_json(const CaptureRow& row) {
  return {{"id", row.id},
          {"name", row.name},
          {"trigger", row.trigger},
          {"pid", row.target.pid},
          {"with_children", row.target.with_children},
          {"container", row.target.container},
          {"pod", row.target.pod},
          {"start_unix_ns", row.start_unix_ns},
          {"requester_uid", row.requester_uid}};
}

// Throws what nlohmann::json throws where a value is missing or of another kind.
CaptureRow to_row(const Json& object) {
  return {.id = object.at("id").get<uint64_t>(),
          .name = object.at("name").get<std::string>(),
          .trigger = object.at("trigger").get<std::string>(),
          .target = {.pid = object.at("pid").get<uint32_t>(),
                     .with_children = object.at("with_children").get<bool>(),
                     .container = object.at("container").get<std::string>(),
                     .pod = object.at("pod").get<std::string>()},
          .state = CaptureState::kFailed,
          .problem = kLost,
          .start_unix_ns = object.at("start_unix_ns").get<uint64_t>(),
          .requester_uid = object.at("requester_uid").get<uint32_t>()};
}

}  // namespace

Status write_unfinished_captures(const std::string& path, const UnfinishedCaptures& unfinished) {
  Json list = Json::array();
  for (const CaptureRow& row : unfinished.captures) list.push_back(to_json(row));
  const Json object = {{"last_id", unfinished.last_id}, {"captures", list}};
  return write_whole_file(path, object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<UnfinishedCaptures> read_unfinished_captures(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file_beginning(path, kMaxListBytes));
  const Status damaged =
      absl::InvalidArgumentError(path + ": not a list of unfinished captures; it is written anew");
  UnfinishedCaptures unfinished;
  try {
    const Json object = Json::parse(text);
    unfinished.last_id = object.at("last_id").get<uint64_t>();
    for (const Json& capture : object.at("captures")) {
      if (unfinished.captures.size() == kMaxCaptures) break;
      unfinished.captures.push_back(to_row(capture));
    }
  } catch (const Json::exception&) {
    return damaged;
  }
  const auto has_bad_id = [](const CaptureRow& row) { return row.id == 0 || row.id > kMaxId; };
  if (unfinished.last_id > kMaxId || std::ranges::any_of(unfinished.captures, has_bad_id)) {
    return damaged;
  }
  return unfinished;
}

}  // namespace gpuperf
