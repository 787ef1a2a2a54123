#include "daemon/view/pprof_tables.h"

#include <absl/strings/string_view.h>

#include "daemon/model/display_text.h"

namespace gpuperf {

PprofTables::PprofTables(const Capture& capture, const PathTable& paths,
                         perftools::profiles::Profile& profile)
    : paths_(paths), profile_(profile), source_(capture) {
  find_text("");
}

int64_t PprofTables::find_text(std::string_view text) {
  // Debian's Abseil has a string_view of its own.
  const auto found = texts_.find(absl::string_view(text.data(), text.size()));
  if (found != texts_.end()) return found->second;
  const auto index = static_cast<int64_t>(profile_.string_table_size());
  profile_.add_string_table(to_valid_utf8(text));
  texts_.emplace(std::string(text), index);
  return index;
}

uint64_t PprofTables::find_function(std::string_view name, std::string_view file) {
  const int64_t name_text = find_text(name);
  const int64_t file_text = find_text(file);
  const auto [found, is_new] =
      functions_.try_emplace({name_text, file_text}, functions_.size() + 1);
  if (is_new) {
    perftools::profiles::Function& function = *profile_.add_function();
    function.set_id(found->second);
    function.set_name(name_text);
    function.set_system_name(name_text);
    function.set_filename(file_text);
  }
  return found->second;
}

uint64_t PprofTables::find_mapping(std::string_view module) {
  if (module.empty()) return 0;
  const int64_t text = find_text(module);
  const auto [found, is_new] = mappings_.try_emplace(text, mappings_.size() + 1);
  if (is_new) {
    perftools::profiles::Mapping& mapping = *profile_.add_mapping();
    mapping.set_id(found->second);
    mapping.set_filename(text);
    // Readers would look for symbols else, by addresses that are not given.
    mapping.set_has_functions(true);
    mapping.set_has_filenames(true);
    mapping.set_has_line_numbers(true);
  }
  return found->second;
}

uint64_t PprofTables::find_location(uint32_t frame) {
  if (frame >= locations_.size()) locations_.resize(paths_.count_frames());
  if (locations_[frame] != 0) return locations_[frame];
  const std::string& text = paths_.get_text(frame);
  const StackFrame* row = source_.find(text);

  perftools::profiles::Location& location = *profile_.add_location();
  location.set_id(static_cast<uint64_t>(profile_.location_size()));
  perftools::profiles::Line& line = *location.add_line();
  if (row == nullptr) {
    line.set_function_id(find_function(text, ""));
  } else {
    line.set_function_id(find_function(get_function_name(*row), row->file));
    line.set_line(row->line);
    location.set_mapping_id(find_mapping(row->module));
  }
  locations_[frame] = location.id();
  return location.id();
}

void PprofTables::add_text_label(std::string_view key, std::string_view text,
                                 perftools::profiles::Sample& sample) {
  if (text.empty()) return;
  perftools::profiles::Label& label = *sample.add_label();
  label.set_key(find_text(key));
  label.set_str(find_text(text));
}

void PprofTables::add_number_label(std::string_view key, int64_t number,
                                   perftools::profiles::Sample& sample) {
  perftools::profiles::Label& label = *sample.add_label();
  label.set_key(find_text(key));
  label.set_num(number);
}

}  // namespace gpuperf
