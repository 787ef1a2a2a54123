#include "daemon/view/perfetto_interned.h"

#include <absl/strings/string_view.h>

#include <utility>

#include "daemon/model/display_text.h"
#include "daemon/view/frame_text.h"

namespace gpuperf {
namespace {

using perfetto::protos::Frame;
using perfetto::protos::InternedData;
using perfetto::protos::TracePacket;

// The number of `text`; calls `add` with the number and the text in valid UTF-8 when it is new.
template <typename Texts, typename Add>
uint64_t find_text(std::string_view text, Texts& known, Add add) {
  // Debian's Abseil has a string_view of its own.
  const auto found = known.find(absl::string_view(text.data(), text.size()));
  if (found != known.end()) return found->second;
  const uint64_t iid = known.size() + 1;
  known.emplace(std::string(text), iid);
  add(iid, to_valid_utf8(text));
  return iid;
}

template <typename Entry>
void set_name(Entry& entry, uint64_t iid, std::string&& name) {
  entry.set_iid(iid);
  entry.set_name(std::move(name));
}

void set_text(perfetto::protos::InternedString& entry, uint64_t iid, std::string&& text) {
  entry.set_iid(iid);
  entry.set_str(std::move(text));
}

Frame::Kind to_kind(StackFrameKind kind) {
  switch (kind) {
    case StackFrameKind::kNative:
      return Frame::KIND_NATIVE;
    case StackFrameKind::kJit:
      return Frame::KIND_JIT;
    case StackFrameKind::kKernel:
      return Frame::KIND_KERNEL;
    case StackFrameKind::kPython:
      return Frame::KIND_INTERPRETED;
  }
  return Frame::KIND_UNKNOWN;
}

}  // namespace

uint64_t PerfettoInterned::find_category(std::string_view name, TracePacket& packet) {
  return find_text(name, categories_, [&](uint64_t iid, std::string&& text) {
    set_name(*packet.mutable_interned_data()->add_event_categories(), iid, std::move(text));
  });
}

uint64_t PerfettoInterned::find_event_name(std::string_view name, TracePacket& packet) {
  return find_text(name, event_names_, [&](uint64_t iid, std::string&& text) {
    set_name(*packet.mutable_interned_data()->add_event_names(), iid, std::move(text));
  });
}

uint64_t PerfettoInterned::find_argument(std::string_view name, TracePacket& packet) {
  return find_text(name, arguments_, [&](uint64_t iid, std::string&& text) {
    set_name(*packet.mutable_interned_data()->add_debug_annotation_names(), iid, std::move(text));
  });
}

uint64_t PerfettoInterned::find_value(std::string_view text, TracePacket& packet) {
  return find_text(text, values_, [&](uint64_t iid, std::string&& valid) {
    set_text(*packet.mutable_interned_data()->add_debug_annotation_string_values(), iid,
             std::move(valid));
  });
}

uint64_t PerfettoInterned::find_stack(uint32_t stack, TracePacket& packet) {
  if (stack >= stacks_.size()) return 0;
  const CaptureStack& row = capture_.stacks[stack];
  if (row.frames.empty()) return 0;
  const uint64_t iid = uint64_t{stack} + 1;
  if (stacks_[stack]) return iid;
  stacks_[stack] = true;
  InternedData& data = *packet.mutable_interned_data();
  perfetto::protos::Callstack& entry = *data.add_callstacks();
  entry.set_iid(iid);
  if (row.end != StackEnd::kComplete) entry.add_frame_ids(find_mark(row.end, data));
  for (const uint32_t frame : row.frames) {
    if (frame < frames_.size()) entry.add_frame_ids(find_frame(frame, data));
  }
  return iid;
}

uint64_t PerfettoInterned::find_frame(uint32_t frame, InternedData& data) {
  const uint64_t iid = uint64_t{frame} + 1;
  if (frames_[frame]) return iid;
  frames_[frame] = true;
  const StackFrame& row = capture_.frames[frame];
  Frame& entry = *data.add_frames();
  entry.set_iid(iid);
  entry.set_function_name_id(
      find_function(row.symbol.empty() ? make_frame_text(row, false) : row.symbol, data));
  entry.set_kind(to_kind(row.kind));
  // The offset is one into the file only where no symbol is known; a mapping needs one.
  if (row.symbol.empty() && !row.module.empty()) {
    entry.set_mapping_id(find_mapping(row.module, data));
    entry.set_rel_pc(row.offset_bytes);
  }
  if (!row.file.empty()) {
    entry.set_source_path_iid(
        find_text(row.file, sources_, [&](uint64_t path_iid, std::string&& text) {
          set_text(*data.add_source_paths(), path_iid, std::move(text));
        }));
    if (row.line != 0) entry.set_line_number(row.line);
  }
  return iid;
}

// A frame that says how the stack ends, behind those of the capture.
uint64_t PerfettoInterned::find_mark(StackEnd end, InternedData& data) {
  const std::string name = "[" + std::string(get_stack_end_name(end)) + "]";
  return frames_.size() + find_text(name, marks_, [&](uint64_t mark_iid, std::string&&) {
           Frame& entry = *data.add_frames();
           entry.set_iid(frames_.size() + mark_iid);
           entry.set_function_name_id(find_function(name, data));
         });
}

uint64_t PerfettoInterned::find_function(std::string_view name, InternedData& data) {
  return find_text(name, functions_, [&](uint64_t iid, std::string&& text) {
    set_text(*data.add_function_names(), iid, std::move(text));
  });
}

// Its path is one part, whole.
uint64_t PerfettoInterned::find_mapping(const std::string& path, InternedData& data) {
  return find_text(path, mappings_, [&](uint64_t iid, std::string&& text) {
    set_text(*data.add_mapping_paths(), iid, std::move(text));
    perfetto::protos::Mapping& entry = *data.add_mappings();
    entry.set_iid(iid);
    entry.add_path_string_ids(iid);
  });
}

}  // namespace gpuperf
