// Launches from several threads, counts them in a file, and ends without a word to anyone.
//   launch_ends FILE WAY THREADS CALLS
// Each thread makes CALLS calls, every tenth fails. WAY is what is done then, at once:
//   kill         the process kills itself
//   exit         a thread ends it by _exit
//   running      as exit, and the threads launch on until then
//   leader       the first thread has ended before the launches, then kill
//   hang         as kill, with every thread inside of one more call
//   exec         the first thread executes this program with WAY wait; another thread: exec_thread
//   exec_running as exec_thread, and the threads launch on until then
//   fork, vfork  a child executes this program with WAY none; then kill
//   signals      as kill, with launches from a signal handler among the others
//   stay         it stays until it is killed
//   lines        the launches are made for each line of input; says "ready" before and after each
//   wait         launches nothing, and ends with its input; says "ready" before
//   none         nothing

#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" CUresult fake_runtime_launch(bool by_table, CUfunction function, unsigned duration_us);

namespace {

constexpr unsigned kHangUs = 60'000'000;

// What the test reads, in this order.
struct Truth {
  std::atomic<uint64_t> begun, ended, failed, child;
};

Truth* g_truth;
std::atomic<int> g_ready = 0;
std::atomic<bool> g_is_over = false;

void launch(bool fails, unsigned duration_us = 0) {
  ++g_truth->begun;
  (void)fake_runtime_launch(true, reinterpret_cast<CUfunction>(fails ? 0 : 0x1000), duration_us);
  if (fails) ++g_truth->failed;
  ++g_truth->ended;
}

void launch_in_handler(int) { launch(false); }

void run(const std::string& way, int calls) {
  for (int i = 0; i < calls; ++i) launch(i % 10 == 0);
  ++g_ready;
  if (way == "hang") return launch(false, kHangUs);
  while (way == "running" || way == "exec_running") launch(false);
  while (!g_is_over) (void)pause();
}

void start_timer() {
  struct sigaction action {};
  action.sa_handler = launch_in_handler;
  action.sa_flags = SA_RESTART;
  (void)sigaction(SIGPROF, &action, nullptr);
  const itimerval often = {{0, 1'000}, {0, 1'000}};
  (void)setitimer(ITIMER_PROF, &often, nullptr);
}

void stop_timer() {
  const itimerval never = {};
  (void)setitimer(ITIMER_PROF, &never, nullptr);
  (void)signal(SIGPROF, SIG_IGN);
  while (g_truth->begun != g_truth->ended) (void)sched_yield();
}

void execute(const char* way) {
  (void)execl("/proc/self/exe", "launch_ends", "-", way, nullptr);
  abort();
}

void end(const std::string& way) {
  if (way == "exit" || way == "running") _exit(0);
  if (way.starts_with("exec")) execute("wait");
  if (way == "fork" || way == "vfork") {
    const pid_t child = way == "fork" ? fork() : vfork();
    if (child == 0) execute("none");
    g_truth->child = static_cast<uint64_t>(child);
    (void)waitpid(child, nullptr, 0);
  }
  if (way == "signals") stop_timer();
  if (way == "stay") return;
  (void)kill(getpid(), SIGKILL);
}

void say_ready() {
  printf("ready\n");
  (void)fflush(stdout);
}

void run_lines(int thread_count, int calls) {
  say_ready();
  char line[16];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    std::vector<std::thread> threads;
    for (int i = 0; i < thread_count; ++i) {
      threads.emplace_back([calls] {
        for (int call = 0; call < calls; ++call) launch(call % 10 == 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    say_ready();
  }
}

void run_all(const std::string& way, int thread_count, int calls) {
  if (way == "signals") start_timer();
  for (int i = 0; i < thread_count; ++i) std::thread(run, way, calls).detach();
  while (g_ready < thread_count) (void)sched_yield();
  while (way == "hang" && g_truth->begun != g_truth->ended + static_cast<unsigned>(thread_count)) {
  }
  if (way == "hang") (void)usleep(5'000);  // inside
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: launch_ends FILE WAY [THREADS CALLS]\n");
    return 2;
  }
  const std::string way = argv[2];
  if (way == "none") return 0;
  if (way == "wait") {
    if (strcmp(argv[1], "-") != 0 && cuInit(0) != CUDA_SUCCESS) return 1;
    say_ready();
    while (getchar() != EOF) {
    }
    return 0;
  }
  if (argc < 5) return 2;
  const int fd = open(argv[1], O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, sizeof(Truth), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || memory == MAP_FAILED || cuInit(0) != CUDA_SUCCESS) return 1;
  g_truth = static_cast<Truth*>(memory);
  const int thread_count = atoi(argv[3]);
  const int calls = atoi(argv[4]);
  if (way == "lines") {
    run_lines(thread_count, calls);
    return 0;
  }
  if (way == "exec") {
    run_all(way, thread_count, calls);
    end(way);
  }
  std::thread([&] {
    run_all(way, thread_count, calls);
    end(way);
  }).detach();
  if (way == "leader") (void)syscall(SYS_exit, 0);
  for (;;) (void)pause();
}
