#include "daemon/attach/entry_into.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "daemon/probe/elf/elf_exports.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kStubBytes = 2 * kPageBytes;  // it may lie across two pages
constexpr int kLooks = 3;                        // at one thread, until it stands still
constexpr size_t kMaxThreads = 256;              // examined in one round
// How long a process whose threads never wait for long is searched, and how often.
constexpr std::chrono::seconds kSearchTimeout{5};
constexpr timespec kBetweenRounds{.tv_sec = 0, .tv_nsec = 5'000'000};

// Arguments on the held thread's stack.
struct Scratch {
  int32_t sockets[2];
  uint64_t thread;
  msghdr message;
  iovec part;
  uint64_t byte;
  alignas(16) char control[CMSG_SPACE(2 * sizeof(int))];
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// "202" of "202 0x7f.. ..": the system call that the thread waits in; nothing: it runs.
std::optional<uint64_t> read_waiting_call(const std::string& task) {
  const auto text = read_bounded_text(task + "/syscall", 256);
  if (!text.ok() || text->text.empty() || text->text[0] < '0' || text->text[0] > '9') {
    return std::nullopt;
  }
  return std::strtoull(text->text.c_str(), nullptr, 10);
}

// What a call in the process failed with says nothing of the daemon's rights.
Status refused_within(int64_t result, std::string_view call) {
  const Status status = errno_status(static_cast<int>(-result), call);
  return absl::AbortedError(std::string(status.message()));
}

}  // namespace

Result<LibraryFile> read_library_file(int fd) {
  ASSIGN_OR_RETURN(const CodeFile file, CodeFile::open(fd));
  ASSIGN_OR_RETURN(const auto sections, file.elf().read_sections());
  ASSIGN_OR_RETURN(const ElfExports exports, ElfExports::open(file.elf(), sections));
  ASSIGN_OR_RETURN(const auto stub, exports.find(GPUPERF_ATTACH_STUB));
  if (!stub) {
    return absl::FailedPreconditionError(
        "the injected library is of another version than gpuperfd");
  }
  const auto offset = file.find_offset(stub->vaddr);
  const NamedSection* const id = file.find_section(".note.gnu.build-id");
  if (!offset || id == nullptr) {
    return absl::DataLossError("the injected library has no build id");
  }
  constexpr uint64_t kNoteHeadBytes = 16;
  LibraryFile library{.fd = fd, .stub_offset_bytes = *offset};
  RETURN_IF_ERROR(file.elf().read(id->offset_bytes + kNoteHeadBytes,
                                  std::as_writable_bytes(std::span(&library.version, 1))));
  return library;
}

std::vector<pid_t> EntryInto::list_waiting_threads() const {
  const std::string folder = fmt::format("{}/{}/task", setup_.files.root(), setup_.target.pid);
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto call = read_waiting_call(entry->path().string());
    if (!call || !is_restartable_wait(*call)) continue;
    threads.push_back(static_cast<pid_t>(std::atoi(entry->path().filename().c_str())));
    if (threads.size() >= kMaxThreads) break;
  }
  // The main thread last: others matter less to most programs.
  std::ranges::sort(threads, std::greater());
  return threads;
}

Result<EntryInto::Entered> EntryInto::enter() {
  const auto deadline = steady_clock::now() + kSearchTimeout;
  do {
    for (const pid_t tid : list_waiting_threads()) {
      Result<std::optional<Entered>> entered = try_thread(tid);
      if (!entered.ok()) return entered.status();
      if (*entered) return **std::move(entered);
      if (steady_clock::now() >= deadline) break;
    }
    (void)nanosleep(&kBetweenRounds, nullptr);
  } while (steady_clock::now() < deadline);
  return absl::FailedPreconditionError(describe_objections());
}

std::string EntryInto::describe_objections() const {
  if (objections_.empty()) {
    return fmt::format("no thread waited in a system call within {} s", kSearchTimeout.count());
  }
  std::string text = "no thread is at a safe point: ";
  bool is_first = true;
  for (const auto& [objection, count] : objections_) {
    text += fmt::format("{}{} looks found it {}", is_first ? "" : ", ", count, objection);
    is_first = false;
  }
  return text;
}

