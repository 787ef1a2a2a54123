#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/model/capture.h"
#include "daemon/view/call_path.h"
#include "daemon/view/sample_rows.h"
#include "pprof/profile.pb.h"

namespace gpuperf {

// The tables of a pprof profile: texts, functions, modules, and a location for each frame of a path
// table. The profile and the path table outlive it.
//
// Frames of the path table are found again among those of the capture by their text, for which the
// table must be one with lines.
class PprofTables {
 public:
  PprofTables(const Capture& capture, const PathTable& paths,
              perftools::profiles::Profile& profile);

  int64_t find_text(std::string_view text);
  uint64_t find_location(uint32_t frame);
  void add_text_label(std::string_view key, std::string_view text,
                      perftools::profiles::Sample& sample);
  void add_number_label(std::string_view key, int64_t number, perftools::profiles::Sample& sample);

 private:
  uint64_t find_function(std::string_view name, std::string_view file);
  uint64_t find_mapping(std::string_view module);

  const PathTable& paths_;
  perftools::profiles::Profile& profile_;
  const SourceFrames source_;
  absl::flat_hash_map<std::string, int64_t> texts_;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, uint64_t> functions_;
  absl::flat_hash_map<int64_t, uint64_t> mappings_;
  std::vector<uint64_t> locations_;  // by frame; 0 = not yet
};

}  // namespace gpuperf
