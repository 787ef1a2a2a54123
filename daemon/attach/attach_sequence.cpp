#include "daemon/attach/attach_sequence.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "daemon/attach/entry_into.h"
#include "daemon/base/clock.h"
#include "daemon/base/process_status.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

// For the library to be loaded, which a busy dynamic loader delays; and for it to leave: 2 s for a
// launch that ends CUPTI.
constexpr std::chrono::seconds kBeginTimeout{10};
constexpr std::chrono::seconds kLeaveTimeout{15};
constexpr std::chrono::seconds kLockTimeout{2};
constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = 2'000'000};
constexpr size_t kMaxEnvironmentBytes = size_t{1} << 20;

uint64_t to_ns(steady_clock::duration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

// The value of NAME in an environment ("A=1\0B=2\0"); empty where it is not set.
std::string_view find_variable(std::string_view environment, std::string_view name) {
  for (size_t at = 0; at < environment.size();) {
    const std::string_view entry = environment.substr(at, environment.find('\0', at) - at);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
      return entry.substr(name.size() + 1);
    }
    at += entry.size() + 1;
  }
  return {};
}

bool is_set(std::string_view value) { return !value.empty() && value != "0"; }

template <typename T>
Status write_value(uint32_t pid, uint64_t address, T value) {
  return write_memory(static_cast<pid_t>(pid), address, std::as_bytes(std::span(&value, 1)));
}

// Until the block's state is no longer `state`. Nothing: it is after that time, or the process has
// ended.
std::optional<AttachBlock> wait_for_change(const AttachTarget& target, uint64_t address,
                                           uint32_t state, std::chrono::seconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const ReadMemory read = make_direct_reader(target.pid);
  while (steady_clock::now() < deadline) {
    const auto copy = read_value<gpuperf_attach_block>(read, address);
    if (!copy) return std::nullopt;
    if (copy->state != state) {
      AttachBlock block{.address = address, .copy = *copy};
      block.copy.text[sizeof(block.copy.text) - 1] = '\0';
      return block;
    }
    (void)nanosleep(&kBetweenLooks, nullptr);
  }
  return std::nullopt;
}

// Of a call of ours that is not allowed.
std::string_view describe_missing_right() {
  return has_own_capability(CAP_SYS_PTRACE) ? ": gpuperfd has CAP_SYS_PTRACE, so a seccomp filter "
                                              "or a security module forbids it, "
                                              "or gpuperfd runs in a user namespace of its own"
                                            : ": gpuperfd lacks CAP_SYS_PTRACE";
}

uint32_t count_library_kib(const AttachTarget& target) {
  uint64_t bytes = 0;
  for (const MemoryMap& map : target.maps) {
    const bool is_ours = map.path.find("libgpuperf_injector.so") != std::string::npos ||
                         map.path == "/memfd:" GPUPERF_ATTACH_BLOCK_NAME;
    if (is_ours) bytes += map.end_address - map.start_address;
  }
  return static_cast<uint32_t>(bytes / 1024);
}

}  // namespace

AttachSequence::Answer AttachSequence::answer(const Fd& library) {
  const auto began = steady_clock::now();
  if (lock_process() && read_target()) {
    switch (request_.ask) {
      case AttachAsk::kLook:
        look();
        break;
      case AttachAsk::kAttach:
        attach(library);
        break;
      case AttachAsk::kDetach:
        detach();
        break;
      case AttachAsk::kAdopt:
        adopt();
        break;
    }
  }
  answer_.reply.took_ns = to_ns(steady_clock::now() - began);
  return std::move(answer_);
}

void AttachSequence::refuse(AttachRefusal why, std::string_view text) {
  AttachReply& reply = answer_.reply;
  reply.refusal = why;
  reply.state = why == AttachRefusal::kNoCuda ? AttachState::kNoCuda : AttachState::kCannot;
  const size_t length = std::min(text.size(), sizeof(reply.text) - 1);
  std::memcpy(reply.text, text.data(), length);
  reply.text[length] = '\0';
}

void AttachSequence::refuse(const Status& status) {
  AttachRefusal why = AttachRefusal::kFailed;
  if (absl::IsFailedPrecondition(status)) why = AttachRefusal::kNoSafeThread;
  if (absl::IsPermissionDenied(status)) why = AttachRefusal::kNotPermitted;
  if (absl::IsNotFound(status)) why = AttachRefusal::kGone;
  std::string text(status.message());
  if (why == AttachRefusal::kNotPermitted) text += describe_missing_right();
  refuse(why, text);
}

