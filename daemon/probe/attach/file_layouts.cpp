#include "daemon/probe/attach/file_layouts.h"

#include "daemon/probe/code/tensor_accessors.h"

namespace gpuperf {

std::vector<int> FileLayouts::learn(int file_id, const Folder& folder, int fd) {
  const auto [file, is_new] = files_.try_emplace(file_id);
  if (!is_new) return {};
  file->second = {.folder = folder, .own = read(fd)};
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
  Layout found = file->second.own;
  for (const auto& [id, other] : files_) {
    if (file->second.own.number != 0 || other.folder != file->second.folder) continue;
    if (other.own.number == 0) continue;
    if (found.number != 0 && found.number != other.own.number) {
      return {.fault = "several builds of ggml lie in its folder, as processes see it"};
    }
    found = {.number = other.own.number, .fault = ""};
  }
  return found;
}

FileLayouts::Layout FileLayouts::read(int fd) {
  const Result<TensorLayout> layout = read_tensor_layout(fd);
  if (!layout.ok()) return {.fault = std::string(layout.status().message())};
  const uint32_t number = layouts_.add(*layout);
  if (number == 0) return {.fault = "too many different builds of ggml"};
  const Status told = programs_.set_tensor_layout(number, layout->fields);
  return told.ok() ? Layout{.number = number, .fault = ""}
                   : Layout{.fault = std::string(told.message())};
}

}  // namespace gpuperf
