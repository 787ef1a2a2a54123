// Work for the injected library without PyTorch: empty kernels, a long graph, and every way to end.
//
// usage: session_launch serve IN OUT       measures by lines of the pipe IN, answers go to OUT:
//          "launch N"     median, 5th percentile: ns per launch
//          "graph N"      replays per second of a graph of 2,000 kernels
//          "threads T N"  launches per second of T threads, N each
//          "paced T N"    the same with a pause after each
//        session_launch end HOW [N]        launches N kernels a thread, then ends: return, exit7,
//                                          quick7, kill, abort, fork, forkexit, exec, threads,
//                                          early
//        session_launch volume T N R READY GO   T threads launch N kernels each; writes READY; once
//        GO
//                                          exists, replays the graph R times, for 50 s at most
//        session_launch client LIBRARY N   N kernels before, during and after another client of
//        CUPTI
//
// Prints one JSON line of what was launched; a failed CUDA call ends it with exit code 9.

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kGraphNodes = 2'000;
constexpr int kLaunchesPerSample = 2'000;
constexpr unsigned kPauseUs = 100;

__global__ void empty_kernel() {}
__global__ void graph_kernel() {}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "session_launch: %s: %s\n", what, cudaGetErrorString(error));
  std::_Exit(9);
}

double read_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void launch(long count, cudaStream_t stream = nullptr, bool is_paced = false) {
  for (long i = 0; i < count; ++i) {
    empty_kernel<<<1, 32, 0, stream>>>();
    if (is_paced) usleep(kPauseUs);
    if (i % kLaunchesPerSample == kLaunchesPerSample - 1) {
      check(cudaStreamSynchronize(stream), "synchronize");
    }
  }
  check(cudaGetLastError(), "launch");
  check(cudaStreamSynchronize(stream), "synchronize");
}

// Launches `each` kernels on each of `count` threads, and their streams.
double launch_on_threads(int count, long each, bool is_paced = false) {
  const double start_ns = read_ns();
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([each, is_paced] {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
      launch(each, stream, is_paced);
      check(cudaStreamDestroy(stream), "stream");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(count) * static_cast<double>(each) / (read_ns() - start_ns) * 1e9;
}

struct Graph {
  cudaStream_t stream = nullptr;
  cudaGraphExec_t exec = nullptr;

  Graph() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < kGraphNodes; ++i) graph_kernel<<<1, 32, 0, stream>>>();
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    check(cudaGraphDestroy(graph), "graph");
  }

  // How often, at most so long.
  long replay(long count, double seconds_max) {
    const double end_ns = read_ns() + seconds_max * 1e9;
    long done = 0;
    for (; done < count && read_ns() < end_ns; ++done) {
      check(cudaGraphLaunch(exec, stream), "graph launch");
      if (done % 16 == 15) check(cudaStreamSynchronize(stream), "synchronize");
    }
    check(cudaStreamSynchronize(stream), "synchronize");
    return done;
  }
};

void measure_launches(long count, FILE* out) {
  std::vector<double> samples;
  for (long i = 0; i < count; i += kLaunchesPerSample) {
    const double start_ns = read_ns();
    for (int k = 0; k < kLaunchesPerSample; ++k) empty_kernel<<<1, 32>>>();
    samples.push_back((read_ns() - start_ns) / kLaunchesPerSample);
    check(cudaDeviceSynchronize(), "synchronize");
  }
  std::sort(samples.begin(), samples.end());
  std::fprintf(out, "%.2f %.2f\n", samples[samples.size() / 2], samples[samples.size() / 20]);
}