bool AttachSequence::read_target() {
  Result<AttachTarget> target = read_attach_target(files_, request_.pid);
  if (!target.ok()) {
    refuse(target.status());
    // Of such a process it is not known whether it uses CUDA: it is in no list.
    if (request_.ask == AttachAsk::kLook) answer_.reply.state = AttachState::kNoCuda;
    return false;
  }
  target_ = *std::move(target);
  block_ = read_block(target_);
  std::copy_n(target_.comm.data(), std::min(target_.comm.size(), sizeof(AttachReply::comm) - 1),
              answer_.reply.comm);
  return true;
}

// Processes of a mount namespace share its lock: it is the same file for every daemon, in whatever
// namespaces, and the kernel ends it with its holder.
bool AttachSequence::lock_process() {
  if (request_.ask == AttachAsk::kLook || request_.ask == AttachAsk::kAdopt) return true;
  const std::string path = fmt::format("{}/{}/ns/mnt", files_.root(), request_.pid);
  lock_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock_.valid()) return true;  // read_target() says why
  const auto deadline = steady_clock::now() + kLockTimeout;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return true;
    if (steady_clock::now() >= deadline) {
      refuse(AttachRefusal::kFailed, "another gpuperfd is attaching to a process; try again");
      return false;
    }
    (void)nanosleep(&kBetweenLooks, nullptr);
  }
  return true;
}

Refused AttachSequence::find_refusal_to_enter() {
  if (block_ && block_->copy.pid != target_.inner_pid) {
    return {AttachRefusal::kForked, "it is a fork of a process that was attached to"};
  }
  if (block_ && block_->copy.state == GPUPERF_ATTACH_ATTACHED) {
    return {AttachRefusal::kAttached, "the library is in it already: attached"};
  }
  // The block and the descriptors in it are that thread's.
  if (block_ && block_->copy.state == GPUPERF_ATTACH_BEGINNING && block_->copy.thread != 0 &&
      has_thread(files_, target_, block_->copy.thread)) {
    return {AttachRefusal::kFailed,
            "an earlier attach has not ended: the library's thread waits for the dynamic loader, "
            "and begins once that is free"};
  }
  if (!block_ && target_.has_injector) {
    return {AttachRefusal::kInjected, "the library is in it already, from its start"};
  }
  const Refused refused = find_refusal(files_, target_);
  if (refused.why != AttachRefusal::kNone) return refused;
  const auto environment = files_.read_environment(request_.pid, kMaxEnvironmentBytes);
  if (environment.ok()) {
    const std::string_view text = environment->text;
    if (is_set(find_variable(text, "GPUPERF_DISABLE"))) {
      return {AttachRefusal::kDisabled, "its environment has GPUPERF_DISABLE"};
    }
    if (find_variable(text, "GPUPERF_LAUNCH_HOOKS") == "0") flags_ |= GPUPERF_ATTACH_NO_HOOKS;
  }
  if (target_.seccomp != 0 && request_.accept_seccomp == 0) {
    return {AttachRefusal::kSeccomp,
            "a seccomp filter limits its system calls, and gpuperfd cannot read it (that needs "
            "CAP_SYS_ADMIN): if it ended the process for socketpair, recvmsg, mmap, clone, "
            "openat, futex, poll, sendto, eventfd2 or membarrier, attaching would end it"};
  }
  return {};
}

void AttachSequence::look() {
  if (!target_.has_cuda) return;  // whatever else forbids it: nobody asks
  const Refused refused = find_refusal_to_enter();
  AttachReply& reply = answer_.reply;
  if (refused.why == AttachRefusal::kNone) {
    reply.state = AttachState::kCan;
  } else if (refused.why == AttachRefusal::kAttached) {
    reply.state = AttachState::kAttached;
  } else if (refused.why == AttachRefusal::kInjected) {
    reply.state = AttachState::kInjected;
  } else {
    refuse(refused.why, refused.text);
  }
  if (!block_) return;
  reply.held_ns = block_->copy.held_ns;
  reply.attached_unix_ns = block_->copy.attached_unix_ns;
}

bool AttachSequence::find_pidfd() {
  pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, request_.pid, 0)));
  if (!pidfd_.valid()) {
    if (errno == ENOSYS) {
      refuse(AttachRefusal::kOldKernel, "this kernel has no pidfd_open");
    } else {
      refuse(errno_status(errno, "pidfd_open"));
    }
    return false;
  }
  // Of a descriptor that no process has: a kernel that knows the call says so.
  (void)syscall(SYS_pidfd_getfd, pidfd_.get(), -1, 0);
  if (errno == ENOSYS) {
    refuse(AttachRefusal::kOldKernel, "this kernel has no pidfd_getfd");
    return false;
  }
  if (errno == EPERM) {
    refuse(errno_status(EPERM, "pidfd_getfd"));
    return false;
  }
  return true;
}