Result<StackImage> EntryInto::take_image(const HeldThread& thread) const {
  StackImage image{.registers = thread.state().registers};
  const MemoryMap* const stack = find_map(setup_.target.maps, image.registers.rsp);
  if (stack == nullptr) return image;  // the look says so
  image.bytes.resize(
      std::min<uint64_t>(stack->end_address - image.registers.rsp, kStackImageBytes));
  RETURN_IF_ERROR(thread.read(image.registers.rsp, image.bytes));
  return image;
}

// Stops the thread, lets it wait on while its stack is walked, and stops it again: where it has not
// moved, what was found holds.
Result<bool> EntryInto::find_safe_point(HeldThread& thread) {
  StackImage known;
  for (int look = 0; look < kLooks; ++look) {
    RETURN_IF_ERROR(thread.stop());
    ASSIGN_OR_RETURN(StackImage image, take_image(thread));
    const bool stands_still =
        look > 0 && image.registers.rip == known.registers.rip &&
        image.registers.rsp == known.registers.rsp && image.registers.rbp == known.registers.rbp &&
        image.registers.orig_rax == known.registers.orig_rax && image.bytes == known.bytes;
    if (stands_still) return true;
    RETURN_IF_ERROR(thread.resume());
    const std::string objection = safe_point_.find_objection(image);
    if (!objection.empty()) {
      ++objections_[objection];
      return false;
    }
    known = std::move(image);
  }
  ++objections_["moving"];
  return false;
}

Result<std::optional<EntryInto::Entered>> EntryInto::try_thread(pid_t tid) {
  ++tried_;
  HeldThread thread(tid);
  const Status seized = thread.seize();
  if (absl::IsNotFound(seized)) return std::optional<Entered>();
  RETURN_IF_ERROR(seized);
  const Result<bool> safe = find_safe_point(thread);
  if (absl::IsPermissionDenied(safe.status())) return safe.status();
  if (!safe.ok() || !*safe) {
    if (!safe.ok()) ++objections_["running again"];
    return std::optional<Entered>();
  }
  uint64_t errno_offset = 0;
  int32_t error = 0;
  const uint64_t at = setup_.libc.errno_offset_at;
  const bool has_errno =
      at != 0 && thread.read(at, std::as_writable_bytes(std::span(&errno_offset, 1))).ok() &&
      thread
          .read(thread.state().registers.fs_base + errno_offset,
                std::as_writable_bytes(std::span(&error, 1)))
          .ok();
  Result<Entered> entered = make_calls(thread);
  // None of the calls changes it unless it fails.
  if (has_errno) {
    (void)thread.write(thread.state().registers.fs_base + errno_offset, bytes_of(error));
  }
  const Status let_go = thread.let_go();
  held_ = thread.held();
  longest_ = thread.longest_hold();
  if (!entered.ok()) return entered.status();
  RETURN_IF_ERROR(let_go);
  return std::optional<Entered>(*std::move(entered));
}

Result<int64_t> EntryInto::system_call(HeldThread& thread,
                                       std::initializer_list<uint64_t> words) const {
  const uint64_t number = *words.begin();
  ASSIGN_OR_RETURN(const int64_t result,
                   thread.call(setup_.libc.syscall, std::span(words.begin(), words.size()),
                               std::span(&number, 1)));
  return result;
}

// A pair of sockets: the first stays the process's.
Result<std::array<int32_t, 2>> EntryInto::make_connection(HeldThread& thread) {
  const uint64_t at = thread.scratch_address() + offsetof(Scratch, sockets);
  ASSIGN_OR_RETURN(const int64_t result,
                   system_call(thread, {SYS_socketpair, AF_UNIX,
                                        SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, at}));
  if (result < 0) return refused_within(result, "socketpair in the process");
  std::array<int32_t, 2> sockets{};
  RETURN_IF_ERROR(thread.read(at, std::as_writable_bytes(std::span(sockets))));
  made_fds_.insert(made_fds_.end(), sockets.begin(), sockets.end());
  return sockets;
}

