#include "daemon/config/config_merge.h"

#include <unordered_map>
#include <utility>

#include "daemon/config/error_text.h"
#include "daemon/config/probe_config.h"

namespace gpuperf {
namespace {

struct MergePlace {
  std::string path = "$";
  bool is_section = false;  // its members are probes
};

void merge_members(JsonObject& base, const JsonObject& over, const MergePlace& place,
                   const OnMerged& on_merged) {
  std::unordered_map<std::string, size_t> index_of;
  for (size_t i = 0; i < base.size(); ++i) index_of.emplace(base[i].key, i);
  for (const JsonMember& member : over) {
    const std::string path = json_child_path(place.path, member.key);
    const auto [found, is_new] = index_of.emplace(member.key, base.size());
    if (is_new) {
      on_merged(path, nullptr, member.value);
      base.push_back(member);
      continue;
    }
    JsonNode& known = base[found->second].value;
    const auto* inner = std::get_if<JsonObject>(&member.value.value);
    if (inner && place.is_section && std::holds_alternative<std::string>(known.value)) {
      JsonNode symbol = std::move(known);
      known.value = JsonObject{{"symbol", std::move(symbol)}};
    }
    if (auto* known_object = std::get_if<JsonObject>(&known.value); known_object && inner) {
      const bool is_section = place.path == "$" && find_section_category(member.key);
      merge_members(*known_object, *inner, {path, is_section}, on_merged);
      continue;
    }
    on_merged(path, &known, member.value);
    known = member.value;
  }
}

}  // namespace

void merge_config(JsonObject& base, const JsonObject& over, const OnMerged& on_merged) {
  merge_members(base, over, {}, on_merged);
}

void ConfigMerge::add(const JsonObject& document, const std::string& file) {
  merge_config(root_, document,
               [&](const std::string& path, const JsonNode* before, const JsonNode& after) {
                 if (before && !(*before == after)) {
                   conflicts_.push_back({path,
                                         "is " + describe_node(after) + " here and " +
                                             describe_node(*before) + " in " + find_file(path) +
                                             "; the value here is used",
                                         "set it in one of the two files only", file});
                 }
                 file_of_[path] = file;
               });
}

std::string ConfigMerge::find_file(std::string_view path) const {
  while (!path.empty()) {
    if (const auto found = file_of_.find(path); found != file_of_.end()) return found->second;
    const size_t end = path.find_last_of(".[");
    path = path.substr(0, end == path.npos ? 0 : end);
  }
  return {};
}

}  // namespace gpuperf