void AttachSequence::attach(const Fd& library) {
  const Refused refused = find_refusal_to_enter();
  if (refused.why != AttachRefusal::kNone) return refuse(refused.why, refused.text);
  if (!find_pidfd()) return;
  const Result<LibraryFile> file = read_library_file(library.get());
  if (!file.ok()) return refuse(AttachRefusal::kFailed, std::string(file.status().message()));
  const Result<LibcFunctions> libc = find_libc_functions(files_, code_files_, target_);
  if (!libc.ok()) return refuse(AttachRefusal::kFailed, std::string(libc.status().message()));
  // A library of another version is loaded beside the old one, which stays idle.
  if (block_ && block_->copy.entry != 0 && block_->copy.library_version != file->version) {
    block_->copy.entry = 0;
  }
  EntryInto entry({.files = files_,
                   .code_files = code_files_,
                   .target = target_,
                   .libc = *libc,
                   .library = *file,
                   .pidfd = pidfd_,
                   .flags = flags_,
                   .block = block_});
  Result<EntryInto::Entered> entered = entry.enter();
  AttachReply& reply = answer_.reply;
  reply.threads_tried = entry.threads_tried();
  reply.held_ns = to_ns(entry.held());
  reply.longest_hold_ns = to_ns(entry.longest_hold());
  if (absl::IsPermissionDenied(entered.status())) {
    // Another tracer has come meanwhile, or a right is missing.
    const Result<AttachTarget> now = read_attach_target(files_, request_.pid);
    const Refused refused_now = now.ok() ? find_refusal(files_, *now) : Refused{};
    if (refused_now.why == AttachRefusal::kTraced) return refuse(refused_now.why, refused_now.text);
  }
  if (!entered.ok()) return refuse(entered.status());
  const auto begun =
      wait_for_change(target_, entered->block_address, GPUPERF_ATTACH_BEGINNING, kBeginTimeout);
  if (!begun) {
    return refuse(AttachRefusal::kFailed,
                  "the library has not begun within 10 s: its thread may wait for the dynamic "
                  "loader; it will begin once that is free");
  }
  if (begun->copy.state != GPUPERF_ATTACH_ATTACHED) {
    return refuse(AttachRefusal::kFailed,
                  fmt::format("the library could not begin: {}", begun->copy.text));
  }
  reply.attached_unix_ns = static_cast<uint64_t>(SystemClock().unix_ns());
  const uint64_t block = entered->block_address;
  (void)write_value(request_.pid, block + offsetof(gpuperf_attach_block, attached_unix_ns),
                    reply.attached_unix_ns);
  (void)write_value(request_.pid, block + offsetof(gpuperf_attach_block, held_ns), reply.held_ns);
  reply.state = AttachState::kAttached;
  answer_.connection = std::move(entered->connection);
}

bool AttachSequence::is_attached() {
  if (block_ && block_->copy.state == GPUPERF_ATTACH_ATTACHED &&
      block_->copy.pid == target_.inner_pid) {
    return true;
  }
  refuse(AttachRefusal::kNotAttached, "it is not attached");
  return false;
}

void AttachSequence::detach() {
  if (!is_attached()) return;
  const uint32_t yes = 1;
  const Status written =
      write_value(request_.pid, block_->address + offsetof(gpuperf_attach_block, detach), yes);
  if (!written.ok()) return refuse(written);
  const auto left =
      wait_for_change(target_, block_->address, GPUPERF_ATTACH_ATTACHED, kLeaveTimeout);
  if (!left) {
    return refuse(AttachRefusal::kFailed,
                  "the library has not left within 15 s; it leaves as soon as it can");
  }
  const Result<AttachTarget> after = read_attach_target(files_, request_.pid);
  AttachReply& reply = answer_.reply;
  reply.kept_kib = left->copy.kept_kib + (after.ok() ? count_library_kib(*after) : 0);
  reply.kept_fds = left->copy.kept_fds;
  reply.state = AttachState::kCan;
  std::memcpy(reply.text, left->copy.text, std::min(sizeof(reply.text), sizeof(left->copy.text)));
}

void AttachSequence::adopt() {
  if (!is_attached()) return;
  answer_.reply.state = AttachState::kAttached;
  if (block_->copy.daemon_fd < 0) return;  // it offers none now
  if (!find_pidfd()) return;
  // Taken once only: two readers would share what the library sends. If we end before the daemon
  // has answered, the library offers another.
  const int32_t none = -1;
  const Status written =
      write_value(request_.pid, block_->address + offsetof(gpuperf_attach_block, daemon_fd), none);
  if (!written.ok()) return refuse(written);
  answer_.connection =
      Fd(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd_.get(), block_->copy.daemon_fd, 0)));
  if (!answer_.connection.valid()) {
    return refuse(AttachRefusal::kFailed, "the connection that it offers cannot be taken");
  }
  AttachReply& reply = answer_.reply;
  reply.held_ns = block_->copy.held_ns;
  reply.attached_unix_ns = block_->copy.attached_unix_ns;
}

}  // namespace gpuperf
