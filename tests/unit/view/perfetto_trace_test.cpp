#include "daemon/view/perfetto_trace.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <map>

#include "perfetto/trace.pb.h"
#include "tests/fakes/captures/example_capture.h"

namespace gpuperf {
namespace {

using perfetto::protos::Trace;
using perfetto::protos::TracePacket;
using perfetto::protos::TrackEvent;
using testing::make_example_capture;

Trace render_trace(const Capture& capture) {
  Trace trace;
  EXPECT_TRUE(trace.ParseFromString(render_perfetto_trace(capture, ViewOptions{})));
  return trace;
}

std::string to_text(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

TEST(PerfettoTraceTest, BeginsWithItsClocks) {
  const Trace trace = render_trace(make_example_capture());

  EXPECT_EQ(to_text(trace.packet(0)),
            "clock_snapshot { clocks { clock_id: 3 timestamp: 5000000000123 } "
            "clocks { clock_id: 1 timestamp: 1700000000000000000 } "
            "primary_trace_clock: BUILTIN_CLOCK_MONOTONIC } "
            "trusted_packet_sequence_id: 1 sequence_flags: 1 "
            "trace_packet_defaults { timestamp_clock_id: 3 } ");
}

TEST(PerfettoTraceTest, ALaunchIsWholeAndTellsWhatItNamesFirst) {
  const Trace trace = render_trace(make_example_capture());

  std::string found;
  for (const TracePacket& packet : trace.packet()) {
    if (packet.timestamp() != 5'000'000'030'123) continue;
    found = to_text(packet);
    break;
  }

  EXPECT_EQ(found,
            "timestamp: 5000000030123 trusted_packet_sequence_id: 1 track_event { category_iids: 2 "
            "debug_annotations { name_iid: 3 uint_value: 2 } "
            "debug_annotations { name_iid: 4 string_value_iid: 3 } "
            "type: TYPE_SLICE_BEGIN name_iid: 3 track_uuid: 6 flow_ids: 2 callstack_iid: 1 } "
            "interned_data { event_categories { iid: 2 name: \"launch\" } "
            "event_names { iid: 3 name: \"cudaLaunchKernel\" } "
            "debug_annotation_names { iid: 3 name: \"correlation\" } "
            "debug_annotation_names { iid: 4 name: \"operation\" } "
            "debug_annotation_string_values { iid: 3 "
            "str: \"linear > cublasGemmEx m=512 n=1024 k=64\" } } "
            "sequence_flags: 2 ");
}

TEST(PerfettoTraceTest, StacksAreInterned) {
  const Trace trace = render_trace(make_example_capture());

  perfetto::protos::InternedData all;
  for (const TracePacket& packet : trace.packet()) all.MergeFrom(packet.interned_data());
  all.clear_event_categories();
  all.clear_event_names();
  all.clear_debug_annotation_names();
  all.clear_debug_annotation_string_values();

  EXPECT_EQ(to_text(all),
            "function_names { iid: 1 str: \"main\" } function_names { iid: 2 str: \"train\" } "
            "function_names { iid: 3 str: \"forward\" } function_names { iid: 4 str: \"[cut]\" } "
            "function_names { iid: 5 str: \"[libunknown.so+0x1c0]\" } "
            "frames { iid: 1 function_name_id: 1 kind: KIND_NATIVE } "
            "frames { iid: 2 function_name_id: 2 source_path_iid: 1 line_number: 42 "
            "kind: KIND_INTERPRETED } "
            "frames { iid: 3 function_name_id: 3 source_path_iid: 2 line_number: 7 "
            "kind: KIND_INTERPRETED } "
            "frames { iid: 5 function_name_id: 4 } "
            "frames { iid: 4 function_name_id: 5 mapping_id: 1 rel_pc: 448 kind: KIND_NATIVE } "
            "callstacks { iid: 1 frame_ids: 1 frame_ids: 2 frame_ids: 3 } "
            "callstacks { iid: 2 frame_ids: 5 frame_ids: 4 } "
            "mapping_paths { iid: 1 str: \"/usr/lib/libunknown.so\" } "
            "source_paths { iid: 1 str: \"/app/train.py\" } "
            "source_paths { iid: 2 str: \"/app/model.py\" } "
            "mappings { iid: 1 path_string_ids: 1 } ");
}

TEST(PerfettoTraceTest, EverySliceThatBeginsEndsOnItsTrack) {
  const Trace trace = render_trace(make_example_capture());

  std::map<uint64_t, int> open;
  int slices = 0;
  for (const TracePacket& packet : trace.packet()) {
    const TrackEvent& event = packet.track_event();
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) {
      ++open[event.track_uuid()];
      ++slices;
    }
    if (event.type() == TrackEvent::TYPE_SLICE_END) {
      EXPECT_GE(--open[event.track_uuid()], 0);
    }
  }
  EXPECT_EQ(slices, 3 + 8 + 9 + 2 + 2);
  for (const auto& [track, count] : open) EXPECT_EQ(count, 0) << track;
}

TEST(PerfettoTraceTest, EveryFlowHasTwoEnds) {
  const Trace trace = render_trace(make_example_capture());

  std::vector<uint64_t> begins;
  std::vector<uint64_t> ends;
  for (const TracePacket& packet : trace.packet()) {
    for (const uint64_t id : packet.track_event().flow_ids()) begins.push_back(id);
    for (const uint64_t id : packet.track_event().terminating_flow_ids()) ends.push_back(id);
  }
  EXPECT_THAT(begins, ::testing::UnorderedElementsAre(1, 2, 3, 4, 6, 7, 8));
  EXPECT_THAT(ends, ::testing::UnorderedElementsAreArray(begins));
}

TEST(PerfettoTraceTest, DescribesProcessesThreadsDevicesAndStreams) {
  const Trace trace = render_trace(make_example_capture());

  std::vector<std::string> tracks;
  for (const TracePacket& packet : trace.packet()) {
    if (packet.has_track_descriptor()) tracks.push_back(to_text(packet.track_descriptor()));
  }

  EXPECT_EQ(tracks[0], "uuid: 1 process { pid: 4711 process_name: \"python3 (4711)\" } ");
  EXPECT_EQ(tracks[2], "uuid: 3 name: \"GPU 0 GPU-01020300-0000-0000-0000-000000000000\" ");
  EXPECT_EQ(tracks[5], "uuid: 6 thread { pid: 4711 tid: 4711 thread_name: \"python3 (4711)\" } ");
  EXPECT_EQ(tracks[8], "uuid: 9 name: \"stream 7, context 1, python3 (4711)\" parent_uuid: 3 ");
  EXPECT_EQ(tracks.back(),
            "uuid: 21 name: \"queue depth: stream 7, context 2, python3 (4711)\" "
            "parent_uuid: 4 counter { unit: UNIT_COUNT } ");
}

}  // namespace
}  // namespace gpuperf
