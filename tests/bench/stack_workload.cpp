#include "tests/bench/stack_workload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <semaphore>
#include <utility>

#include "daemon/base/proc_text.h"
#include "daemon/probe/attach/self_test.h"

namespace gpuperf::bench {
namespace {

constexpr uint64_t kDepths[] = {8, 32, 64, 120};
// What stack_caller.py is asked for.
struct PythonStack {
  const char* name;
  uint64_t frames;
  bool own;        // each of a function of its own
  uint64_t depth;  // of native frames inside of them
  uint64_t apart = 0;
  uint64_t touched_bytes = 0;
};
constexpr PythonStack kPythonStacks[] = {{"python 5", 5, false, 1},
                                         {"python 20", 20, false, 1},
                                         {"python 40", 40, false, 1},
                                         {"py own 40", 40, true, 1},
                                         {"100+py 30", 30, false, 82}};
// Common frames, and 40 that change.
struct Ways {
  const char* name;
  uint64_t apart;  // functions from one way's first to the next one's
  uint64_t touched_bytes;
  uint64_t python_frames;
};
constexpr uint64_t kTouchedBytes = 8 << 20;
constexpr Ways kWays[] = {{"ways", 16, 0, 0},
                          {"all ways", 40, 0, 0},
                          {"ways cold", 16, kTouchedBytes, 0},
                          {"all cold", 40, kTouchedBytes, 0},
                          {"py ways", 16, 0, 20},
                          {"py cold", 16, kTouchedBytes, 20}};
constexpr uint64_t kWayCount = 64;  // of stack_targets.cpp
constexpr uint64_t kWayFrames = 100;
constexpr uint64_t kChangingDepths[] = {64, 120};
constexpr uint64_t kFewChanging = 10;
constexpr uint64_t kTickNs = 10'000'000;  // of /proc/PID/stat

Result<ProcessKey> read_process(pid_t pid) {
  ASSIGN_OR_RETURN(const uint64_t ticks, read_start_ticks("/proc", static_cast<uint32_t>(pid)));
  return ProcessKey{.pid = static_cast<uint32_t>(pid), .start_boot_ns = ticks * kTickNs};
}

Result<StackLibrary> load_library(bool has_frame_pointers) {
  StackLibrary library{
      .has_frame_pointers = has_frame_pointers,
      .path = get_own_folder() + (has_frame_pointers ? "/libstack_targets_frame_pointers.so"
                                                     : "/libstack_targets.so")};
  void* const handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(dlerror());
  void* const target = dlsym(handle, "stack_target");
  library.go_down = reinterpret_cast<uint64_t (*)(uint64_t, uint64_t)>(dlsym(handle, "go_down"));
  library.go_down_changing = reinterpret_cast<uint64_t (*)(uint64_t, uint64_t, uint64_t)>(
      dlsym(handle, "go_down_changing"));
  library.go_down_ways = reinterpret_cast<uint64_t (*)(uint64_t, uint64_t, uint64_t, uint64_t)>(
      dlsym(handle, "go_down_ways"));
  if (target == nullptr || library.go_down == nullptr || library.go_down_changing == nullptr ||
      library.go_down_ways == nullptr) {
    return absl::NotFoundError(library.path + ": not the bench's library");
  }
  ASSIGN_OR_RETURN(library.target_offset_bytes, find_own_offset(target));
  return library;
}

// A thread of this process: below what it is told to call its stack is always the same. Above its
// first frame lies memory that copies can be read from.
class ThreadCaller {
 public:
  ThreadCaller() {
    // Kept to the end of the program: what reads copies may still do so.
    void* const memory = mmap(nullptr, kStackBytes + kAboveBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    pthread_attr_t attributes;
    (void)pthread_attr_init(&attributes);
    is_running_ = memory != MAP_FAILED &&
                  pthread_attr_setstack(&attributes, memory, kStackBytes) == 0 &&
                  pthread_create(&thread_, &attributes, run, this) == 0;
    (void)pthread_attr_destroy(&attributes);
  }
  ThreadCaller(const ThreadCaller&) = delete;
  ThreadCaller& operator=(const ThreadCaller&) = delete;
  ~ThreadCaller() {
    if (!is_running_) return;
    library_ = nullptr;
    asked_.release();
    (void)pthread_join(thread_, nullptr);
  }

  bool is_running() const { return is_running_; }
  // What `run` returns there.
  uint64_t ask(const std::function<uint64_t()>& run) {
    other_ = &run;
    asked_.release();
    answered_.acquire();
    other_ = nullptr;
    return static_cast<uint64_t>(answer_);
  }
  // CPU time in nanoseconds; with 0 calls, the number of frames. `changing` of them are others with
  // each call.
  double ask(const StackLibrary& library, uint64_t depth, uint64_t calls, uint64_t changing = 0) {
    library_ = &library;
    depth_ = depth;
    changing_ = changing;
    calls_ = calls;
    asked_.release();
    answered_.acquire();
    return answer_;
  }

 private:
  static constexpr size_t kStackBytes = size_t{256} * 1024;
  static constexpr size_t kAboveBytes = size_t{128} * 1024;

  static void* run(void* caller) {
    auto& self = *static_cast<ThreadCaller*>(caller);
    for (;;) {
      self.asked_.acquire();
      if (self.other_ != nullptr) {
        self.answer_ = static_cast<double>((*self.other_)());
        self.answered_.release();
        continue;
      }
      if (self.library_ == nullptr) return nullptr;
      const double start_ns = get_thread_cpu_ns();
      const uint64_t sum = self.changing_ == 0 ? self.library_->go_down(self.depth_, self.calls_)
                                               : self.library_->go_down_changing(
                                                     self.depth_, self.changing_, self.calls_);
      const double elapsed_ns = get_thread_cpu_ns() - start_ns;
      self.answer_ = self.calls_ == 0 ? static_cast<double>(sum) : elapsed_ns;
      self.answered_.release();
    }
  }

  std::binary_semaphore asked_{0};
  std::binary_semaphore answered_{0};
  const std::function<uint64_t()>* other_ = nullptr;
  const StackLibrary* library_ = nullptr;  // null = end, where there is no other
  uint64_t depth_ = 0;
  uint64_t changing_ = 0;
  uint64_t calls_ = 0;
  double answer_ = 0;
  pthread_t thread_{};
  bool is_running_ = false;
};

StackWorkload make_own_workload(const std::shared_ptr<ThreadCaller>& caller,
                                const ProcessKey& process, const StackLibrary& library,
                                uint64_t frames) {
  const auto least = static_cast<uint64_t>(caller->ask(library, 1, 0));
  const uint64_t depth = frames > least ? frames - least + 1 : 1;
  return {.name = std::to_string(frames) + (library.has_frame_pointers ? " fp" : ""),
          .process = process,
          .has_room_above = true,
          .frames = static_cast<uint64_t>(caller->ask(library, depth, 0)),
          .run_ns = [caller, library, depth](uint64_t calls) {
            return caller->ask(library, depth, calls);
          }};
}

// Of which all frames but some outermost ones change, or as many as told.
StackWorkload make_changing_workload(const std::shared_ptr<ThreadCaller>& caller,
                                     const ProcessKey& process, const StackLibrary& library,
                                     uint64_t frames, uint64_t changing) {
  const auto more = static_cast<uint64_t>(caller->ask(library, 2, 0, 1)) - 2;
  const uint64_t depth = frames - more;
  if (changing == 0) changing = depth - 1;
  return {.name = std::to_string(frames) + (changing == kFewChanging ? " in" : " all"),
          .process = process,
          .frames = static_cast<uint64_t>(caller->ask(library, depth, 0, changing)),
          .run_ns = [caller, library, depth, changing](uint64_t calls) {
            return caller->ask(library, depth, calls, changing);
          }};
}

// A python3 that runs stack_caller.py.
class PythonCaller {
 public:
  PythonCaller(pid_t pid, FILE* to, FILE* from) : pid_(pid), to_(to), from_(from) {}
  PythonCaller(const PythonCaller&) = delete;
  PythonCaller& operator=(const PythonCaller&) = delete;
  ~PythonCaller() {
    std::fclose(to_);  // its input ends, and so does it
    std::fclose(from_);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  // 0 = it has ended.
  uint64_t ask(const PythonStack& stack, uint64_t calls) {
    unsigned long long answer = 0;
    std::fprintf(
        to_, "%llu %llu %d %llu %llu %llu\n", static_cast<unsigned long long>(stack.frames),
        static_cast<unsigned long long>(calls), stack.own ? 1 : 0,
        static_cast<unsigned long long>(stack.depth), static_cast<unsigned long long>(stack.apart),
        static_cast<unsigned long long>(stack.touched_bytes));
    if (std::fflush(to_) != 0 || std::fscanf(from_, "%llu", &answer) != 1) return 0;
    return answer;
  }

 private:
  const pid_t pid_;
  FILE* const to_;
  FILE* const from_;
};

Result<std::shared_ptr<PythonCaller>> start_python(const std::string& library) {
  int to[2];
  int from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) return errno_status(errno, "pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execl("/usr/bin/python3", "python3", GPUPERF_STACK_CALLER, library.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  auto caller = std::make_shared<PythonCaller>(pid, fdopen(to[1], "w"), fdopen(from[0], "r"));
  if (pid < 0) return errno_status(errno, "fork");
  return caller;
}

}  // namespace

std::string get_own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

Result<std::array<StackLibrary, 2>> load_stack_libraries() {
  ASSIGN_OR_RETURN(StackLibrary without, load_library(false));
  ASSIGN_OR_RETURN(StackLibrary with, load_library(true));
  return std::array{std::move(without), std::move(with)};
}

Result<std::vector<StackWorkload>> make_own_workloads(
    const std::array<StackLibrary, 2>& libraries) {
  ASSIGN_OR_RETURN(const ProcessKey process, read_process(getpid()));
  const auto caller = std::make_shared<ThreadCaller>();
  if (!caller->is_running()) return absl::UnavailableError("no thread for the calls");
  std::vector<StackWorkload> workloads;
  for (const StackLibrary& library : libraries) {
    for (const uint64_t frames : kDepths) {
      workloads.push_back(make_own_workload(caller, process, library, frames));
    }
  }
  for (const uint64_t frames : kChangingDepths) {
    for (const uint64_t changing : {kFewChanging, uint64_t{0}}) {
      workloads.push_back(make_changing_workload(caller, process, libraries[0], frames, changing));
    }
  }
  return workloads;
}

Result<std::vector<StackWorkload>> make_python_workloads(const StackLibrary& library) {
  (void)signal(SIGPIPE, SIG_IGN);  // a python3 that ended is told by its answer
  ASSIGN_OR_RETURN(const auto caller, start_python(library.path));
  ASSIGN_OR_RETURN(const ProcessKey process, read_process(caller->pid()));
  std::vector<StackWorkload> workloads;
  for (const PythonStack& stack : kPythonStacks) {
    const uint64_t native = caller->ask(stack, 0);
    if (native == 0) return absl::UnavailableError("python3: did not run the caller");
    workloads.push_back({.name = stack.name,
                         .process = process,
                         .frames = native,
                         .python_frames = stack.frames,
                         .run_ns = [caller, stack](uint64_t calls) {
                           return static_cast<double>(caller->ask(stack, calls));
                         }});
  }
  return workloads;
}

Result<std::vector<StackWorkload>> make_way_workloads(const StackLibrary& library) {
  (void)signal(SIGPIPE, SIG_IGN);
  ASSIGN_OR_RETURN(const ProcessKey process, read_process(getpid()));
  const auto caller = std::make_shared<ThreadCaller>();
  if (!caller->is_running()) return absl::UnavailableError("no thread for the calls");
  ASSIGN_OR_RETURN(const auto python, start_python(library.path));
  ASSIGN_OR_RETURN(const ProcessKey python_process, read_process(python->pid()));
  std::vector<StackWorkload> workloads;
  for (const Ways& ways : kWays) {
    PythonStack stack{.name = ways.name,
                      .frames = ways.python_frames,
                      .depth = 1,
                      .apart = ways.apart,
                      .touched_bytes = ways.touched_bytes};
    const bool is_python = ways.python_frames != 0;
    const auto run = [caller, python, stack, library, is_python](uint64_t depth, uint64_t calls) {
      PythonStack asked = stack;
      asked.depth = depth;
      if (is_python) return python->ask(asked, calls);
      return caller->ask(std::function<uint64_t()>(
          [&] { return library.go_down_ways(depth, asked.apart, asked.touched_bytes, calls); }));
    };
    const uint64_t least = run(1, 0);
    if (least == 0) return absl::UnavailableError("python3: did not run the caller");
    const uint64_t depth = kWayFrames > least ? kWayFrames - least + 1 : 1;
    workloads.push_back({.name = ways.name,
                         .process = is_python ? python_process : process,
                         .frames = run(depth, 0),
                         .python_frames = ways.python_frames,
                         .stacks = kWayCount,
                         .run_ns = [run, depth](uint64_t calls) {
                           return static_cast<double>(run(depth, calls));
                         }});
  }
  return workloads;
}

double get_thread_cpu_ns() {
  timespec time{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // cannot fail for our own thread
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

}  // namespace gpuperf::bench
