#include "daemon/export/http_request_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "daemon/export/http_text.h"

namespace gpuperf {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

bool is_token(std::string_view text) {
  constexpr std::string_view kSigns = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kSigns.find(c) != kSigns.npos;
  });
}

bool is_control(char c) { return static_cast<uint8_t>(c) < ' ' || c == '\x7f'; }

// Of a header, or the extensions of a chunk.
bool is_value(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return is_control(c) && c != '\t'; });
}

// `visit` of every line of a head, without its end, until it returns false.
template <typename Visit>
void for_each_line(std::string_view lines, Visit visit) {
  while (!lines.empty()) {
    const size_t end = lines.find(kLineEnd);
    if (!visit(lines.substr(0, end))) return;
    lines.remove_prefix(end + kLineEnd.size());
  }
}

bool are_header_lines(std::string_view lines) {
  bool are_all = true;
  for_each_line(lines, [&](std::string_view line) {
    const size_t colon = line.find(':');
    are_all = colon != line.npos && is_token(line.substr(0, colon)) && is_value(line);
    return are_all;
  });
  return are_all;
}

size_t count_headers(std::string_view lines, std::string_view name) {
  size_t count = 0;
  for_each_line(lines, [&](std::string_view line) {
    count += is_same_token(line.substr(0, line.find(':')), name) ? 1 : 0;
    return true;
  });
  return count;
}

// nullopt = it is no number. One that is too large is the largest.
std::optional<size_t> parse_number(std::string_view text, int base) {
  size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc() ? number : SIZE_MAX;
}

}  // namespace

HttpRequestReader::State HttpRequestReader::take(std::string_view bytes) {
  const size_t room_bytes = kMaxBytes - bytes_.size();
  has_begun_ = has_begun_ || !bytes.empty();
  bytes_ += bytes.substr(0, room_bytes);
  Outcome outcome;
  while (!outcome) outcome = parse_part();
  if (*outcome == State::kIncomplete && bytes.size() > room_bytes) {
    return refuse(part_ == Part::kHead ? 431 : 413);
  }
  has_surplus_ = position_ < bytes_.size() || bytes.size() > room_bytes;
  return *outcome;
}

bool HttpRequestReader::take_continue_wanted() {
  return std::exchange(is_continue_wanted_, false) && position_ == bytes_.size();
}

HttpRequest HttpRequestReader::release() {
  bytes_ = std::string();
  return std::move(request_);
}

HttpRequestReader::State HttpRequestReader::refuse(int status) {
  refusal_status_ = status;
  bytes_ = std::string();
  position_ = 0;
  request_ = HttpRequest();
  return State::kRefused;
}

HttpRequestReader::Outcome HttpRequestReader::parse_part() {
  switch (part_) {
    case Part::kHead:
      return parse_head();
    case Part::kBody:
      return parse_body();
    case Part::kChunkSize:
      return parse_chunk_size();
    case Part::kChunk:
      return parse_chunk();
    case Part::kTrailer:
      return parse_trailer();
  }
  return refuse(400);
}

HttpRequestReader::Outcome HttpRequestReader::parse_head() {
  const size_t end = bytes_.find(kHeadEnd, searched_);
  if (end == bytes_.npos) {
    searched_ = bytes_.size() - std::min(bytes_.size(), kHeadEnd.size() - 1);
    return State::kIncomplete;
  }
  const std::string_view head = std::string_view(bytes_).substr(0, end + kLineEnd.size());
  const size_t line_end = head.find(kLineEnd);
  const std::string_view lines = head.substr(line_end + kLineEnd.size());
  if (!parse_request_line(head.substr(0, line_end)) || !are_header_lines(lines)) {
    return refuse(400);
  }
  request_.header_lines = lines;
  position_ = searched_ = end + kHeadEnd.size();
  return choose_body();
}

bool HttpRequestReader::parse_request_line(std::string_view line) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == line.npos || method_end == target_end) return false;
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const std::string_view version = line.substr(target_end + 1);
  const size_t question = target.find('?');
  request_.method = line.substr(0, method_end);
  request_.path = decode_percent(target.substr(0, question), /*plus_is_blank=*/false);
  request_.query = question == target.npos ? "" : target.substr(question + 1);
  return is_token(request_.method) && (version == "HTTP/1.1" || version == "HTTP/1.0") &&
         std::ranges::none_of(target, [](char c) { return is_control(c) || c == ' '; });
}

HttpRequestReader::Outcome HttpRequestReader::choose_body() {
  const size_t chunks = count_headers(request_.header_lines, "Transfer-Encoding");
  const size_t lengths = count_headers(request_.header_lines, "Content-Length");
  if (chunks + lengths > 1) return refuse(400);
  if (chunks == 1) {
    if (!is_same_token(find_header(request_, "Transfer-Encoding"), "chunked")) return refuse(501);
    part_ = Part::kChunkSize;
  } else {
    std::optional<size_t> length_bytes = 0;
    if (lengths == 1) length_bytes = parse_number(find_header(request_, "Content-Length"), 10);
    if (!length_bytes) return refuse(400);
    if (*length_bytes > kMaxBytes - position_) return refuse(413);
    left_bytes_ = *length_bytes;
    part_ = Part::kBody;
  }
  is_continue_wanted_ = is_same_token(find_header(request_, "Expect"), "100-continue");
  return std::nullopt;
}

HttpRequestReader::Outcome HttpRequestReader::parse_body() {
  if (bytes_.size() - position_ < left_bytes_) return State::kIncomplete;
  request_.body.assign(bytes_, position_, left_bytes_);
  position_ += left_bytes_;
  return State::kComplete;
}

HttpRequestReader::Outcome HttpRequestReader::parse_chunk_size() {
  const auto line = take_line();
  if (!line) return State::kIncomplete;
  const auto length_bytes = parse_number(trim_blanks(line->substr(0, line->find(';'))), 16);
  if (!length_bytes || !is_value(*line)) return refuse(400);
  left_bytes_ = *length_bytes;
  part_ = left_bytes_ == 0 ? Part::kTrailer : Part::kChunk;
  return std::nullopt;
}

HttpRequestReader::Outcome HttpRequestReader::parse_chunk() {
  // With the end of its line: a chunk that leaves no room for that could never be whole.
  const size_t most_bytes = kMaxBytes - position_;
  if (left_bytes_ > most_bytes || most_bytes - left_bytes_ < kLineEnd.size()) return refuse(413);
  if (bytes_.size() - position_ < left_bytes_ + kLineEnd.size()) return State::kIncomplete;
  request_.body.append(bytes_, position_, left_bytes_);
  position_ += left_bytes_;
  if (bytes_.compare(position_, kLineEnd.size(), kLineEnd) != 0) return refuse(400);
  position_ += kLineEnd.size();
  part_ = Part::kChunkSize;
  return std::nullopt;
}

HttpRequestReader::Outcome HttpRequestReader::parse_trailer() {
  const auto line = take_line();
  if (!line) return State::kIncomplete;
  if (!line->empty()) return std::nullopt;  // nobody here asks for one
  return State::kComplete;
}

std::optional<std::string_view> HttpRequestReader::take_line() {
  const size_t end = bytes_.find(kLineEnd, std::max(position_, searched_));
  if (end == bytes_.npos) {
    searched_ = bytes_.size() - std::min(bytes_.size(), kLineEnd.size() - 1);
    return std::nullopt;
  }
  const auto line = std::string_view(bytes_).substr(position_, end - position_);
  position_ = end + kLineEnd.size();
  return line;
}

}  // namespace gpuperf
