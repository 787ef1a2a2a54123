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
#include <utility>

#include "daemon/base/log.h"
#include "daemon/probe/elf_symbols.h"
#include "daemon/probe/placement.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Safety net under the notices; a scan of 1,000 processes takes some 50 ms of one CPU.
constexpr std::chrono::seconds kScanPeriod{60};
// Without notices: the promise is a second to a new file.
constexpr std::chrono::milliseconds kScanPeriodWithoutNotices{800};
// A copy of the largest library (cublasLt, 500 MB) writes without a pause this long.
constexpr std::chrono::seconds kQuietPeriod{2};

constexpr const char* kWrittenReason =
    "the file was written to while probed: its probes are out until it is left alone for 2 s, "
    "because they would break its new content; replace libraries by renaming a new file over them";

bool has_ptrace_capability() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> CAP_SYS_PTRACE & 1) != 0;
  }
  return false;
}

}  // namespace

Prober::Prober(const ProbeConfig& config, std::shared_ptr<const std::vector<Function>> functions,
               const Programs& programs, DropCounters& drops, OnReport on_report)
    : config_(config),
      functions_(std::move(functions)),
      drops_(drops),
      on_report_(std::move(on_report)),
      finder_(config_, {.skip_pid = static_cast<uint32_t>(getpid())}),
      attacher_(programs),
      ledger_(config_, functions_, get_mechanism_name(programs.mechanism())) {}

Prober::~Prober() { stop(); }

Status Prober::watch(int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    return errno_status(errno, "prober: epoll_ctl");
  }
  return absl::OkStatus();
}

Status Prober::start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return errno_status(errno, "prober: epoll_create1");
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return errno_status(errno, "prober: eventfd");
  RETURN_IF_ERROR(watch(wake_.get()));
  auto mappings = MappingEvents::open();
  if (mappings.ok()) {
    mappings_ = std::move(*mappings);
    for (const int descriptor : mappings_->descriptors()) RETURN_IF_ERROR(watch(descriptor));
  } else {
    problems_.push_back({"discovery",
                         "no notice of new mappings, scanning every 0.8 s instead: " +
                             std::string(mappings.status().message()),
                         "run as root or with CAP_PERFMON"});
  }
  auto writes = FileWatch::open();
  if (writes.ok()) {
    writes_ = std::move(*writes);
    RETURN_IF_ERROR(watch(writes_->descriptor()));
  } else {
    problems_.push_back(
        {"probes", "no notice of writes to probed files: " + std::string(writes.status().message()),
         "raise fs.inotify.max_user_instances, and never overwrite a library in "
         "place while gpuperfd runs"});
  }
  next_scan_ = SteadyClock::now();
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
  while (!stopping_) {
    take_writes();  // before anything else: they are what can harm
    if (SteadyClock::now() >= get_next_wake()) scan_all();
    scan_dirty();
    if (changed_) {
      changed_ = false;
      std::vector<Problem> problems = problems_;
      std::ranges::copy(scan_problems_, std::back_inserter(problems));
      on_report_(ledger_.make_report(std::move(problems)));
    }
    wait_for_news(get_next_wake());
  }
  attacher_.detach_all();
}

// The next full scan, or the moment a written file has been left alone, whichever is earlier.
Prober::Time Prober::get_next_wake() const {
  Time earliest = next_scan_;
  for (const auto& [id, file] : files_) {
    if (file.written) earliest = std::min(earliest, file.quiet_at);
  }
  return earliest;
}

void Prober::wait_for_news(Time until) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
  epoll_event events[8];
  (void)epoll_wait(epoll_.get(), events, std::size(events),
                   static_cast<int>(std::max<int64_t>(wait.count(), 0)));
  take_mappings();
}

void Prober::take_mappings() {
  if (!mappings_) return;
  const uint64_t lost = mappings_->drain([this](uint32_t pid, std::string_view name) {
    const std::string path(name);
    if (finder_.concerns(path)) dirty_.emplace(pid, path);
  });
  if (lost == 0) return;
  drops_.add(DropCause::kDiscoveryEventsLost, lost);
  next_scan_ = SteadyClock::now();
}

void Prober::take_writes() {
  if (!writes_ || writes_->drain([this](int file_id) { on_written(file_id); })) return;
  // Which files were written is lost: any may have been.
  for (const auto& [file_id, file] : files_) on_written(file_id);
}

void Prober::on_written(int file_id) {
  const auto entry = files_.find(file_id);
  if (entry == files_.end()) return;
  File& file = entry->second;
  file.quiet_at = SteadyClock::now() + kQuietPeriod;
  if (std::exchange(file.written, true)) return;
  attacher_.detach(file_id);
  ledger_.fail_file(file_id, kWrittenReason);
  log_warn("library written while probed", {{"library", file.path}, {"probes", "taken out"}});
  changed_ = true;
}

