#include "daemon/base/worker_pool.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/worker_side.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

// Loading the program takes some 50 ms, more on a busy machine; nothing of others' has a part in
// it.
constexpr milliseconds kStartTimeout{5'000};
// After a start that failed.
constexpr milliseconds kRestartPause{10'000};
// One that waits for nothing but a request is gone within a millisecond of being killed.
constexpr milliseconds kEndPatience{100};

// What posix_spawn() takes, freed in the end.
class SpawnActions {
 public:
  SpawnActions() { (void)::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { (void)::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  // `socket` at its place, /dev/null before it, nothing behind it.
  bool keep_only(int socket) {
    bool done = ::posix_spawn_file_actions_adddup2(&actions_, socket, kWorkerSocket) == 0;
    for (int fd = 0; fd < kWorkerSocket; ++fd) {
      done &= ::posix_spawn_file_actions_addopen(&actions_, fd, "/dev/null", O_RDWR, 0) == 0;
    }
    return done && ::posix_spawn_file_actions_addclosefrom_np(&actions_, kWorkerSocket + 1) == 0;
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

bool has_ended(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; }

}  // namespace

WorkerPool::WorkerPool(Options options) : options_(std::move(options)) {}

WorkerPool::~WorkerPool() {
  end_idle();
  const TimePoint deadline = std::chrono::steady_clock::now() + kEndPatience;
  for (reap(); count_dying() > 0 && std::chrono::steady_clock::now() < deadline; reap()) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

Result<WorkerMessage> WorkerPool::ask(std::string_view request, std::span<const int> fds,
                                      milliseconds timeout) {
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(Worker worker, take());
    const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
    if (!send_message(worker.socket.get(), request, fds)) {
      abandon(std::move(worker));  // it had ended before, as idle ones do
      continue;
    }
    auto answer = receive_message(worker.socket.get(), options_.max_reply_bytes, deadline);
    if (answer.ok()) {
      keep(std::move(worker));
      return answer;
    }
    abandon(std::move(worker));
    if (absl::IsDeadlineExceeded(answer.status())) return answer.status();
    return absl::DataLossError(options_.role + " worker: it died of a request");
  }
  return absl::UnavailableError(options_.role + " worker: it takes no request");
}

Status WorkerPool::prepare() {
  ASSIGN_OR_RETURN(Worker worker, take());
  keep(std::move(worker));
  return absl::OkStatus();
}

Result<WorkerPool::Worker> WorkerPool::take() {
  {
    const MutexLock lock(mutex_);
    reap_locked();
    if (!idle_.empty()) {
      Worker worker = std::move(idle_.back());
      idle_.pop_back();
      return worker;
    }
    if (dying_.size() >= options_.max_dying) {
      return absl::UnavailableError(options_.role + " workers: those that were killed do not end");
    }
    if (std::chrono::steady_clock::now() < restart_at_) {
      return absl::UnavailableError(options_.role + " worker: could not be started before");
    }
  }
  Result<Worker> started = start();
  if (started.ok()) return started;
  log_warn("worker not started",
           {{"role", options_.role}, {"error", std::string(started.status().message())}});
  const MutexLock lock(mutex_);
  restart_at_ = std::chrono::steady_clock::now() + kRestartPause;
  return absl::UnavailableError(started.status().message());
}

Result<WorkerPool::Worker> WorkerPool::start() {
  ASSIGN_OR_RETURN(Worker worker, execute());
  const TimePoint deadline = std::chrono::steady_clock::now() + kStartTimeout;
  const auto ready = receive_message(worker.socket.get(), 0, deadline);
  if (ready.ok()) return worker;
  abandon(std::move(worker));
  return absl::UnavailableError("it did not begin: " + std::string(ready.status().message()));
}

Result<WorkerPool::Worker> WorkerPool::execute() const {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return errno_status(errno, "socketpair");
  }
  Worker worker{.socket = Fd(ends[0])};
  const Fd theirs(ends[1]);
  if (::fcntl(worker.socket.get(), F_SETFL, O_NONBLOCK) != 0) return errno_status(errno, "fcntl");
  std::vector<std::string> words{"gpuperf-" + options_.role, std::string(kWorkerArgument),
                                 options_.role, std::to_string(::getpid())};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // Of the environment only where this program found its libraries.
  constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";
  const char* const library_path = std::getenv(kLibraryPath);
  std::string libraries = std::string(kLibraryPath) + "=" + (library_path ? library_path : "");
  std::array<char*, 2> environment{library_path ? libraries.data() : nullptr, nullptr};
  SpawnActions actions;
  if (!actions.keep_only(theirs.get())) return absl::ResourceExhaustedError("no memory");
  const int error = ::posix_spawn(&worker.pid, "/proc/self/exe", actions.get(), nullptr,
                                  arguments.data(), environment.data());
  if (error != 0) return errno_status(error, "/proc/self/exe: execute");
  return worker;
}

void WorkerPool::keep(Worker worker) {
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(worker));
}

// Our own child that nobody has waited for: the pid is still its.
void WorkerPool::abandon(Worker worker) {
  (void)::kill(worker.pid, SIGKILL);
  const MutexLock lock(mutex_);
  dying_.push_back(worker.pid);
}

void WorkerPool::end_idle() {
  std::vector<Worker> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(idle_);
  }
  for (Worker& worker : ended) abandon(std::move(worker));
}

void WorkerPool::reap() {
  const MutexLock lock(mutex_);
  reap_locked();
}

void WorkerPool::reap_locked() {
  std::erase_if(dying_, has_ended);
  std::erase_if(idle_, [](const Worker& worker) { return has_ended(worker.pid); });
}

size_t WorkerPool::count_dying() const {
  const MutexLock lock(mutex_);
  return dying_.size();
}

std::vector<pid_t> WorkerPool::list_idle() const {
  const MutexLock lock(mutex_);
  std::vector<pid_t> pids;
  for (const Worker& worker : idle_) pids.push_back(worker.pid);
  return pids;
}

}  // namespace gpuperf
