#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/store/capture_file.h"
#include "daemon/store/capture_layout.h"
#include "gpuperf/v1/stored_capture.pb.h"

namespace gpuperf {

// DataLoss: what is wrong with a file.
Status make_damage_error(std::string_view why);

// Builds a capture from its pieces.
//
// Thread: one. The first thing wrong is kept, and what comes after it changes nothing that is used.
class CaptureReader {
 public:
  // One field of the file.
  struct Piece {
    int field = 0;
    std::string_view bytes;
  };

  explicit CaptureReader(size_t file_bytes) : file_bytes_(file_bytes) {}

  void take_head(const v1::StoredHead& head);
  void take(const Piece& piece);
  Result<Capture> finish();

 private:
  template <typename Message>
  bool parse(const Piece& piece, Message& message) {
    if (!message.ParseFromArray(piece.bytes.data(), static_cast<int>(piece.bytes.size()))) {
      fail("a piece cannot be read");
    }
    return problem_.ok();
  }
  void fail(std::string_view why) {
    if (problem_.ok()) problem_ = make_damage_error(why);
  }
  // All columns have as many values as `rows`, and the table room for them.
  bool check_columns(size_t rows, std::initializer_list<int> columns, size_t room) {
    for (const int column : columns) {
      if (static_cast<size_t>(column) != rows) fail("columns of different lengths");
    }
    if (rows > room) fail("too many rows");
    return problem_.ok();
  }
  bool check_block(size_t rows, std::initializer_list<int> columns) {
    return check_columns(rows, columns, kStoredBlockRows);
  }
  template <typename Row>
  bool check_table(size_t rows, std::initializer_list<int> columns, const std::vector<Row>& table) {
    return check_columns(rows, columns, kMaxCaptureTableRows - table.size());
  }
  std::string get_text(uint32_t number) {
    if (number >= texts_.size() ||
        (texts_bytes_ += texts_[number].size()) > kMaxCaptureTextsBytes) {
      fail("a text that is not there, or too much text");
      return {};
    }
    return texts_[number];
  }
  uint32_t get_enum(uint32_t value, uint32_t last) {
    if (value > last) fail("a kind that does not exist");
    return std::min(value, last);
  }
  // Room for events, by a count that the file's size allows.
  template <typename Row>
  void reserve(std::vector<Row>& rows, uint64_t count, size_t columns) {
    if (count > kMaxCaptureEvents || count > file_bytes_ / columns) {
      return fail("more rows than bytes");
    }
    rows.reserve(count);
  }

  void take_texts(const v1::StoredTexts& piece);
  void take_processes(const v1::StoredTables& piece);
  void take_names(const v1::StoredTables& piece);
  void take_frames(const v1::StoredTables& piece);
  void take_stacks(const v1::StoredTables& piece);
  void take_operations(const v1::StoredTables& piece);
  void take_places(const v1::StoredTables& piece);
  void take_stalls(const v1::StoredTables& piece);
  void take_calls(const v1::StoredCalls& piece);
  void take_launches(const v1::StoredLaunches& piece, std::vector<CaptureLaunch>& launches);
  void take_work(const v1::StoredWork& piece);
  void take_waits(const v1::StoredWaits& piece);
  void take_gaps(const v1::StoredGaps& piece);
  void take_gpu_counters(const v1::StoredGpuCounters& piece);
  void take_thread_times(const v1::StoredThreadTimes& piece);
  void take_steps(const v1::StoredSteps& piece);

  const size_t file_bytes_;
  Status problem_;
  Capture capture_;
  v1::StoredCounts counts_;
  std::vector<std::string> texts_;
  size_t texts_bytes_ = 0;   // copied so far
  size_t stack_frames_ = 0;  // likewise
  // Parsed into one after the other: they keep their memory.
  v1::StoredTables tables_;
  v1::StoredCalls calls_;
  v1::StoredLaunches launches_;
  v1::StoredWork work_;
  v1::StoredThreadTimes thread_times_;
};

// Indices are stored plus one: 0 becomes kNoIndex.
inline uint32_t minus_one(uint32_t stored) { return stored - 1; }

}  // namespace gpuperf