void Prober::scan_all() {
  next_scan_ = SteadyClock::now() +
               (mappings_ ? std::chrono::milliseconds(kScanPeriod) : kScanPeriodWithoutNotices);
  dirty_.clear();
  for (auto& [id, file] : files_) {
    if (!file.written || SteadyClock::now() < file.quiet_at) continue;
    ledger_.forget_file(id);
    file = {.path = file.path};  // looked at anew below, if somebody still maps it
    changed_ = true;
  }
  const auto report = finder_.scan_all();
  if (!report.ok()) {
    log_error("scan failed", {{"error", std::string(report.status().message())}});
    return;
  }
  take_files(report->files);
  explain_scan(*report);
}

void Prober::explain_scan(const ScanReport& report) {
  std::vector<Problem> found;
  // With the capability, those few are refused to everybody by the kernel's or the sandbox's own
  // rules.
  if (report.unreadable_processes > 0 && !has_ptrace_capability()) {
    found.push_back({"discovery",
                     std::to_string(report.unreadable_processes) +
                         " processes cannot be looked into: their libraries are not probed",
                     "run as root or with CAP_SYS_PTRACE"});
  }
  if (report.files_left_out > files_left_out_) {
    drops_.add(DropCause::kDiscoveryFilesFull, report.files_left_out - files_left_out_);
  }
  files_left_out_ = report.files_left_out;
  if (files_left_out_ > 0) {
    found.push_back({"discovery",
                     std::to_string(files_left_out_) + " library files beyond the bound of " +
                         std::to_string(kMaxFoundFiles) + " are not probed",
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
  for (const FoundFile& file : files) probed = take_file(file) || probed;
  if (!probed) return;
  changed_ = true;
  // libtorch's symbol tables are some 100 MB, read once: the allocator would keep them for ever.
  (void)malloc_trim(0);
}

// Whether anything was looked up in it.
bool Prober::take_file(const FoundFile& found) {
  const auto opened = finder_.open_found(found);
  if (!opened.ok()) {
    if (unopened_.insert(found.path).second) {
      log_warn("library not opened",
               {{"library", found.path}, {"error", std::string(opened.status().message())}});
    }
    return false;
  }
  const int id = find_file_id(*opened);
  if (!files_.contains(id) && files_.size() >= kMaxFoundFiles) return false;  // scan_all says so
  File& file = files_[id];
  if (file.written) return false;  // its turn comes with the scan at quiet_at
  file.path = found.path;
  std::vector<uint32_t> wanted;
  std::ranges::set_difference(found.probes, file.examined, std::back_inserter(wanted));
  if (wanted.empty()) return false;
  file.examined.insert(wanted.begin(), wanted.end());
  probe_file({.id = id, .fd = opened->fd.get(), .name = found.path}, wanted);
  return true;
}

// One id per file, however it is found: overlays show one file under several inodes, which only the
// identity sees through; a touched file changes its identity, which only the inode sees through.
int Prober::find_file_id(const OpenedFile& opened) {
  const auto known = ids_.find(opened.identity);
  if (known != ids_.end()) return known->second;
  int id = 0;
  if (writes_) {
    const Result<int> watched = writes_->add(opened.fd.get());
    if (watched.ok()) id = *watched;
  }
  if (id == 0) id = next_own_id_--;
  ids_.emplace(opened.identity, id);
  return id;
}

void Prober::probe_file(const ProbedFile& file, const std::vector<uint32_t>& wanted) {
  std::vector<std::string> symbols;
  symbols.reserve(wanted.size());
  for (const uint32_t id : wanted) symbols.push_back((*functions_)[id].symbol);
  Status unread;  // ok unless a table that may hold a missing function could not be read
  const auto found = find_functions(file.fd, symbols, &unread);
  if (!found.ok()) {
    const std::string error(found.status().message());
    log_warn("library not read", {{"library", file.name}, {"error", error}});
    for (const uint32_t id : wanted) ledger_.note_failed(file.id, file.name, id, error);
    return;
  }
  std::vector<ProbePoint> points;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& symbol = (*found)[i];
    if (!symbol && !unread.ok()) {
      ledger_.note_failed(file.id, file.name, wanted[i], std::string(unread.message()));
    } else if (!symbol) {
      ledger_.note_missing(file.name, wanted[i]);
    } else if (symbol->is_ifunc) {
      ledger_.note_failed(
          file.id, file.name, wanted[i],
          "indirect function: the code that runs is chosen at load time and has no symbol");
    } else {
      points.push_back({.function_id = wanted[i],
                        .offset_bytes = place_probe(file.fd, symbol->file_offset_bytes),
                        .timed = !(*functions_)[wanted[i]].entry_only});
    }
  }
  size_t attached = 0;
  for (const ProbeOutcome& outcome : attacher_.attach(file, points)) {
    attached += outcome.status.ok() ? 1 : 0;
    ledger_.note_outcome(file.id, file.name, outcome);
  }
  log_info("library probed", {{"library", file.name},
                              {"functions", std::to_string(attached)},
                              {"failed", std::to_string(points.size() - attached)}});
}

}  // namespace gpuperf
