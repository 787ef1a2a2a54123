#include "daemon/probe/prober.h"

#include <linux/capability.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/probe/elf_symbols.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Safety net under the notices; a scan of 1,000 processes takes some 50 ms of one CPU.
constexpr std::chrono::seconds kScanPeriod{60};
// Without notices: the promise is a second to a new file.
constexpr std::chrono::milliseconds kScanPeriodWithoutNotices{800};

constexpr const char* kEntryOnlyReason =
    "mangled C++ name: counted at entry only, because an exception that passes a return probe "
    "aborts "
    "the process";

// Itanium C++ and Rust names. A C entry point lets no exception through.
bool may_throw(const std::string& symbol) {
  return symbol.starts_with("_Z") || symbol.starts_with("_R");
}

std::string join_names(const std::set<std::string>& names, size_t most) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == most) return text + ", … " + std::to_string(names.size() - most) + " more";
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

bool has_ptrace_capability() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> CAP_SYS_PTRACE & 1) != 0;
  }
  return false;
}

// Beginning of the file name of the library a CUDA symbol lives in. One section covers several
// libraries, and a symbol is not missing while only the others have been seen.
std::string_view find_home_library(std::string_view symbol) {
  constexpr std::pair<std::string_view, std::string_view> kHomes[] = {{"cublasLt", "libcublasLt."},
                                                                      {"cublas", "libcublas."},
                                                                      {"cudnn", ""},
                                                                      {"cuda", "libcudart"},
                                                                      {"cu", "libcuda."}};
  for (const auto& [prefix, library] : kHomes) {
    if (symbol.starts_with(prefix)) return library;
  }
  return "";
}

bool any_begins_with(const std::set<std::string>& names, std::string_view prefix) {
  return std::ranges::any_of(names,
                             [prefix](const std::string& n) { return n.starts_with(prefix); });
}

std::string get_file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Prober::Prober(const ProbeConfig& config, std::shared_ptr<const std::vector<Function>> functions,
               const Programs& programs, DropCounters& drops, OnReport on_report)
    : config_(config),
      functions_(std::move(functions)),
      programs_(programs),
      drops_(drops),
      on_report_(std::move(on_report)),
      finder_(config_, {.skip_pid = static_cast<uint32_t>(getpid())}),
      attacher_(programs) {}

Prober::~Prober() { stop(); }

Status Prober::start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return errno_status(errno, "prober: epoll_create1");
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return errno_status(errno, "prober: eventfd");
  auto mappings = MappingEvents::open();
  std::vector<int> descriptors{wake_.get()};
  if (mappings.ok()) {
    mappings_ = std::move(*mappings);
    std::ranges::copy(mappings_->descriptors(), std::back_inserter(descriptors));
  } else {
    problems_.push_back({"discovery",
                         "no notice of new mappings, scanning every 0.8 s instead: " +
                             std::string(mappings.status().message()),
                         "run as root or with CAP_PERFMON"});
  }
  for (const int descriptor : descriptors) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return errno_status(errno, "prober: epoll_ctl");
    }
  }
  thread_ = std::thread([this] { run(); });
  return absl::OkStatus();
}

void Prober::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
  thread_.join();
}

void Prober::run() {
  const auto period =
      mappings_ ? std::chrono::milliseconds(kScanPeriod) : kScanPeriodWithoutNotices;
  auto next_scan = SteadyClock::now();
  while (!stopping_) {
    if (scan_needed_ || SteadyClock::now() >= next_scan) {
      scan_all();
      next_scan = SteadyClock::now() + period;
    }
    scan_dirty();
    if (changed_) publish_report();
    wait_for_news(std::chrono::ceil<std::chrono::milliseconds>(next_scan - SteadyClock::now()));
  }
  attacher_.detach_all();
}

void Prober::wait_for_news(std::chrono::milliseconds at_most) {
  epoll_event events[8];
  const auto wait = std::max(at_most, std::chrono::milliseconds{0});
  (void)epoll_wait(epoll_.get(), events, std::size(events), static_cast<int>(wait.count()));
  if (!mappings_) return;
  const uint64_t lost = mappings_->drain([this](uint32_t pid, std::string_view name) {
    const std::string path(name);
    if (finder_.concerns(path)) dirty_.emplace(pid, path);
  });
  if (lost == 0) return;
  drops_.add(DropCause::kDiscoveryEventsLost, lost);
  scan_needed_ = true;
}

void Prober::scan_all() {
  scan_needed_ = false;
  dirty_.clear();
  const auto report = finder_.scan_all();
  if (!report.ok()) {
    log_error("scan failed", {{"error", std::string(report.status().message())}});
    return;
  }
  take_files(report->files);
  std::vector<Problem> found;
  // With the capability, those few are refused to everybody by the kernel's or the sandbox's own
  // rules.
  if (report->unreadable_processes > 0 && !has_ptrace_capability()) {
    found.push_back({"discovery",
                     std::to_string(report->unreadable_processes) +
                         " processes cannot be looked into: their libraries are not probed",
                     "run as root or with CAP_SYS_PTRACE"});
  }
  if (report->files_left_out > files_left_out_) {
    drops_.add(DropCause::kDiscoveryFilesFull, report->files_left_out - files_left_out_);
  }
  files_left_out_ = report->files_left_out;
  if (files_left_out_ > 0) {
    found.push_back({"discovery",
                     std::to_string(report->files_left_out) +
                         " library files beyond the bound of " + std::to_string(kMaxFoundFiles) +
                         " are not probed",
                     "narrow `libraries` in the configuration"});
  }
  if (found == scan_problems_) return;
  scan_problems_ = std::move(found);
  changed_ = true;
}

