#include "daemon/otlp/profile_tables.h"

#include <absl/strings/string_view.h>

#include "daemon/model/display_text.h"

namespace gpuperf::otlp {
namespace {

// What a row without texts takes at most: five fields of a tag and five bytes, and its header.
constexpr size_t kRowBytes = 5 * 6 + 6;
constexpr size_t kIndexBytes = 5;

// As semantic conventions name kinds of frames; empty = none of them.
std::string_view get_frame_type(FrameKind kind) {
  switch (kind) {
    case FrameKind::kPython:
      return "cpython";
    case FrameKind::kNative:
    case FrameKind::kCuda:
      return "native";
    case FrameKind::kMark:
    case FrameKind::kKernel:
    case FrameKind::kTransfer:
      return "";
  }
  return "";
}

}  // namespace

ProfileTables::ProfileTables(const PathTable& paths, const SourceFrames& source,
                             profiles::ProfilesDictionary& dictionary)
    : paths_(paths), source_(source), dictionary_(dictionary) {
  dictionary_.add_mapping_table();
  dictionary_.add_location_table();
  dictionary_.add_function_table();
  dictionary_.add_link_table();
  dictionary_.add_attribute_table();
  dictionary_.add_stack_table();
  find_text("");
}

int32_t ProfileTables::find_text(std::string_view text) {
  // Debian's Abseil has a string_view of its own.
  const auto found = texts_.find(absl::string_view(text.data(), text.size()));
  if (found != texts_.end()) return found->second;
  std::string valid = to_valid_utf8(text);
  const auto [same, is_new] = texts_.try_emplace(valid, dictionary_.string_table_size());
  const int32_t index = same->second;
  if (is_new) {
    bytes_ += kRowBytes + valid.size();
    dictionary_.add_string_table(std::move(valid));
  }
  texts_.try_emplace(std::string(text), index);
  return index;
}

int32_t ProfileTables::find_function(std::string_view name, std::string_view file) {
  const std::pair key(find_text(name), find_text(file));
  const auto [found, is_new] = functions_.try_emplace(key, dictionary_.function_table_size());
  if (is_new) {
    profiles::Function& function = *dictionary_.add_function_table();
    function.set_name_strindex(key.first);
    function.set_system_name_strindex(key.first);
    function.set_filename_strindex(key.second);
    bytes_ += kRowBytes;
  }
  return found->second;
}

int32_t ProfileTables::find_mapping(std::string_view module) {
  if (module.empty()) return 0;
  const int32_t text = find_text(module);
  const auto [found, is_new] = mappings_.try_emplace(text, dictionary_.mapping_table_size());
  if (is_new) {
    dictionary_.add_mapping_table()->set_filename_strindex(text);
    bytes_ += kRowBytes;
  }
  return found->second;
}

int32_t ProfileTables::find_location(uint32_t frame) {
  if (frame >= location_of_frame_.size()) location_of_frame_.resize(paths_.count_frames());
  if (location_of_frame_[frame] != 0) return location_of_frame_[frame];
  const std::string& text = paths_.get_text(frame);
  const StackFrame* row = source_.find(text);
  const int32_t function =
      row == nullptr ? find_function(text, "") : find_function(get_function_name(*row), row->file);
  const int32_t mapping = row == nullptr ? 0 : find_mapping(row->module);
  const uint32_t line = row == nullptr ? 0 : row->line;
  const std::string_view type = get_frame_type(paths_.get_kind(frame));
  const int32_t attribute = type.empty() ? 0 : find_text_attribute("profile.frame.type", type);
  const auto [found, is_new] = locations_.try_emplace({function, mapping, line, attribute},
                                                      dictionary_.location_table_size());
  if (is_new) {
    profiles::Location& location = *dictionary_.add_location_table();
    location.set_mapping_index(mapping);
    profiles::Line& added = *location.add_lines();
    added.set_function_index(function);
    added.set_line(line);
    if (attribute != 0) location.add_attribute_indices(attribute);
    bytes_ += kRowBytes;
  }
  return location_of_frame_[frame] = found->second;
}

int32_t ProfileTables::find_stack(uint32_t path, uint32_t gpu_frame) {
  const auto [found, is_new] =
      stacks_.try_emplace({path, gpu_frame}, dictionary_.stack_table_size());
  if (!is_new) return found->second;
  const int32_t index = found->second;
  profiles::Stack& stack = *dictionary_.add_stack_table();
  if (gpu_frame != kNoIndex) stack.add_location_indices(find_location(gpu_frame));
  const std::vector<uint32_t>& frames = paths_.get_frames(path);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    stack.add_location_indices(find_location(*frame));
  }
  bytes_ += kRowBytes + kIndexBytes * static_cast<size_t>(stack.location_indices_size());
  return index;
}

profiles::KeyValueAndUnit& ProfileTables::add_attribute(int32_t key) {
  profiles::KeyValueAndUnit& added = *dictionary_.add_attribute_table();
  added.set_key_strindex(key);
  bytes_ += kRowBytes;
  return added;
}

int32_t ProfileTables::find_text_attribute(std::string_view key, std::string_view value) {
  const std::pair pair(find_text(key), find_text(value));
  const auto [found, is_new] =
      text_attributes_.try_emplace(pair, dictionary_.attribute_table_size());
  if (is_new) {
    std::string valid = to_valid_utf8(value);
    bytes_ += valid.size();
    add_attribute(pair.first).mutable_value()->set_string_value(std::move(valid));
  }
  return found->second;
}

int32_t ProfileTables::find_number_attribute(std::string_view key, uint64_t value) {
  const std::pair pair(find_text(key), value);
  const auto [found, is_new] =
      number_attributes_.try_emplace(pair, dictionary_.attribute_table_size());
  if (is_new) add_attribute(pair.first).mutable_value()->set_int_value(static_cast<int64_t>(value));
  return found->second;
}

}  // namespace gpuperf::otlp
