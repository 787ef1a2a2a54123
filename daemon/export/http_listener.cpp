#include "daemon/export/http_listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/log.h"

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

// A scrape is rare and short: Prometheus sends one every few seconds and each takes milliseconds.
// The page's browser opens up to six connections, some of them only in case it needs one.
constexpr size_t kThreads = 12;
constexpr size_t kWaiting = 32;
constexpr std::chrono::seconds kRequestTimeout{5};
// From the first byte of the answer. Longer than Prometheus' default scrape timeout of 10 s: a
// reader that slow has given up.
constexpr std::chrono::seconds kAnswerTimeout{15};
constexpr std::chrono::seconds kRetryInterval{1};
// Nothing we serve takes a body; this only lets a POST be answered with 404.
constexpr size_t kMaxBodyBytes = size_t{64} * 1024;

// One connection as httplib reads and writes it, with a deadline for all reads, counted from the
// beginning, and one for all writes, counted from the first: making an answer is not the client's
// time.
class DeadlineStream final : public httplib::Stream {
 public:
  explicit DeadlineStream(socket_t socket) : socket_(socket) {}

  bool is_readable() const override {
    return begin_ < end_ || wait(POLLIN, start_ + kRequestTimeout);
  }
  bool is_writable() const override {
    if (!answer_start_) answer_start_ = steady_clock::now();
    return wait(POLLOUT, *answer_start_ + kAnswerTimeout);
  }

  ssize_t read(char* target, size_t size) override {
    if (begin_ == end_) {
      if (!is_readable()) return -1;
      // Read in blocks: httplib asks for header lines byte by byte.
      const ssize_t got = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    const size_t taken = std::min(size, end_ - begin_);
    std::memcpy(target, buffer_.data() + begin_, taken);
    begin_ += taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!is_writable()) return -1;
    return send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
    auto* const address = reinterpret_cast<sockaddr*>(&peer);
    // Both empty where the client has gone already: nobody's address.
    if (getpeername(socket_, address, &length) != 0 ||
        getnameinfo(address, length, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return;
    }
    ip = host;
    port = std::atoi(service);
  }
  // Only for access logs, which we do not write.
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events, steady_clock::time_point deadline) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd poll_fd{.fd = socket_, .events = events, .revents = 0};
    return poll(&poll_fd, 1, static_cast<int>(left.count())) == 1 && (poll_fd.revents & events);
  }

  const socket_t socket_;
  const steady_clock::time_point start_ = steady_clock::now();
  mutable std::optional<steady_clock::time_point> answer_start_;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

// kThreads workers behind a queue of kWaiting. httplib makes one each time it begins to accept.
class HttpListener::Pool final : public httplib::TaskQueue {
 public:
  explicit Pool(HttpListener& listener) : listener_(listener) {
    for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
    set_accepting(true);
  }

  // Waits for room, and with it the accepting thread. A task always runs: it owns a connection.
  void enqueue(std::function<void()> task) override {
    MutexLock lock(listener_.mutex_);
    while (tasks_.size() >= kWaiting && !listener_.stopping_ && !ending_) {
      listener_.changed_.wait(lock);
    }
    tasks_.push_back(std::move(task));
    listener_.changed_.notify_all();
  }

  void shutdown() override {
    set_accepting(false);
    {
      const MutexLock lock(listener_.mutex_);
      ending_ = true;
    }
    listener_.changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void set_accepting(bool accepting) {
    const MutexLock lock(listener_.mutex_);
    listener_.accepting_ = accepting && !listener_.stopping_;
    // stop() came before httplib's loop began: end the loop before its first turn.
    if (accepting && listener_.stopping_) listener_.httplib::Server::stop();
  }

  void work() {
    MutexLock lock(listener_.mutex_);
    while (true) {
      while (!ending_ && tasks_.empty()) listener_.changed_.wait(lock);
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      listener_.changed_.notify_all();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  HttpListener& listener_;
  std::vector<std::thread> threads_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(listener_.mutex_);
  bool ending_ ABSL_GUARDED_BY(listener_.mutex_) = false;
};

HttpListener::HttpListener() {
  new_task_queue = [this] { return new Pool(*this); };
  set_payload_max_length(kMaxBodyBytes);
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    // Without it a restart within a minute fails; with httplib's default, SO_REUSEPORT, a second
    // daemon would silently take half of the scrapes.
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

HttpListener::~HttpListener() = default;

Status HttpListener::open(HostPort& address) {
  RETURN_IF_ERROR(check_listenable(address));
  if (address.port == 0) {
    const int port = bind_to_any_port(address.host);
    if (port > 0) address.port = static_cast<uint16_t>(port);
  } else if (!bind_to_port(address.host, address.port)) {
    return absl::UnavailableError(format_host_port(address) +
                                  ": listen: taken by another program just now");
  }
  if (address.port == 0) {
    return absl::UnavailableError(format_host_port(address) + ": listen: no free port");
  }
  address_ = address;
  return absl::OkStatus();
}

void HttpListener::run() {
  bool bound = true;
  while (true) {
    if (bound) (void)listen_after_bind();  // its answer says less than stopping_ does
    MutexLock lock(mutex_);
    if (stopping_) return;
    log_error("http_accept_failed", {{"address", format_host_port(address_)},
                                     {"hint", "out of file descriptors? trying again"}});
    const auto retry_at = steady_clock::now() + kRetryInterval;
    while (!stopping_ && changed_.wait_until(lock, retry_at)) continue;
    if (stopping_) return;
    lock.unlock();
    bound = bind_to_port(address_.host, address_.port);
  }
}

void HttpListener::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  // Not while httplib is outside its loop: it would close a descriptor that is no longer its own.
  if (accepting_) httplib::Server::stop();
  accepting_ = false;
  for (const socket_t connection : connections_) (void)::shutdown(connection, SHUT_RDWR);
}

bool HttpListener::process_and_close_socket(socket_t connection) {
  const Fd owned(connection);
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    connections_.insert(connection);
  }
  DeadlineStream stream(connection);
  bool closed_by_client = false;
  const bool answered = process_request(stream, /*close_connection=*/true, closed_by_client, {});
  const MutexLock lock(mutex_);
  // Before `owned` closes it: stop() must not shut down a descriptor that is someone else's by
  // then.
  connections_.erase(connection);
  return answered;
}

}  // namespace gpuperf
