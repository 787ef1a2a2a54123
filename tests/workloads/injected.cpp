// A CUDA program that does as it is told, line by line on standard input, and answers each line
// with one line of JSON. It prints nothing else: what else comes is a library's. Runs on the fake
// driver.
//
// init                          cuInit
// launch COUNT THREADS [NS]     kernels of three names, each thread as many; by both APIs
// paths COUNT THREADS           launches on twenty call paths, by turns on each thread; says which
// path NUMBER NS [STREAM]       one launch on one of these paths
// memory COUNT                  a copy, a peer copy, a set, an allocation and a release, so often
// graph make NAME NODES | graph launch NAME COUNT
// graph hide NAME NODES         made by the driver's own addresses, past everybody's hooks
// graph race NAME THREADS       each thread makes one of three nodes: NAME0, NAME1, ...
// graph capture NAME COUNT      of launches on the twenty paths, a copy and a set at the end, every
//                               third launch on another thread; says the paths in their order
// sync | device COUNT           waits for the GPU; calls that are not about launches
// steady THREADS [COUNT] | halt launches all the time, so many at once, until told
// idle CAUSE MS TIMES           work with a known cause of idle time between: planted_idle.h
// open PATH                     maps a library
// load HOW PATH                 a module of the image in the file: "plain"; "wrapped", a fat binary
// as
//                               nvcc links it in; "freed", which has gone when the call returns;
//                               "compiled" of PTX, by the driver
// profiler start PATH ARGUMENT | profiler stop
// fail FUNCTION | untimed COUNT | reversed COUNT
// truth | forget | state        what was done; nothing before now counts; what CUPTI says
// fork [quiet [MS]] | exec | quit HOW  the child launches, or does not, and exits, after 100 ms or
//                               so many; exit, _exit, abort

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cupti/fake_cupti.h"
#include "tests/fakes/cupti/fake_profiler.h"
#include "tests/workloads/planted_idle.h"

