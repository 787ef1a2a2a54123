#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/capture.h"
#include "perfetto/trace.pb.h"

namespace gpuperf {

// Texts and stacks that packets of one sequence name by number. What is named for the first time is
// added to the interned data of the packet at hand.
class PerfettoInterned {
 public:
  explicit PerfettoInterned(const Capture& capture)
      : capture_(capture), frames_(capture.frames.size()), stacks_(capture.stacks.size()) {}

  uint64_t find_category(std::string_view name, perfetto::protos::TracePacket& packet);
  uint64_t find_event_name(std::string_view name, perfetto::protos::TracePacket& packet);
  uint64_t find_argument(std::string_view name, perfetto::protos::TracePacket& packet);
  uint64_t find_value(std::string_view text, perfetto::protos::TracePacket& packet);
  // 0 = there is no such stack, or it is empty.
  uint64_t find_stack(uint32_t stack, perfetto::protos::TracePacket& packet);

 private:
  using Texts = absl::flat_hash_map<std::string, uint64_t>;

  uint64_t find_frame(uint32_t frame, perfetto::protos::InternedData& data);
  uint64_t find_mark(StackEnd end, perfetto::protos::InternedData& data);
  uint64_t find_function(std::string_view name, perfetto::protos::InternedData& data);
  uint64_t find_mapping(const std::string& path, perfetto::protos::InternedData& data);

  const Capture& capture_;
  Texts categories_;
  Texts event_names_;
  Texts arguments_;
  Texts values_;
  Texts functions_;
  Texts mappings_;
  Texts sources_;
  Texts marks_;
  std::vector<bool> frames_;  // that are known to readers
  std::vector<bool> stacks_;
};

}  // namespace gpuperf
