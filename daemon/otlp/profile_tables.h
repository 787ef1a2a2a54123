#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/view/call_path.h"
#include "daemon/view/sample_rows.h"
#include "opentelemetry/proto/profiles/v1development/profiles.pb.h"

namespace gpuperf::otlp {

namespace profiles = ::opentelemetry::proto::profiles::v1development;

// The dictionary of one message: every row once, the first of each table empty.
//
// The path table must be one with lines; it, the frames and the dictionary outlive it.
class ProfileTables {
 public:
  ProfileTables(const PathTable& paths, const SourceFrames& source,
                profiles::ProfilesDictionary& dictionary);

  int32_t find_text(std::string_view text);
  // A path of the table with the GPU's frame as its leaf; kNoIndex = without one.
  int32_t find_stack(uint32_t path, uint32_t gpu_frame);
  int32_t find_text_attribute(std::string_view key, std::string_view value);
  int32_t find_number_attribute(std::string_view key, uint64_t value);
  // About as much as the dictionary takes on the wire so far, never less.
  size_t bytes() const { return bytes_; }

 private:
  int32_t find_location(uint32_t frame);
  int32_t find_function(std::string_view name, std::string_view file);
  int32_t find_mapping(std::string_view module);
  profiles::KeyValueAndUnit& add_attribute(int32_t key);

  const PathTable& paths_;
  const SourceFrames& source_;
  profiles::ProfilesDictionary& dictionary_;
  size_t bytes_ = 0;
  absl::flat_hash_map<std::string, int32_t> texts_;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> functions_;  // name, file
  absl::flat_hash_map<int32_t, int32_t> mappings_;                       // by file
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, int32_t> stacks_;   // path, GPU frame
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> text_attributes_;
  absl::flat_hash_map<std::pair<int32_t, uint64_t>, int32_t> number_attributes_;
  // Two frames of the path table may be one location: their kinds differ only to us.
  absl::flat_hash_map<std::tuple<int32_t, int32_t, uint32_t, int32_t>, int32_t> locations_;
  std::vector<int32_t> location_of_frame_;  // 0 = not yet
};

}  // namespace gpuperf::otlp