// Gives the process a descriptor of the library and one of the block, through the connection.
Result<std::array<int32_t, 2>> EntryInto::pass_files(HeldThread& thread, int32_t socket,
                                                     const Fd& connection, int block_fd) {
  const std::array<int, 2> fds{setup_.library.fd, block_fd};
  Scratch scratch{};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = scratch.control;
  message.msg_controllen = sizeof scratch.control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(head), fds.data(), sizeof fds);
  if (sendmsg(connection.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return errno_status(errno, "send the library to the process");
  }
  const uint64_t base = thread.scratch_address();
  // NOLINTBEGIN(performance-no-int-to-ptr): addresses of the other process
  scratch.part = {reinterpret_cast<void*>(base + offsetof(Scratch, byte)), 1};
  scratch.message = {};
  scratch.message.msg_iov = reinterpret_cast<iovec*>(base + offsetof(Scratch, part));
  scratch.message.msg_iovlen = 1;
  scratch.message.msg_control = reinterpret_cast<void*>(base + offsetof(Scratch, control));
  scratch.message.msg_controllen = sizeof scratch.control;
  // NOLINTEND(performance-no-int-to-ptr)
  // A descriptor that does not come reads as -1: 0 may be one.
  std::memset(scratch.control, 0xff, sizeof scratch.control);
  RETURN_IF_ERROR(thread.write(base, bytes_of(scratch)));
  ASSIGN_OR_RETURN(
      const int64_t result,
      system_call(thread, {SYS_recvmsg, static_cast<uint64_t>(socket),
                           base + offsetof(Scratch, message), MSG_CMSG_CLOEXEC | MSG_DONTWAIT}));
  if (result < 0) return refused_within(result, "recvmsg in the process");
  std::array<int32_t, 2> got{-1, -1};
  RETURN_IF_ERROR(thread.read(base + offsetof(Scratch, control) + CMSG_LEN(0),
                              std::as_writable_bytes(std::span(got))));
  made_fds_.insert(made_fds_.end(), got.begin(), got.end());
  if (got[0] < 0 || got[1] < 0) {
    return absl::AbortedError(
        "the process was given no descriptor of the library: a security module forbids it, or it "
        "has no descriptor left");
  }
  return got;
}

Status EntryInto::map_block(HeldThread& thread, int32_t fd, gpuperf_attach_block& block,
                            uint64_t& address) {
  const std::array<uint64_t, 6> words{
      0,          GPUPERF_ATTACH_BLOCK_BYTES, PROT_READ | PROT_WRITE,
      MAP_SHARED, static_cast<uint64_t>(fd),  0};
  const uint64_t number = SYS_mmap;
  ASSIGN_OR_RETURN(const int64_t result,
                   thread.call(setup_.libc.mmap, words, std::span(&number, 1)));
  if (result < 0 && result > -4096) {
    return refused_within(result, "mmap of the block in the process");
  }
  address = static_cast<uint64_t>(result);
  made_maps_.emplace_back(address, GPUPERF_ATTACH_BLOCK_BYTES);
  block.block_fd = fd;
  return absl::OkStatus();
}

Status EntryInto::map_stub(HeldThread& thread, int32_t fd, gpuperf_attach_block& block) {
  const uint64_t offset = setup_.library.stub_offset_bytes / kPageBytes * kPageBytes;
  const std::array<uint64_t, 6> words{
      0, kStubBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, static_cast<uint64_t>(fd), offset};
  const uint64_t number = SYS_mmap;
  ASSIGN_OR_RETURN(const int64_t result,
                   thread.call(setup_.libc.mmap, words, std::span(&number, 1)));
  if (result < 0 && result > -4096) {
    return refused_within(result,
                          "mmap of the library in the process (a security module, or a file system "
                          "mounted noexec, may forbid it)");
  }
  made_maps_.emplace_back(static_cast<uint64_t>(result), kStubBytes);
  block.stub = static_cast<uint64_t>(result) + setup_.library.stub_offset_bytes - offset;
  block.stub_bytes = kStubBytes;
  block.library_fd = fd;
  (void)fmt::format_to_n(block.path, sizeof(block.path) - 1, "/proc/self/fd/../fd/{}", fd);
  return absl::OkStatus();
}

