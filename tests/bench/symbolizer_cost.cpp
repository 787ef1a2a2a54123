// What naming frames costs: 100,000 frames in 500 libraries of this host, the largest first, so
// that PyTorch's and CUDA's are among them. Cold: the daemon has read nothing yet. Warm: the same
// again. Results in docs/overhead.md.
//
// usage: symbolizer_cost [libraries, default 500] [frames, default 100000] [folder...]

#include <elf.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/probe/elf/elf_file.h"
#include "daemon/resolve/frame_finder.h"
#include "daemon/resolve/worker_main.h"

namespace gpuperf {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStackFrames = 50;
constexpr int kWarmRounds = 5;  // the best counts: others run here, too

struct Library {
  fs::path path;
  uint64_t bytes = 0;
  uint64_t base = 0;  // where it is mapped here
  std::vector<LoadSegment> code;
};

bool is_library(const fs::path& path) {
  const std::string name = path.filename();
  return name.ends_with(".so") || name.find(".so.") != std::string::npos;
}

std::vector<Library> list_libraries(const std::vector<std::string>& folders, size_t wanted) {
  std::vector<Library> libraries;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (auto entry = fs::recursive_directory_iterator(
             folder, fs::directory_options::skip_permission_denied, error);
         !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (entry->is_symlink() || !entry->is_regular_file() || !is_library(entry->path())) continue;
      const Fd fd(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC));
      const Result<ElfFile> file = ElfFile::open(fd.get());
      if (!file.ok()) continue;
      Library library{.path = entry->path(), .bytes = file->size_bytes()};
      for (const LoadSegment& segment : file->segments()) {
        if (segment.executable && segment.file_bytes > 4'096) library.code.push_back(segment);
      }
      if (!library.code.empty()) libraries.push_back(std::move(library));
    }
  }
  std::ranges::sort(libraries, std::ranges::greater(), &Library::bytes);
  libraries.resize(std::min(libraries.size(), wanted));
  return libraries;
}

bool map(Library& library) {
  const Fd fd(::open(library.path.c_str(), O_RDONLY | O_CLOEXEC));
  void* const start =
      ::mmap(nullptr, library.bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd.get(), 0);
  library.base = reinterpret_cast<uint64_t>(start);
  return start != MAP_FAILED;
}

// Stacks of places anywhere in the code of any library: no two frames need be alike.
std::vector<std::vector<CodeAddress>> make_stacks(const std::vector<Library>& libraries,
                                                  size_t frames) {
  std::mt19937_64 random(1);
  std::vector<std::vector<CodeAddress>> stacks((frames + kStackFrames - 1) / kStackFrames);
  for (size_t i = 0; i < frames; ++i) {
    const Library& library = libraries[random() % libraries.size()];
    const LoadSegment& code = library.code[random() % library.code.size()];
    const uint64_t offset = code.offset_bytes + random() % code.file_bytes;
    stacks[i / kStackFrames].push_back({library.base + offset});
  }
  return stacks;
}

// RUSAGE_SELF, or RUSAGE_CHILDREN: the largest that has ended.
double read_peak_mib(int who) {
  rusage usage{};
  (void)::getrusage(static_cast<__rusage_who>(who), &usage);  // always there
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double read_cpu_seconds() {
  timespec now{};
  (void)::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);  // always there
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Measured {
  double seconds = 0;
  double cpu_seconds = 0;  // less than `seconds` where it waits: for the disk, for its turn
  size_t named = 0;
};

Measured name_all(FrameFinder& finder, const std::vector<std::vector<CodeAddress>>& stacks) {
  const ProcessKey self{.pid = static_cast<uint32_t>(::getpid())};
  Measured measured;
  const auto begin = std::chrono::steady_clock::now();
  const double begin_cpu_seconds = read_cpu_seconds();
  for (const std::vector<CodeAddress>& stack : stacks) {
    for (const FrameGroup& group : finder.find_frames(self, stack)) {
      measured.named += group.back().symbol.empty() ? 0 : 1;
    }
  }
  measured.cpu_seconds = read_cpu_seconds() - begin_cpu_seconds;
  measured.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return measured;
}

int run(size_t wanted, size_t frames, const std::vector<std::string>& folders) {
  std::vector<Library> libraries = list_libraries(folders, wanted);
  std::erase_if(libraries, [](Library& library) { return !map(library); });
  if (libraries.empty()) return 1;
  const auto stacks = make_stacks(libraries, frames);
  const bool has_torch = std::ranges::any_of(libraries, [](const Library& library) {
    return library.path.filename().string().starts_with("libtorch_cpu");
  });
  const double before_mib = read_peak_mib(RUSAGE_SELF);
  const SystemClock clock;
  std::optional<FrameFinder> finder(std::in_place, FrameFinder::Options(), clock);
  const Measured cold = name_all(*finder, stacks);
  Measured warm = name_all(*finder, stacks);
  for (int round = 1; round < kWarmRounds; ++round) {
    const Measured again = name_all(*finder, stacks);
    if (again.seconds < warm.seconds) warm = again;
  }
  const double kept_mib = static_cast<double>(finder->kept_bytes()) / (1 << 20);
  const double peak_mib = read_peak_mib(RUSAGE_SELF);
  finder.reset();  // ends its worker
  std::printf(
      "{\"libraries\": %zu, \"has_libtorch_cpu\": %s, \"frames\": %zu, \"named\": %zu, "
      "\"cold_seconds\": %.2f, \"cold_cpu_seconds\": %.2f, \"warm_seconds\": %.3f, "
      "\"warm_cpu_seconds\": %.3f, \"kept_mib\": %.1f, \"before_mib\": %.1f, \"peak_mib\": %.1f, "
      "\"worker_peak_mib\": %.1f}\n",
      libraries.size(), has_torch ? "true" : "false", frames, cold.named, cold.seconds,
      cold.cpu_seconds, warm.seconds, warm.cpu_seconds, kept_mib, before_mib, peak_mib,
      read_peak_mib(RUSAGE_CHILDREN));
  return 0;
}

}  // namespace
}  // namespace gpuperf

int main(int count, char** arguments) {
  gpuperf::run_if_worker({arguments, static_cast<size_t>(count)});
  std::vector<std::string> folders(arguments + std::min(count, 3), arguments + count);
  if (folders.empty()) folders = {"/usr/lib", "/usr/local", "/opt"};
  const size_t libraries = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 500;
  const size_t frames = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 100'000;
  return gpuperf::run(libraries, frames, folders);
}
