#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/export/http_message.h"

namespace gpuperf {

// Makes the bytes of a connection into its first request.
//
// HTTP/1.0 and 1.1; lines end in CRLF; a body has a length or comes in chunks. Where RFC 9112 lets
// a server refuse, it refuses, so that nothing has two meanings: folded lines, blanks in names, a
// length beside chunks, either of them twice.
// Bounds: kMaxBytes for request line, headers, body and what frames it; no byte beyond is kept.
// Work is in proportion to the bytes, in however many pieces they come.
class HttpRequestReader {
 public:
  // Nothing served here needs a body of more than a few KiB: those of an Alertmanager.
  static constexpr size_t kMaxBytes = size_t{64} * 1024;

  enum class State { kIncomplete, kComplete, kRefused };

  // Not after kComplete or kRefused.
  State take(std::string_view bytes);

  // kRefused: the status that says why.
  int refusal_status() const { return refusal_status_; }
  bool has_begun() const { return has_begun_; }
  // kComplete: bytes came behind the end of the request; they are ignored.
  bool has_surplus() const { return has_surplus_; }
  // True once, where the client sends its body only after a word from the server.
  bool take_continue_wanted();
  // kComplete: the request; whose it is, the caller knows.
  HttpRequest release();

 private:
  enum class Part { kHead, kBody, kChunkSize, kChunk, kTrailer };
  // The state in which parsing ends; nullopt = it goes on with the next part.
  using Outcome = std::optional<State>;

  State refuse(int status);
  Outcome parse_part();
  Outcome parse_head();
  Outcome choose_body();
  Outcome parse_body();
  Outcome parse_chunk_size();
  Outcome parse_chunk();
  Outcome parse_trailer();
  bool parse_request_line(std::string_view line);
  // The line at position_, which moves behind it; nullopt = not all of it is there.
  std::optional<std::string_view> take_line();

  std::string bytes_;    // all that came, within the bound
  size_t position_ = 0;  // before it all is parsed
  size_t searched_ = 0;  // no end of a line begins between position_ and this
  Part part_ = Part::kHead;
  size_t left_bytes_ = 0;  // of the body, or of the chunk
  HttpRequest request_;
  int refusal_status_ = 0;
  bool has_begun_ = false;
  bool has_surplus_ = false;
  bool is_continue_wanted_ = false;
};

}  // namespace gpuperf