int serve(const char* in_path, const char* out_path) {
  launch(kLaunchesPerSample);
  std::unique_ptr<Graph> graph;  // none before one is asked for: what was measured has none
  std::ifstream in(in_path);
  FILE* out = std::fopen(out_path, "w");
  if (!in || out == nullptr) return 8;
  std::fprintf(out, "ready\n");
  std::fflush(out);
  for (std::string what; in >> what;) {
    long count = 0, threads = 0;
    const bool is_paced = what == "paced";
    if (what == "threads" || is_paced) in >> threads;
    in >> count;
    if (what == "launch") {
      measure_launches(count, out);
    } else if (what == "graph") {
      if (graph == nullptr) {
        graph = std::make_unique<Graph>();
        graph->replay(4, 10);
      }
      graph->replay(count / 8 + 1, 10);
      const double start_ns = read_ns();
      const long done = graph->replay(count, 10);
      std::fprintf(out, "%.3f\n", static_cast<double>(done) / (read_ns() - start_ns) * 1e9);
    } else {
      std::fprintf(out, "%.1f\n", launch_on_threads(static_cast<int>(threads), count, is_paced));
    }
    std::fflush(out);
  }
  std::fclose(out);
  return 0;
}

void say(const char* how, long launches) {
  std::printf("{\"pid\": %d, \"how\": \"%s\", \"launches\": %ld}\n", getpid(), how, launches);
  std::fflush(stdout);
}

// Exit code of a child that did not end by a signal, else 100 and the signal.
int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 98;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int end(const std::string& how, long count, char* self) {
  if (how == "threads") {
    launch_on_threads(64, count);
    say(how.c_str(), 64 * count);
    return 0;
  }
  launch(count);
  usleep(300'000);  // collection is under way, and has flushed
  launch(count);
  say(how.c_str(), 2 * count);
  if (how == "exit7") std::exit(7);
  if (how == "quick7") std::_Exit(7);
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "abort") std::abort();
  if (how == "early") {  // while other threads launch
    for (int i = 0; i < 8; ++i) std::thread([] { launch(1'000'000'000); }).detach();
    usleep(200'000);
    std::_Exit(7);
  }
  if (how == "fork" || how == "forkexit" || how == "exec") {
    const pid_t child = fork();
    if (child == 0) {
      if (how == "exec") {
        const std::string launches = std::to_string(count);
        execl("/proc/self/exe", self, "end", "exit7", launches.c_str(), nullptr);
        std::_Exit(97);
      }
      if (how == "forkexit") std::exit(7);  // with all that is registered for the exit
      std::_Exit(7);
    }
    const int code = wait_for(child);
    launch(count);  // the parent goes on
    return code == 7 ? 0 : code;
  }
  return 0;
}

int volume(int threads, long each, long replays, const char* ready, const char* go) {
  Graph graph;
  graph.replay(20, 10);
  launch_on_threads(threads, each);
  std::ofstream(ready) << getpid();
  while (access(go, F_OK) != 0) usleep(10'000);
  const double start_ns = read_ns();
  const long done = graph.replay(replays, 50);
  const double seconds = (read_ns() - start_ns) / 1e9;
  usleep(1'500'000);  // so that what is left is flushed as usual, before the exit
  std::printf(
      "{\"pid\": %d, \"launches\": %ld, \"replays\": %ld, \"nodes\": %ld, "
      "\"seconds\": %.3f}\n",
      getpid(), threads * each, done, done * kGraphNodes, seconds);
  return 0;
}

int with_client(const char* library_path, long count) {
  launch(count);
  usleep(600'000);
  void* library = dlopen(library_path, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "session_launch: %s\n", dlerror());
    return 8;
  }
  const auto start = reinterpret_cast<int (*)()>(dlsym(library, "client_start"));
  const auto stop = reinterpret_cast<long (*)()>(dlsym(library, "client_stop"));
  const int error = start();
  launch(count);
  const long seen = stop();
  for (int i = 0; i < 3; ++i) {
    sleep(3);
    launch(count);
  }
  usleep(600'000);
  std::printf("{\"pid\": %d, \"launches\": %ld, \"client_error\": %d, \"client_saw\": %ld}\n",
              getpid(), count, error, seen);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  const auto number = [&](int i) { return count > i ? std::atol(words[i]) : 2'000; };
  if (what == "serve" && count == 4) return serve(words[2], words[3]);
  if (what == "end" && count >= 3) return end(words[2], number(3), words[0]);
  if (what == "volume" && count == 7) {
    return volume(static_cast<int>(number(2)), number(3), number(4), words[5], words[6]);
  }
  if (what == "client" && count == 4) return with_client(words[2], number(3));
  std::fprintf(stderr, "session_launch: no such use\n");
  return 2;
}