namespace {

const char* const kNames[] = {"_Z6squarePfi", "_ZN2at6native6reduceE", "copy_kernel"};
char* const* g_arguments = nullptr;

std::string say(const char* format, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  char text[256];
  std::snprintf(text, sizeof(text), format, a, b, c);
  return text;
}

void launch_some(uint64_t count, uint64_t duration_ns, uint32_t stream) {
  FakeWork work;
  work.stream = stream;
  for (uint64_t i = 0; i < count; ++i) {
    work.name = kNames[i % 3];
    work.grid[0] = static_cast<uint32_t>(i % 5 + 1);
    work.block[0] = 128;
    (void)fake_launch(work, duration_ns, i % 4 == 3);
  }
}

std::string launch(std::istream& line) {
  uint64_t count = 0, threads = 1, duration_ns = 1'000;
  line >> count >> threads;
  if (!(line >> duration_ns)) duration_ns = 1'000;
  std::vector<std::thread> all;
  for (uint32_t i = 0; i < threads; ++i) {
    all.emplace_back([=] { launch_some(count, duration_ns, 7 + i); });
  }
  for (auto& thread : all) thread.join();
  return "{}";
}

// Twenty functions that launch, so that stacks tell them apart: path_00 to path_19. Each leaves
// something to do behind its call, so that no call becomes a jump.
using Path = uint32_t (*)(const FakeWork&, uint64_t, bool);
#define GPUPERF_PATH(number)                                                           \
  extern "C" __attribute__((noinline))                                                 \
  uint32_t path_##number(const FakeWork& work, uint64_t duration_ns, bool by_driver) { \
    const uint32_t id = fake_launch(work, duration_ns, by_driver);                     \
    __asm__ volatile("" : : "r"(&path_##number), "r"(id));                             \
    return id;                                                                         \
  }
// clang-format off
#define GPUPERF_PATHS(X)                                        \
  X(00) X(01) X(02) X(03) X(04) X(05) X(06) X(07) X(08) X(09)   \
  X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)
// clang-format on
GPUPERF_PATHS(GPUPERF_PATH)
#define GPUPERF_PATH_NAME(number) path_##number,
const Path kPaths[] = {GPUPERF_PATHS(GPUPERF_PATH_NAME)};

std::string launch_paths(std::istream& line) {
  uint64_t count = 0;
  uint32_t threads = 1;
  line >> count >> threads;
  std::vector<std::ostringstream> lists(threads);
  std::vector<std::thread> all;
  for (uint32_t t = 0; t < threads; ++t) {
    all.emplace_back([=, &list = lists[t]] {
      uint32_t random = t + 1;
      for (uint64_t i = 0; i < count; ++i) {
        random = random * 1'664'525 + 1'013'904'223;
        const uint32_t path = (random >> 16) % 20;
        FakeWork work;
        work.name = kNames[path % 3];
        work.stream = 7 + (random >> 8) % 4;
        const uint32_t id = kPaths[path](work, 1'000 * (path + 1), (random >> 24) % 2 == 0);
        list << (i == 0 ? "" : ",") << '[' << path << ',' << id << ']';
      }
    });
  }
  for (auto& thread : all) thread.join();
  std::string text;
  for (const std::ostringstream& list : lists) text += (text.empty() ? "" : ",") + list.str();
  return "{\"launches\": [" + text + "]}";
}

std::string launch_path(std::istream& line) {
  uint32_t path = 0;
  uint64_t duration_ns = 0;
  FakeWork work;
  line >> path >> duration_ns;
  if (!(line >> work.stream)) work.stream = 7;
  work.name = kNames[path % 3];
  return say("{\"id\": %" PRIu64 "}", kPaths[path % 20](work, duration_ns, false));
}

std::string load_module(std::istream& line) {
  std::string how, path;
  line >> how >> path;
  std::ifstream file(path);
  static std::deque<std::string>& images = *new std::deque<std::string>;  // as a program's own stay
  std::string& image =
      images.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (how == "compiled") image = "compile " + path;
  struct Wrapper {
    uint32_t magic = 0x466243b1, version = 1;
    const void* fat_binary = nullptr;
    void* unused = nullptr;
  };
  static Wrapper wrapper;
  wrapper.fat_binary = image.data();
  const void* const given = how == "wrapped" ? &wrapper : static_cast<const void*>(image.data());
  static const auto load = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(
      dlsym(RTLD_DEFAULT, "cuModuleLoadData"));
  CUmodule module = nullptr;
  const CUresult result = load(&module, given);
  if (how == "freed") image.assign(image.size(), '\0');
  return say("{\"result\": %" PRIu64 "}", static_cast<uint64_t>(result));
}

std::string use_memory(std::istream& line) {
  uint64_t count = 0;
  line >> count;
  for (uint64_t i = 0; i < count; ++i) {
    FakeWork work;
    work.bytes = 4096 * (i + 1);
    work.detail = 1;  // host to device
    (void)fake_memcpy(work, 500, false);
    (void)fake_memcpy(work, 500, true);
    (void)fake_memset(work, 200);
    (void)fake_allocate(0x7000'0000 + i * 4096, work.bytes);
    (void)fake_release(0x7000'0000 + i * 4096, work.bytes);
  }
  return "{}";
}

struct CapturedPaths {
  uint64_t count = 0;
  std::vector<uint32_t> paths;
};

void launch_captured(void* data) {
  auto& captured = *static_cast<CapturedPaths*>(data);
  uint32_t random = 1;
  for (uint64_t i = 0; i < captured.count; ++i) {
    random = random * 1'664'525 + 1'013'904'223;
    const uint32_t path = (random >> 16) % 20;
    captured.paths.push_back(path);
    FakeWork work;
    work.name = kNames[path % 3];
    const auto launch = [&] { (void)kPaths[path](work, 1'000, i % 2 == 0); };
    if (i % 3 == 2) {
      std::thread(launch).join();
    } else {
      launch();
    }
  }
  FakeWork work;
  work.bytes = 4096;
  (void)fake_memcpy(work, 500, false);
  (void)fake_memset(work, 200);
}

std::string capture_graph(FakeGraph*& graph, uint64_t count) {
  CapturedPaths captured{.count = count};
  graph = fake_graph_capture(launch_captured, &captured);
  std::string text;
  for (const uint32_t path : captured.paths) {
    text += (text.empty() ? "" : ",") + std::to_string(path);
  }
  return "{\"paths\": [" + text + "]}";
}

std::string use_graph(std::istream& line) {
  static std::map<std::string, FakeGraph*> graphs;
  std::string verb, name;
  uint32_t count = 0;
  line >> verb >> name >> count;
  if (verb == "capture") return capture_graph(graphs[name], count);
  if (verb == "race") {
    std::vector<FakeGraph*> made(count);
    std::vector<std::thread> all;
    for (uint32_t i = 0; i < count; ++i) {
      all.emplace_back([&slot = made[i]] { slot = fake_graph_make(3, kNames[0]); });
    }
    for (auto& thread : all) thread.join();
    for (uint32_t i = 0; i < count; ++i) graphs[name + std::to_string(i)] = made[i];
  } else if (verb == "hide") {
    const FakeEntries* entries = fake_cuda_set_entries(nullptr);
    graphs[name] = fake_graph_make(count, kNames[0]);
    (void)fake_cuda_set_entries(entries);
  } else if (verb == "make") {
    graphs[name] = fake_graph_make(count, kNames[0]);
  } else {
    for (uint32_t i = 0; i < count; ++i) (void)fake_graph_launch(graphs.at(name));
  }
  return "{}";
}

std::atomic<bool> g_is_steady = false;
// Never destroyed: threads that launch while the process exits are part of the test.
std::vector<std::thread>& g_steady = *new std::vector<std::thread>;
std::atomic<uint64_t> g_steady_launches = 0;
std::atomic<uint64_t> g_slowest_ns = 0;  // of launches at once

uint64_t read_mono_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string go_steady(std::istream& line) {
  uint32_t threads = 1, count = 50;
  line >> threads;
  if (!(line >> count)) count = 50;
  std::string also;
  line.clear();
  line >> also;  // "memory": each thread allocates and releases between launches
  const bool allocates = also == "memory";
  g_is_steady = true;
  for (uint32_t i = 0; i < threads; ++i) {
    g_steady.emplace_back([i, count, allocates] {
      FakeWork work;
      work.name = kNames[0];
      work.stream = 7 + i;
      while (g_is_steady) {
        const uint64_t start_ns = read_mono_ns();
        for (uint32_t k = 0; k < count; ++k) (void)fake_launch(work, 100, false);
        for (uint32_t k = 0; allocates && k < 10; ++k) {
          (void)fake_allocate(0x7000, 4096);
          (void)fake_release(0x7000, 4096);
        }
        const uint64_t took_ns = read_mono_ns() - start_ns;
        if (took_ns > g_slowest_ns) g_slowest_ns = took_ns;
        g_steady_launches += count;
        usleep(1'000);
      }
    });
  }
  return "{}";
}

std::string halt(std::istream&) {
  g_is_steady = false;
  for (auto& thread : g_steady) thread.join();
  g_steady.clear();
  return say("{\"launches\": %" PRIu64 ", \"slowest_ns\": %" PRIu64 "}",
             g_steady_launches.exchange(0), g_slowest_ns.exchange(0));
}

std::string open_library(std::istream& line) {
  std::string path;
  line >> path;
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr ? "{}" : "{\"error\": \"dlopen\"}";
}

std::string use_profiler(std::istream& line) {
  static void* library = nullptr;
  std::string verb, path, argument;
  line >> verb >> path >> argument;
  if (verb == "start") {
    library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return "{\"error\": \"dlopen\"}";
    reinterpret_cast<void (*)(const char*)>(dlsym(library, "fake_profiler_start"))(
        argument.c_str());
    return "{}";
  }
  FakeProfilerCounts counts;
  reinterpret_cast<void (*)(FakeProfilerCounts*)>(dlsym(library, "fake_profiler_stop"))(&counts);
  return say("{\"kernels\": %" PRIu64 ", \"calls\": %" PRIu64 ", \"error\": %" PRIu64 "}",
             counts.kernels, counts.calls, counts.first_error);
}

// The libcupti of this process, whoever brought it. Null = none.
template <typename Function>
Function find_in_cupti(const char* name) {
  for (const char* library : {"libcupti.so.13", "libcupti.so.12"}) {
    if (void* found = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
      return reinterpret_cast<Function>(dlsym(found, name));
    }
  }
  return nullptr;
}

std::string set_knob(const char* function, std::istream& line) {
  uint64_t count = 0;
  line >> count;
  find_in_cupti<void (*)(uint64_t)>(function)(count);
  return "{}";
}

std::string tell_state(std::istream&) {
  FakeCuptiState state;
  const auto read = find_in_cupti<void (*)(FakeCuptiState*)>("fake_cupti_read_state");
  if (read != nullptr) read(&state);
  std::ostringstream text;
  text << "{\"mapped\": " << (read != nullptr) << ", \"attached\": " << state.is_attached
       << ", \"subscriber\": " << state.has_subscriber << ", \"kinds\": " << state.enabled_kinds
       << ", \"finalised\": " << state.finalised << ", \"subscriptions\": " << state.subscriptions
       << ", \"buffers_out\": " << state.buffers_out << ", \"refused\": " << state.buffers_refused
       << ", \"dropped\": " << state.dropped << ", \"records\": " << state.records
       << ", \"incomplete\": " << state.forced_incomplete << ", \"samplings\": " << state.samplings
       << ", \"is_sampling\": " << (state.is_sampling ? "true" : "false")
       << ", \"foreign_clock\": " << state.has_foreign_clock
       << ", \"injection_ns\": " << fake_cuda_injection_ns()
       << ", \"slowed_launches\": " << fake_cuda_slowed_launches()
       << ", \"steady_launches\": " << g_steady_launches << ", \"pid\": " << getpid() << "}";
  return text.str();
}

// One element of a list of JSON behind another.
std::ostream& next_element(std::ostringstream& list) {
  return list << (list.tellp() == 0 ? "" : ",");
}

std::string tell_truth(std::istream&) {
  std::ostringstream lists[2];  // calls, works
  fake_cuda_visit(
      [](const FakeCall& call, void* data) {
        next_element(static_cast<std::ostringstream*>(data)[0])
            << '[' << call.is_driver << ',' << call.callback_id << ',' << call.correlation_id << ','
            << call.tid << ',' << call.start_unix_ns << ',' << call.end_unix_ns << ']';
      },
      [](const FakeWork& work, void* data) {
        next_element(static_cast<std::ostringstream*>(data)[1])
            << '[' << static_cast<uint32_t>(work.kind) << ',' << work.correlation_id << ','
            << work.stream << ',' << work.graph_id << ',' << work.node_id << ','
            << work.start_unix_ns << ',' << work.end_unix_ns << ",\""
            << (work.name != nullptr ? work.name : "") << "\"," << work.grid[0] << ','
            << work.block[0] << ',' << work.bytes << ',' << work.address << ',' << work.detail
            << ']';
      },
      lists);
  return "{\"calls\": [" + lists[0].str() + "], \"works\": [" + lists[1].str() + "]}";
}

std::string fork_child(std::istream& line) {
  std::string how;
  unsigned milliseconds = 0;
  line >> how >> milliseconds;
  const pid_t child = fork();
  if (child == 0) {
    // A child that goes on for a while, launches included, and leaves as programs do.
    if (how != "quiet") (void)fake_launch({.name = kNames[0]}, 0, false);
    usleep(milliseconds != 0 ? milliseconds * 1'000 : 100'000);
    std::exit(7);
  }
  int status = 0;
  (void)waitpid(child, &status, 0);
  return say("{\"pid\": %" PRIu64 ", \"status\": %" PRIu64 "}", static_cast<uint64_t>(child),
             static_cast<uint64_t>(WEXITSTATUS(status) + (WIFSIGNALED(status) ? 1000 : 0)));
}

[[noreturn]] std::string quit(std::istream& line) {
  std::string how;
  line >> how;
  if (how == "_exit") _exit(0);
  if (how == "abort") std::abort();
  std::exit(0);
}

std::string answer(const std::string& verb, std::istream& line) {
  const std::map<std::string, std::function<std::string(std::istream&)>> verbs = {
      {"init",
       [](std::istream&) {
         return say("{\"result\": %" PRIu64 "}", static_cast<uint64_t>(cuInit(0)));
       }},
      {"launch", launch},
      {"paths", launch_paths},
      {"path", launch_path},
      {"load", load_module},
      {"memory", use_memory},
      {"graph", use_graph},
      {"sync", [](std::istream&) { return fake_synchronise(), "{}"; }},
      {"device",
       [](std::istream& rest) {
         uint64_t count = 0;
         rest >> count;
         for (; count > 0; --count) (void)fake_get_device();
         return "{}";
       }},
      {"steady", go_steady},
      {"halt", halt},
      {"idle", plant_idle},
      {"open", open_library},
      {"profiler", use_profiler},
      {"fail",
       [](std::istream& rest) {
         static std::string name;
         rest >> name;
         find_in_cupti<void (*)(const char*)>("fake_cupti_set_failing")(name.c_str());
         return "{}";
       }},
      {"untimed", [](std::istream& rest) { return set_knob("fake_cupti_set_untimed", rest); }},
      {"reversed", [](std::istream& rest) { return set_knob("fake_cupti_set_reversed", rest); }},
      {"truth", tell_truth},
      {"forget", [](std::istream&) { return fake_cuda_forget(), "{}"; }},
      {"state", tell_state},
      {"fork", fork_child},
      {"exec", [](std::istream&) { return execv("/proc/self/exe", g_arguments), "{}"; }},
      {"quit", quit},
  };
  const auto found = verbs.find(verb);
  return found != verbs.end() ? found->second(line) : "{\"error\": \"no such verb\"}";
}

}  // namespace

int main(int, char** arguments) {
  g_arguments = arguments;
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string verb;
    line >> verb;
    std::cout << answer(verb, line) << std::endl;
  }
  return 0;
}
