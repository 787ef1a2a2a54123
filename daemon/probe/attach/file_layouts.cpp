#include "daemon/probe/attach/file_layouts.h"

#include "daemon/probe/code/tensor_accessors.h"

namespace gpuperf {

std::vector<int> FileLayouts::learn(int file_id, const Folder& folder, int fd, uint32_t owner_uid) {
  const auto [file, is_new] = files_.try_emplace(file_id);
  if (!is_new) return {};
  file->second = {.folder = folder, .own = read(fd, owner_uid)};
  std::vector<int> beside;
  if (file->second.own.number == 0) return beside;
  for (const auto& [id, other] : files_) {
    if (id != file_id && other.folder == folder) beside.push_back(id);
  }
  return beside;
}

void FileLayouts::forget(const std::set<int>& file_ids) {
  for (const int id : file_ids) files_.erase(id);
}

FileLayouts::Layout FileLayouts::find(int file_id) const {
  const auto file = files_.find(file_id);
  if (file == files_.end()) return {};
  if (file->second.own.number != 0) return file->second.own;
  std::set<uint32_t> numbers;
  std::string fault =
      "no libggml-base.so of its folder is loaded and among its section's libraries";
  for (const auto& [id, other] : files_) {
    if (other.folder != file->second.folder) continue;
    if (other.own.number != 0) numbers.insert(other.own.number);
    if (!other.own.fault.empty()) fault = other.own.fault;
  }
  if (numbers.size() == 1) return {.number = *numbers.begin(), .fault = ""};
  if (!numbers.empty()) fault = "several builds of ggml lie in its folder, as processes see it";
  return {.fault = fault};
}

FileLayouts::Layout FileLayouts::read(int fd, uint32_t owner_uid) {
  const Result<TensorLayout> layout = read_tensor_layout(fd);
  if (absl::IsNotFound(layout.status())) return {};
  if (!layout.ok()) return {.fault = std::string(layout.status().message())};
  uint32_t number = layouts_.find(*layout);
  if (number == 0) {
    // They are never forgotten, so that nobody takes the room of all others.
    const auto added = added_.find(owner_uid);
    const bool may_add =
        owner_uid == 0 || added == added_.end() || added->second < kMaxLayoutsOfUser;
    if (may_add) number = layouts_.add(*layout);
    if (number == 0) return {.fault = "too many different builds of ggml"};
    ++added_[owner_uid];
  }
  const Status told = programs_.set_tensor_layout(number, layout->fields);
  return told.ok() ? Layout{.number = number, .fault = ""}
                   : Layout{.fault = std::string(told.message())};
}

}  // namespace gpuperf