void Prober::scan_dirty() {
  std::map<uint32_t, std::vector<std::string>> by_pid;
  for (auto& [pid, path] : std::exchange(dirty_, {})) by_pid[pid].push_back(path);
  for (const auto& [pid, paths] : by_pid) {
    const auto report = finder_.scan_process(pid);
    if (report.ok() && !report->files.empty()) {
      take_files(report->files);
    } else {
      // Gone already: its files are still found under their names, for the next process that runs
      // them.
      take_files(finder_.find_named(paths));
    }
  }
}

void Prober::take_files(const std::vector<FoundFile>& files) {
  bool probed = false;
  for (const FoundFile& file : files) {
    auto opened = finder_.open_found(file);
    if (!opened.ok()) {
      if (unopened_.insert(file.path).second) {
        log_warn("library not opened",
                 {{"library", file.path}, {"error", std::string(opened.status().message())}});
      }
      continue;
    }
    const auto known = examined_.find(opened->identity);
    if (known == examined_.end() && examined_.size() >= kMaxFoundFiles)
      continue;  // scan_all says so
    std::vector<uint32_t> wanted;
    std::set<uint32_t>& seen = examined_[opened->identity];
    std::ranges::set_difference(file.probes, seen, std::back_inserter(wanted));
    if (wanted.empty()) continue;
    seen.insert(wanted.begin(), wanted.end());
    probe_file(file.path, opened->fd.get(), wanted);
    probed = true;
  }
  if (!probed) return;
  changed_ = true;
  // libtorch's symbol tables are some 100 MB, read once: the allocator would keep them for ever.
  (void)malloc_trim(0);
}

void Prober::probe_file(const std::string& path, int fd, const std::vector<uint32_t>& wanted) {
  std::vector<std::string> symbols;
  for (const uint32_t id : wanted) symbols.push_back((*functions_)[id].symbol);
  Status unread;  // ok unless a table that may hold a missing function could not be read
  const auto found = find_functions(fd, symbols, &unread);
  if (!found.ok()) {
    log_warn("library not read",
             {{"library", path}, {"error", std::string(found.status().message())}});
    for (const uint32_t id : wanted) {
      add_row(id, path, ProbeState::kFailed, std::string(found.status().message()));
    }
    return;
  }
  std::vector<ProbePoint> points;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& symbol = (*found)[i];
    if (!symbol && !unread.ok()) {
      add_row(wanted[i], path, ProbeState::kFailed, std::string(unread.message()));
    } else if (!symbol) {
      missing_[wanted[i]].insert(get_file_name(path));
    } else if (symbol->is_ifunc) {
      add_row(wanted[i], path, ProbeState::kFailed,
              "indirect function: the code that runs is chosen at load time and has no symbol");
    } else {
      points.push_back({wanted[i], symbol->file_offset_bytes, !may_throw(symbols[i])});
    }
  }
  size_t attached = 0;
  for (const ProbeOutcome& outcome : attacher_.attach(fd, path, points)) {
    const ProbePoint& point = outcome.point;
    if (outcome.status.ok()) {
      ++attached;
      add_row(point.function_id, path, point.timed ? ProbeState::kAttached : ProbeState::kEntryOnly,
              point.timed ? "" : kEntryOnlyReason, point.offset_bytes);
    } else {
      add_row(point.function_id, path, ProbeState::kFailed, std::string(outcome.status.message()),
              point.offset_bytes);
    }
  }
  if (attached > 0) ++files_;
  log_info("library probed", {{"library", path},
                              {"functions", std::to_string(attached)},
                              {"failed", std::to_string(points.size() - attached)}});
}

void Prober::add_row(uint32_t function_id, const std::string& library, ProbeState state,
                     std::string reason, uint64_t offset_bytes) {
  ProbeRow row = make_row(function_id);
  row.state = state;
  row.reason = std::move(reason);
  row.library = library;
  row.offset_bytes = offset_bytes;
  if (state == ProbeState::kAttached || state == ProbeState::kEntryOnly) {
    row.mechanism = get_mechanism_name(programs_.mechanism());
  }
  rows_[function_id].push_back(std::move(row));
}

ProbeRow Prober::make_row(uint32_t function_id) const {
  const Function& function = (*functions_)[function_id];
  return {.category = function.category,
          .function = function.name,
          .symbol = function.symbol,
          .slow_threshold_ns = function.slow_threshold_ns};
}

ProbeRow Prober::explain_unplaced(uint32_t function_id) const {
  ProbeRow row = make_row(function_id);
  const auto missing = missing_.find(function_id);
  if (!config_.probes[function_id].enabled) {
    row.state = ProbeState::kDisabled;
    row.reason = kDisabledReason;
  } else if (missing == missing_.end()) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process maps a library of this category yet";
  } else if (const std::string_view home = find_home_library(row.symbol);
             !any_begins_with(missing->second, home)) {
    row.state = ProbeState::kWaiting;
    row.reason = "no process maps " + std::string(home.substr(0, home.find('.'))) +
                 " yet; not in " + join_names(missing->second, 4);
  } else {
    row.state = ProbeState::kSymbolMissing;
    row.reason = "not in " + join_names(missing->second, 4);
  }
  return row;
}

void Prober::publish_report() {
  changed_ = false;
  auto report = std::make_shared<ProbeReport>();
  report->mechanism = get_mechanism_name(programs_.mechanism());
  report->files = files_;
  report->problems = problems_;
  std::ranges::copy(scan_problems_, std::back_inserter(report->problems));
  for (uint32_t id = 0; id < functions_->size(); ++id) {
    const auto placed = rows_.find(id);
    if (placed == rows_.end()) {
      report->probes.push_back(explain_unplaced(id));
    } else {
      std::ranges::copy(placed->second, std::back_inserter(report->probes));
    }
  }
  on_report_(std::move(report));
}

}  // namespace gpuperf
