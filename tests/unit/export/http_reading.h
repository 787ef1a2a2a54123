#pragma once

// Any bytes as a request, and what must hold of whatever comes out.

#include <string>
#include <string_view>

#include "daemon/export/http_request_reader.h"

namespace gpuperf::testing {

struct HttpReading {
  HttpRequestReader::State state = HttpRequestReader::State::kIncomplete;
  int refusal_status = 0;
  HttpRequest request;
};

// `bytes` in pieces of that many.
inline HttpReading read_http(std::string_view bytes, size_t piece_bytes) {
  HttpRequestReader reader;
  HttpReading reading;
  while (reading.state == HttpRequestReader::State::kIncomplete && !bytes.empty()) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    reading.state = reader.take(piece);
    bytes.remove_prefix(piece.size());
  }
  reading.refusal_status = reader.refusal_status();
  if (reading.state == HttpRequestReader::State::kComplete) reading.request = reader.release();
  return reading;
}

// Why reading `bytes` breaks a promise of HttpRequestReader; empty = it does not.
inline std::string find_http_fault(std::string_view bytes) {
  const HttpReading whole = read_http(bytes, std::string_view::npos);
  const HttpRequest& request = whole.request;
  for (const size_t piece_bytes : {1, 3, 1000}) {
    const HttpReading pieces = read_http(bytes, piece_bytes);
    const HttpRequest& other = pieces.request;
    if (pieces.state != whole.state || pieces.refusal_status != whole.refusal_status ||
        other.method != request.method || other.path != request.path ||
        other.query != request.query || other.header_lines != request.header_lines ||
        other.body != request.body) {
      return "pieces of " + std::to_string(piece_bytes) + " bytes are read otherwise";
    }
  }
  const bool is_refused = whole.state == HttpRequestReader::State::kRefused;
  if (is_refused != (whole.refusal_status != 0)) return "refused without a status, or not refused";
  if (whole.state == HttpRequestReader::State::kIncomplete &&
      bytes.size() > HttpRequestReader::kMaxBytes) {
    return "waits for more than the bound";
  }
  const size_t kept_bytes = request.method.size() + request.path.size() + request.query.size() +
                            request.header_lines.size() + request.body.size();
  if (kept_bytes > HttpRequestReader::kMaxBytes) return "keeps more than the bound";
  if (request.header_lines.find('\0') != std::string::npos) return "a header with a zero byte";
  (void)parse_query(request.query);
  (void)find_header(request, "Host");
  return {};
}

}  // namespace gpuperf::testing
