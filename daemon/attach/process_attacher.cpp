#include "daemon/attach/process_attacher.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/fmt/fmt.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "daemon/base/clock_tick.h"
#include "daemon/base/log.h"
#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

using std::chrono::milliseconds;

// Search for a thread 5 s, begin 10 s; leave 15 s; a look reads the mappings.
constexpr milliseconds kAttachTimeout{18'000};
constexpr milliseconds kDetachTimeout{18'000};
constexpr milliseconds kLookTimeout{500};

constexpr std::array<std::string_view, kAttachStates> kStates{"no_cuda", "cannot", "can",
                                                              "injected", "attached"};

milliseconds get_timeout(AttachAsk ask) {
  switch (ask) {
    case AttachAsk::kAttach:
      return kAttachTimeout;
    case AttachAsk::kDetach:
      return kDetachTimeout;
    case AttachAsk::kLook:
    case AttachAsk::kAdopt:
      return kLookTimeout;
  }
  return kLookTimeout;  // not reached
}

}  // namespace

// Signals are for the loop's thread.
void ProcessAttacher::start() {
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ProcessAttacher::stop() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  tasks_.close();
  thread_.join();
}

void ProcessAttacher::run() {
  (void)pthread_setname_np(pthread_self(), "attach");
  const Status dropped = setup_.drop_rights ? setup_.drop_rights() : absl::OkStatus();
  if (!dropped.ok()) {
    log_warn("privileges not dropped",
             {{"thread", "attach"}, {"error", std::string(dropped.message())}});
  }
  // Those that still wait at the stop are not begun: whoever asked is answered by the API's end.
  for (auto task = tasks_.pop(); task && !is_stopping_; task = tasks_.pop()) {
    (*task)();
  }
}

void ProcessAttacher::post(std::function<void()> task,
                           const std::function<void(const Status&)>& refuse) {
  if (tasks_.try_push(std::move(task))) return;
  refuse(absl::ResourceExhaustedError("too many processes are being attached to; try again"));
}

Result<ProcessAttacher::Answer> ProcessAttacher::ask(const AttachRequest& request,
                                                     const Fd* library) {
  const std::string_view bytes(reinterpret_cast<const char*>(&request), sizeof request);
  const int fd = library != nullptr ? library->get() : -1;
  Result<WorkerMessage> message =
      workers_.ask(bytes, std::span(&fd, library != nullptr ? 1 : 0), get_timeout(request.ask));
  // UNAVAILABLE would be said of the daemon.
  if (absl::IsUnavailable(message.status())) {
    return absl::AbortedError(std::string(message.status().message()) + "; try again");
  }
  RETURN_IF_ERROR(message.status());
  const std::optional<AttachReply> reply = decode_attach_reply(message->bytes);
  if (!reply) return absl::DataLossError("attach worker: no reply");
  return Answer{.reply = *reply, .connection = std::move(message->fds[0])};
}

void ProcessAttacher::hand_on(uint32_t pid, Answer& answer) const {
  if (!answer.connection.valid()) return;
  setup_.on_connection(
      pid, std::make_shared<Fd>(std::move(answer.connection)),
      {.held_ns = answer.reply.held_ns, .attached_unix_ns = answer.reply.attached_unix_ns});
}

AttachRow ProcessAttacher::make_row(uint32_t pid, const AttachReply& reply) const {
  const Result<uint64_t> ticks = read_start_ticks(setup_.proc_root, pid);
  AttachRow row{.process = {.pid = pid, .start_boot_ns = ticks.value_or(0) * kTickNs},
                .state = std::string(kStates[static_cast<size_t>(reply.state)]),
                .reason = std::string(get_refusal_name(reply.refusal)),
                .detail = reply.text,
                .hint = std::string(get_refusal_hint(reply.refusal)),
                .held_ns = reply.held_ns,
                .longest_hold_ns = reply.longest_hold_ns,
                .took_ns = reply.took_ns,
                .attached_unix_ns = reply.attached_unix_ns,
                .threads_tried = reply.threads_tried,
                .kept_kib = reply.kept_kib,
                .kept_fds = reply.kept_fds};
  if (row.state == "no_cuda" && reply.refusal != AttachRefusal::kNone) row.state = "cannot";
  row.owner = setup_.find_owner(row.process);
  if (row.owner.comm.empty()) row.owner.comm = reply.comm;
  return row;
}

Result<AttachRow> ProcessAttacher::attach(const AttachOrder& order) {
  const std::string path = setup_.find_library();
  const Fd library(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!library.valid()) return errno_status(errno, "injected library " + path);
  const AttachRequest request{.ask = AttachAsk::kAttach,
                              .pid = order.pid,
                              .accept_seccomp = order.accept_seccomp ? 1u : 0u};
  ASSIGN_OR_RETURN(Answer answer, ask(request, &library));
  AttachRow row = make_row(order.pid, answer.reply);
  log_info(answer.reply.refusal == AttachRefusal::kNone ? "attached" : "not attached",
           {{"pid", std::to_string(order.pid)},
            {"comm", row.owner.comm},
            {"held_us", std::to_string(row.held_ns / 1'000)},
            {"reason", row.reason},
            {"detail", row.detail}});
  hand_on(order.pid, answer);
  return row;
}

Result<AttachRow> ProcessAttacher::detach(uint32_t pid) {
  ASSIGN_OR_RETURN(const Answer answer, ask({.ask = AttachAsk::kDetach, .pid = pid}, nullptr));
  AttachRow row = make_row(pid, answer.reply);
  log_info(answer.reply.refusal == AttachRefusal::kNone ? "detached" : "not detached",
           {{"pid", std::to_string(pid)}, {"comm", row.owner.comm}, {"detail", row.detail}});
  return row;
}

std::vector<AttachRow> ProcessAttacher::list() {
  std::vector<AttachRow> rows;
  const auto pids = list_pids(setup_.proc_root);
  for (const uint32_t pid : pids.ok() ? *pids : std::vector<uint32_t>()) {
    const auto answer = ask({.ask = AttachAsk::kLook, .pid = pid}, nullptr);
    if (!answer.ok()) continue;  // one that holds back its mappings
    const AttachReply& reply = answer->reply;
    if (reply.state == AttachState::kNoCuda) continue;
    const bool is_of_interest =
        reply.refusal != AttachRefusal::kGone && reply.refusal != AttachRefusal::kStatic &&
        reply.refusal != AttachRefusal::kMusl && reply.refusal != AttachRefusal::kArchitecture;
    if (is_of_interest) rows.push_back(make_row(pid, reply));
  }
  return rows;
}

// True: it is attached.
bool ProcessAttacher::adopt(uint32_t pid) {
  auto answer = ask({.ask = AttachAsk::kAdopt, .pid = pid}, nullptr);
  if (!answer.ok() || answer->reply.state != AttachState::kAttached) return false;
  if (answer->connection.valid()) {
    log_info("attached process found again", {{"pid", std::to_string(pid)}});
  }
  hand_on(pid, *answer);
  return true;
}

void ProcessAttacher::post_attach(const AttachOrder& order, Done done) {
  post([this, order, done] { done(attach(order)); }, done);
}

void ProcessAttacher::post_detach(uint32_t pid, Done done) {
  post([this, pid, done] { done(detach(pid)); }, done);
}

void ProcessAttacher::post_list(ListDone done) {
  post([this, done] { done(list()); }, done);
}

void ProcessAttacher::post_adopt(uint32_t pid) {
  post([this, pid] { (void)adopt(pid); }, [](const Status&) {});
}

void ProcessAttacher::post_adopt_all(std::function<void(std::vector<uint32_t>)> done) {
  post(
      [this, done = std::move(done)] {
        std::vector<uint32_t> attached;
        const auto pids = list_pids(setup_.proc_root);
        for (const uint32_t pid : pids.ok() ? *pids : std::vector<uint32_t>()) {
          if (adopt(pid)) attached.push_back(pid);
        }
        done(std::move(attached));
      },
      [](const Status&) {});
}

}  // namespace gpuperf