Status EntryInto::start(HeldThread& thread, uint64_t begin, uint64_t block) {
  constexpr uint64_t kClone3 = 435;
  const std::array<uint64_t, 2> clones{SYS_clone, kClone3};
  const std::array<uint64_t, 4> words{thread.scratch_address() + offsetof(Scratch, thread), 0,
                                      begin, block};
  ASSIGN_OR_RETURN(const int64_t result, thread.call(setup_.libc.pthread_create, words, clones));
  if (result > 0) return absl::OkStatus();
  return refused_within(result, "pthread_create in the process");
}

void EntryInto::fill(gpuperf_attach_block& block) const {
  block.magic = GPUPERF_ATTACH_MAGIC;
  block.version = GPUPERF_ATTACH_VERSION;
  block.state = GPUPERF_ATTACH_BEGINNING;
  block.flags = setup_.flags;
  block.pid = setup_.target.inner_pid;
  block.library_fd = block.block_fd = -1;
  block.offers = 0;
  block.detach = 0;
  block.thread = 0;
  block.library_version = setup_.library.version;
  block.dlopen = setup_.libc.dlopen;
  block.dlsym = setup_.libc.dlsym;
  block.dlerror = setup_.libc.dlerror;
  block.pthread_detach = setup_.libc.pthread_detach;
  block.pthread_self = setup_.libc.pthread_self;
  block.syscall = setup_.libc.syscall;
  std::memcpy(block.entry_name, GPUPERF_ATTACH_ENTRY, sizeof(GPUPERF_ATTACH_ENTRY));
  std::memset(block.text, 0, sizeof block.text);
}

Result<EntryInto::Entered> EntryInto::make_calls(HeldThread& thread) {
  RETURN_IF_ERROR(thread.begin_calls(setup_.libc.restorer, sizeof(Scratch)));
  const auto make = [&]() -> Result<Entered> {
    ASSIGN_OR_RETURN(const auto sockets, make_connection(thread));
    Entered entered;
    entered.connection =
        Fd(static_cast<int>(syscall(SYS_pidfd_getfd, setup_.pidfd.get(), sockets[1], 0)));
    if (!entered.connection.valid()) {
      return errno_status(errno, "pidfd_getfd of the connection");
    }
    gpuperf_attach_block block = setup_.block ? setup_.block->copy : gpuperf_attach_block{};
    fill(block);
    block.socket_fd = sockets[0];
    block.daemon_fd = sockets[1];
    uint64_t begin = block.entry;
    entered.block_address = setup_.block ? setup_.block->address : 0;
    const bool is_loaded = begin != 0;
    if (!is_loaded) {
      const Fd memory(memfd_create(GPUPERF_ATTACH_BLOCK_NAME, MFD_CLOEXEC));
      if (!memory.valid() || ftruncate(memory.get(), GPUPERF_ATTACH_BLOCK_BYTES) != 0) {
        return errno_status(errno, "make a block");
      }
      ASSIGN_OR_RETURN(const auto files,
                       pass_files(thread, sockets[0], entered.connection, memory.get()));
      if (!setup_.block) {
        RETURN_IF_ERROR(map_block(thread, files[1], block, entered.block_address));
      }
      RETURN_IF_ERROR(map_stub(thread, files[0], block));
      block.block_fd = files[1];
      begin = block.stub;
    }
    RETURN_IF_ERROR(thread.write(entered.block_address, bytes_of(block)));
    RETURN_IF_ERROR(start(thread, begin, entered.block_address));
    return entered;
  };
  Result<Entered> entered = make();
  if (!entered.ok()) take_back(thread);
  return entered;
}

// Best effort: a call that failed because of a signal, or takes too long, leaves no other possible.
void EntryInto::take_back(HeldThread& thread) {
  for (const auto& [address, bytes] : made_maps_) {
    if (!system_call(thread, {SYS_munmap, address, bytes}).ok()) return;
  }
  for (const int32_t fd : made_fds_) {
    if (fd >= 0 && !system_call(thread, {SYS_close, static_cast<uint64_t>(fd)}).ok()) return;
  }
}

}  // namespace gpuperf
