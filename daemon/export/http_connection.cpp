#include "daemon/export/http_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/fmt/fmt.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace gpuperf {
namespace {

// Of one connection before the next one's turn.
constexpr size_t kSendBytesPerTurn = size_t{1} << 20;
// What a client has on the way when it is refused: the kernel's buffers of both ends.
constexpr size_t kMaxDrainBytes = size_t{1} << 20;

constexpr struct {
  int status;
  std::string_view reason;
} kReasons[] = {
    {200, "OK"},
    {202, "Accepted"},
    {302, "Found"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {406, "Not Acceptable"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

std::string_view find_reason(int status) {
  const auto row = std::ranges::find(kReasons, status, [](const auto& r) { return r.status; });
  return row == std::end(kReasons) ? "Other" : row->reason;
}

std::string format_head(const HttpResponse& response) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
      response.status, find_reason(response.status), response.media_type,
      response.body.bytes.size());
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

bool is_only_busy(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

}  // namespace

HttpConnection::HttpConnection(Fd socket, HttpPeer peer, Moment now)
    : socket_(std::move(socket)), peer_(std::move(peer)), phase_began_(now), idle_since_(now) {
  const int yes = 1;
  // Best effort: without it the end of an answer waits for an acknowledgement.
  (void)setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void HttpConnection::enter(Phase phase, Moment now) {
  phase_ = phase;
  phase_began_ = idle_since_ = now;
}

HttpConnection::Step HttpConnection::read(std::span<char> room) {
  const ssize_t got = recv(fd(), room.data(), room.size(), 0);
  if (got < 0 && is_only_busy(errno)) return Step::kWaits;
  if (got <= 0) return Step::kEnded;
  const auto state = reader_.take({room.data(), static_cast<size_t>(got)});
  if (state != HttpRequestReader::State::kIncomplete) return Step::kDone;
  if (reader_.take_continue_wanted()) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    // There is room: nothing was sent before. Without it the client sends its body a second later.
    (void)::send(fd(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
  }
  return Step::kWaits;
}

HttpRequest HttpConnection::release_request(Moment now) {
  enter(Phase::kAnswering, now);
  HttpRequest request = reader_.release();
  request.peer_address = peer_.address;
  is_head_request_ = request.method == "HEAD";
  return request;
}

void HttpConnection::begin_answer(HttpResponse response, Moment now) {
  enter(Phase::kSending, now);
  response_ = std::move(response);
  head_ = format_head(response_);
  if (is_head_request_) response_.body = {};
}

HttpConnection::Step HttpConnection::send(Moment now) {
  const std::string_view body = response_.body.bytes;
  const size_t all_bytes = head_.size() + body.size();
  const size_t turn_ends = std::min(all_bytes, sent_bytes_ + kSendBytesPerTurn);
  while (sent_bytes_ < turn_ends) {
    const auto head_left = std::string_view(head_).substr(std::min(sent_bytes_, head_.size()));
    const size_t body_sent = sent_bytes_ - std::min(sent_bytes_, head_.size());
    iovec parts[] = {
        {const_cast<char*>(head_left.data()), head_left.size()},
        {const_cast<char*>(body.data()) + body_sent, body.size() - body_sent},
    };
    const msghdr message{.msg_iov = parts, .msg_iovlen = std::size(parts)};
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) return is_only_busy(errno) ? Step::kWaits : Step::kEnded;
    sent_bytes_ += static_cast<size_t>(sent);
    idle_since_ = now;
  }
  return sent_bytes_ == all_bytes ? Step::kDone : Step::kWaits;
}

void HttpConnection::begin_draining(Moment now) {
  enter(Phase::kDraining, now);
  response_ = {};
  (void)shutdown(fd(), SHUT_WR);  // fails where the client has gone, which draining sees
}

HttpConnection::Step HttpConnection::drain(std::span<char> room) {
  const ssize_t got = recv(fd(), room.data(), room.size(), 0);
  if (got < 0 && is_only_busy(errno)) return Step::kWaits;
  if (got <= 0) return Step::kEnded;
  drained_bytes_ += static_cast<size_t>(got);
  return drained_bytes_ < kMaxDrainBytes ? Step::kWaits : Step::kEnded;
}

}  // namespace gpuperf
