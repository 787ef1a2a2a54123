#include "daemon/probe/prober.h"

#include <linux/capability.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/process_status.h"
#include "daemon/base/work_watch.h"
#include "daemon/probe/attach/probe_report.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Safety net under the notices; a scan of 1,000 processes takes some 50 ms of one CPU.
constexpr std::chrono::seconds kScanPeriod{60};
// Without notices: the promise is a second to a new file.
constexpr std::chrono::milliseconds kScanPeriodWithoutNotices{800};
// A copy of the largest library (cublasLt, 500 MB) writes without a pause this long.
constexpr std::chrono::seconds kQuietPeriod{2};

// How long the replaced link of a file stays for calls it saw begin. A call in flight beyond that
// is never seen to end: it is counted as abandoned once its thread makes the next one.
constexpr std::chrono::seconds kRetireWait{10};
// The budget wants the cost gone now.
constexpr std::chrono::seconds kSuspendWait{1};
// Each look at the calls in flight costs up to 10 ms of CPU on a host with 20,000 threads.
constexpr std::chrono::milliseconds kFirstRetirePoll{50};
constexpr std::chrono::milliseconds kLastRetirePoll{1000};
// Of files found, so long at a time; then whatever else has happened.
constexpr std::chrono::milliseconds kSlice{50};
// After a scan, scans for lost notices pause for so many times as long as it took.
constexpr int kScanPauseFactor = 10;
// Processes that were not read in time are looked at again; a user's first pause is as long.
constexpr std::chrono::seconds kPutOffPause{2};
// Being refused takes some 20 us.
constexpr std::chrono::milliseconds kLateRead{100};
// As well for those that files beyond a user's share bring about.
constexpr std::chrono::seconds kRefusedPause{3};
constexpr size_t kMaxUnopened = 1'024;

// Full scans, a minute apart, that must miss a file before its probes go: a library that is loaded
// again soon keeps them.
constexpr int kUnseenScans = 2;

// All configured functions of several large libraries at once.
constexpr std::chrono::seconds kWorkLimit{60};

constexpr const char* kWrittenReason =
    "the file was written to while probed: its probes are out until it is left alone for 2 s, "
    "because they would break its new content; replace libraries by renaming a new file over them";

// Whether both find the same probes in the same files: thresholds may differ.
bool finds_the_same(ProbePlan a, ProbePlan b) {
  for (ProbePlan* plan : {&a, &b}) {
    plan->config.thresholds.clear();
    for (ProbeSpec& spec : plan->config.probes) spec.slow_threshold_ns.reset();
  }
  return a.config == b.config && a.launch_hooks == b.launch_hooks;
}

bool has_ptrace_capability() {
  const Result<std::string> status = read_status_text("/proc/self");
  if (!status.ok()) return false;
  const std::string mask(find_status_field(*status, "CapEff"));
  return (std::strtoull(mask.c_str(), nullptr, 16) >> CAP_SYS_PTRACE & 1) != 0;
}

}  // namespace

Prober::Prober(ProbePlan plan, ProcFiles proc, FunctionRegistry& registry, Programs& programs,
               DropCounters& drops, Listeners listeners)
    : proc_(std::move(proc)),
      registry_(registry),
      programs_(programs),
      drops_(drops),
      listeners_(std::move(listeners)),
      plan_(std::move(plan)),
      attacher_(programs),
      notes_(programs),
      in_flight_(programs, "list_in_flight"),
      file_shares_({.total = kMaxFoundFiles,
                    .kept_for_root = kMaxFoundFiles / 4,
                    .of_user = kMaxFilesOfUser}) {}

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
  set_finder();
  auto mappings = MappingEvents::start(make_filter());
  if (mappings.ok()) {
    mappings_ = std::move(*mappings);
    RETURN_IF_ERROR(watch(mappings_->descriptor()));
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

void Prober::set_finder() {
  LibraryFinder::Options options{.proc = proc_, .skip_pid = static_cast<uint32_t>(getpid())};
  if (plan_.launch_hooks) options.further_globs = {HookNotes::kLibraryGlob};
  finder_ = std::make_shared<LibraryFinder>(plan_.config, std::move(options));
  if (mappings_) mappings_->set_filter(make_filter());
}

// Shares the finder with the thread of the notices: it asks for nothing that ever changes.
MappingEvents::Filter Prober::make_filter() const {
  return [finder = finder_, on_mapping = listeners_.on_mapping](uint32_t pid,
                                                                const std::string& path) {
    on_mapping(pid, path);
    return finder->concerns(path);
  };
}

void Prober::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  thread_.join();
}

void Prober::wake() {
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
}

void Prober::post_plan(ProbePlan plan, std::function<void()> done) {
  {
    const MutexLock lock(mutex_);
    commands_.plan = std::move(plan);
    commands_.done.push_back(std::move(done));
  }
  wake();
}

void Prober::post_suspended(std::set<uint32_t> function_ids) {
  {
    const MutexLock lock(mutex_);
    commands_.suspended = std::move(function_ids);
  }
  wake();
}

void Prober::post_launch_reports(gpuperf_launch_reports wanted) {
  {
    const MutexLock lock(mutex_);
    commands_.launch_reports = wanted;
  }
  wake();
}

void Prober::post_done(std::function<void()> done) {
  {
    const MutexLock lock(mutex_);
    commands_.done.push_back(std::move(done));
  }
  wake();
}

void Prober::run() {
  while (!stopping_) {
    std::optional<Work> work(std::in_place, "probe", kWorkLimit);
    take_writes();  // before anything else: they are what can harm
    take_commands();
    if (SteadyClock::now() >= get_next_wake()) scan_all();
    scan_dirty();
    scan_put_off();
    take_pending(SteadyClock::now() + kSlice);
    if (!pending_.contains(ProcessUsers::kRoot)) calibrate_once();
    close_retired();
    if (std::exchange(changed_, false)) listeners_.on_report(make_report());
    work.reset();
    Time until = pending_.empty() ? get_next_wake() : SteadyClock::now();
    if (!put_off_.empty()) until = std::min(until, put_off_until_);
    wait_for_news(until);
  }
  notes_.detach_all();  // first: until then hooks keep calls from the probes
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
  auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
  if (attacher_.has_retired()) wait = std::min(wait, retire_poll_);
  epoll_event events[8];
  (void)epoll_wait(epoll_.get(), events, std::size(events),
                   static_cast<int>(std::max<int64_t>(wait.count(), 0)));
  eventfd_t wakes = 0;
  (void)eventfd_read(wake_.get(), &wakes);  // empty when something else woke us
  take_mappings();
}

void Prober::take_commands() {
  Commands commands;
  {
    const MutexLock lock(mutex_);
    commands = std::exchange(commands_, {});
  }
  if (commands.plan) {
    const bool is_found = finds_the_same(plan_, *commands.plan);
    plan_ = std::move(*commands.plan);
    for (auto& [id, file] : files_) file.stale = true;
    if (is_found) {
      reconcile_all();
    } else {
      set_finder();
      for (auto& [id, file] : files_) {
        file.wanted.clear();  // positions of another configuration
        file.refused.clear();
        file.outdated = true;
      }
      pending_.clear();
      scan_all();
      take_pending(SteadyClock::now() + kSlice);
    }
  }
  if (commands.suspended && *commands.suspended != suspended_) {
    suspended_ = std::move(*commands.suspended);
    for (auto& [id, file] : files_) file.stale = true;
    reconcile_all();
  }
  if (commands.launch_reports && *commands.launch_reports != launch_reports_) {
    launch_reports_ = *commands.launch_reports;
    for (const auto& [id, file] : files_) {
      if (!file.written) probe_notes(id, file);
    }
  }
  if (commands.done.empty()) return;
  // Before the answer, so that who asks next sees what was changed.
  changed_ = false;
  listeners_.on_report(make_report());
  for (const auto& done : commands.done) done();
}

void Prober::take_mappings() {
  if (!mappings_) return;
  auto [notices, lost] = mappings_->take();
  dirty_.merge(notices);
  if (lost == 0) return;
  drops_.add(DropCause::kDiscoveryEventsLost, lost);
  next_scan_ = std::min(next_scan_, std::max(SteadyClock::now(), earliest_scan_));
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
  notes_.detach({file_id});
  attacher_.detach_files({file_id});
  file.attached.clear();
  for (FileProbe& probe : file.probes) {
    if (!is_probed(probe.state)) continue;
    probe.state = ProbeState::kFailed;
    probe.reason = kWrittenReason;
  }
  log_warn("library written while probed", {{"library", file.path}, {"probes", "taken out"}});
  changed_ = true;
}

void Prober::scan_all() {
  const Time begin = SteadyClock::now();
  next_scan_ =
      begin + (mappings_ ? std::chrono::milliseconds(kScanPeriod) : kScanPeriodWithoutNotices);
  for (auto& [id, file] : files_) {
    ++file.unseen_scans;
    if (!file.written || SteadyClock::now() < file.quiet_at) continue;
    // Looked at anew below, if somebody still maps it.
    file = File{.path = file.path,
                .fd = std::move(file.fd),
                .owner_uid = file.owner_uid,
                .unseen_scans = file.unseen_scans};
    changed_ = true;
  }
  auto report = finder_->scan_all();
  const Time end = SteadyClock::now();
  earliest_scan_ = end + kScanPauseFactor * (end - begin);
  if (!report.ok()) {
    log_error("scan failed", {{"error", std::string(report.status().message())}});
    return;
  }
  for (const uint32_t pid : report->watched_pids) listeners_.on_watched(pid);
  refused_.clear();
  put_off_.assign(report->put_off_pids.begin(), report->put_off_pids.end());
  put_off_until_ = end + kPutOffPause;
  add_pending(std::exchange(report->files, {}));
  scan_ = *std::move(report);
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
  if (report.truncated_processes > 0) {
    found.push_back(
        {"discovery",
         std::to_string(report.truncated_processes) +
             " processes have more mappings than are read: libraries beyond are not probed",
         "look for a leak of mappings in processes with over a million of them"});
  }
  uint64_t left_out = report.files_left_out;
  std::string owners;
  for (const auto& [uid, count] : refused_) {
    left_out += count;
    owners += (owners.empty() ? "; files belong to uid " : ", ") + std::to_string(uid);
  }
  if (left_out > files_left_out_) {
    drops_.add(DropCause::kDiscoveryFilesFull, left_out - files_left_out_);
  }
  files_left_out_ = left_out;
  if (files_left_out_ > 0) {
    found.push_back({"discovery",
                     std::to_string(files_left_out_) + " library files beyond the bound of " +
                         std::to_string(kMaxFoundFiles) + ", or of " +
                         std::to_string(kMaxFilesOfUser) + " of one user, are not probed" + owners,
                     "look at what those users' processes map, or narrow `libraries` in the "
                     "configuration"});
  }
  if (found == scan_problems_) return;
  scan_problems_ = std::move(found);
  changed_ = true;
}

void Prober::scan_dirty() {
  std::map<uint32_t, std::vector<std::string>> by_pid;
  for (auto& [pid, path] : std::exchange(dirty_, {})) by_pid[pid].push_back(path);
  for (const auto& [pid, paths] : by_pid) {
    if (stopping_) return;
    auto report = finder_->scan_process(pid);
    listeners_.on_watched(pid);
    const bool is_late = report.ok() && !report->put_off_pids.empty();
    if (is_late) put_off(pid);
    if (report.ok() && !report->files.empty()) {
      add_pending(std::move(report->files));
    } else if (!is_late) {
      // Gone already: its files are still found under their names, for the next process that runs
      // them.
      add_pending(finder_->find_named(paths));
    }
  }
}

void Prober::put_off(uint32_t pid) {
  if (std::ranges::find(put_off_, pid) != put_off_.end()) return;
  if (put_off_.empty()) put_off_until_ = SteadyClock::now() + kPutOffPause;
  put_off_.push_back(pid);
}

// Those of users who are still to wait are refused at once; one that is late again comes behind
// them, so that each has his turn.
void Prober::scan_put_off() {
  const Time begin = SteadyClock::now();
  if (put_off_.empty() || begin < put_off_until_) return;
  std::vector<uint32_t> refused;
  std::vector<uint32_t> late;
  for (const uint32_t pid : std::exchange(put_off_, {})) {
    if (stopping_) return;
    const Time asked = SteadyClock::now();
    auto report = finder_->scan_process(pid);
    if (!report.ok()) continue;  // gone
    const bool took_long = SteadyClock::now() - asked >= kLateRead;
    if (!report->put_off_pids.empty()) (took_long ? late : refused).push_back(pid);
    for (const uint32_t watched : report->watched_pids) listeners_.on_watched(watched);
    add_pending(std::move(report->files));
  }
  put_off_ = std::move(refused);
  std::ranges::copy(late, std::back_inserter(put_off_));
  const Time end = SteadyClock::now();
  put_off_until_ = end + std::max<Time::duration>(kPutOffPause, kScanPauseFactor * (end - begin));
}

void Prober::add_pending(std::vector<FoundFile> files) {
  for (FoundFile& file : files) {
    const MappedInode mapped = file.mapped;
    pending_[file.uid].insert_or_assign(mapped, std::move(file));
  }
}

bool Prober::has_commands() {
  const MutexLock lock(mutex_);
  return commands_.plan || commands_.suspended || commands_.launch_reports ||
         !commands_.done.empty();
}

// Root's all, and others' until then; unless somebody waits for a change.
void Prober::take_pending(Time until) {
  bool any = false;
  while (!pending_.empty() && !stopping_ && !has_commands()) {
    auto user = pending_.find(ProcessUsers::kRoot);
    if (user == pending_.end() && SteadyClock::now() >= until) break;
    if (user == pending_.end()) user = pending_.upper_bound(last_user_);
    if (user == pending_.end()) user = pending_.begin();
    last_user_ = user->first;
    const auto next = user->second.extract(user->second.begin());
    if (user->second.empty()) pending_.erase(user);
    take_file(next.mapped());
    any = true;
  }
  if (pending_.empty() && scan_) finish_scan();
  // libtorch's symbol tables are some 100 MB, read once: the allocator would keep them for ever.
  if (any && pending_.empty()) (void)malloc_trim(0);
}

void Prober::finish_scan() {
  reconcile_all();  // those that are in no process any more
  // A process not read in time may have any of them. To take probes out of its files would wait for
  // it, too, and every fork on the host with that.
  if (put_off_.empty()) forget_unseen();
  explain_scan(*std::exchange(scan_, std::nullopt));
}

void Prober::take_file(const FoundFile& found) {
  auto opened = finder_->open_found(found);
  if (is_put_off(opened.status())) {
    for (const FileUser& user : found.users) put_off(user.pid);
    return;
  }
  if (!opened.ok()) {
    if (unopened_.size() < kMaxUnopened && unopened_.insert(found.path).second) {
      log_warn("library not opened",
               {{"library", found.path}, {"error", std::string(opened.status().message())}});
    }
    return;
  }
  const int id = take_file_id(*opened);
  if (id == 0) return;
  File& file = files_[id];
  file.unseen_scans = 0;
  if (file.written) return;  // its turn comes with the scan at quiet_at
  if (file.path.empty()) file.path = found.path;
  if (!file.fd.valid()) file.fd = std::move(opened->fd);
  const size_t before = file.wanted.size();
  file.wanted.insert(found.probes.begin(), found.probes.end());
  file.stale = file.stale || file.wanted.size() != before;
  file.outdated = false;
  if (file.stale) reconcile_stale(id, file);
}

// 0 = its owner has his share of the files; explain_scan says so.
int Prober::take_file_id(const OpenedFile& opened) {
  if (const auto known = ids_.find(opened.identity); known != ids_.end()) return known->second;
  const Shares::Holder owner{.uid = opened.owner_uid};
  if (file_shares_.take(owner) != Shares::Verdict::kTaken) {
    if (scan_) {
      ++refused_[owner.uid];
    } else {
      // The next full scan counts them all, and says so.
      next_scan_ = std::min(next_scan_, earliest_scan_ + kRefusedPause);
    }
    return 0;
  }
  const int id = find_file_id(opened);
  const auto [file, is_new] = files_.try_emplace(id);
  if (is_new) {
    file->second.owner_uid = owner.uid;
  } else {
    file_shares_.give_back(owner);  // known by another identity
  }
  return id;
}

// One id per file, however it is found: overlays show one file under several inodes, which only the
// identity sees through; a touched file changes its identity, which only the inode sees through.
int Prober::find_file_id(const OpenedFile& opened) {
  int id = 0;
  if (writes_) {
    const Result<int> watched = writes_->add(opened.fd.get());
    if (watched.ok()) id = *watched;
  }
  if (id == 0) id = next_own_id_--;
  std::erase_if(ids_, [id](const auto& entry) { return entry.second == id; });
  ids_.emplace(opened.identity, id);
  return id;
}

void Prober::forget_unseen() {
  std::set<int> unseen;
  for (const auto& [id, file] : files_) {
    if (file.unseen_scans >= kUnseenScans) unseen.insert(id);
  }
  if (unseen.empty()) return;
  notes_.detach(unseen);
  attacher_.detach_files(unseen);  // together: the kernel lets a link go in 30 to 110 ms
  for (const int id : unseen) {
    if (writes_ && id > 0) writes_->remove(id);
    file_shares_.give_back({.uid = files_.at(id).owner_uid});
    files_.erase(id);
  }
  tell_hooked_functions();
  std::erase_if(ids_, [&unseen](const auto& entry) { return unseen.contains(entry.second); });
  changed_ = true;
}

void Prober::reconcile_all() {
  for (auto& [id, file] : files_) {
    const bool is_expected = file.outdated && !(pending_.empty() && put_off_.empty());
    if (stopping_ || !file.stale || file.written || is_expected) continue;
    reconcile_stale(id, file);
  }
}

void Prober::reconcile_stale(int file_id, File& file) {
  file.stale = false;
  const std::vector<uint32_t> wanted(file.wanted.begin(), file.wanted.end());
  const Status read = file.known.examine(file.fd.get(), plan_.config, wanted);
  if (!read.ok()) {
    log_warn("library not read", {{"library", file.path}, {"error", std::string(read.message())}});
  }
  take_writes();  // reading a large library takes a second; what is written meanwhile goes first
  if (file.written) return;
  reconcile(file_id, file);
  changed_ = true;
}

void Prober::reconcile(int file_id, File& file) {
  const std::vector<uint32_t> wanted(file.wanted.begin(), file.wanted.end());
  file.probes =
      file.known.choose(plan_.config, wanted, registry_, plan_.default_threshold_ns, drops_);
  std::map<uint32_t, std::vector<ProbePoint>> desired;
  for (FileProbe& probe : file.probes) {
    if (!is_probed(probe.state)) continue;
    if (suspended_.contains(probe.function_id)) {
      probe.state = ProbeState::kSuspended;
      probe.reason =
          "taken out for a while: its calls cost a process more than "
          "overhead.budget_percent; see gpuperfctl status";
    } else if (const auto refused = file.refused.find(probe.function_id);
               refused != file.refused.end()) {
      probe.state = ProbeState::kFailed;
      probe.reason = refused->second;
    } else {
      desired[probe.function_id].push_back(probe.point);
    }
  }
  tell_functions(file);
  tell_costs(file);
  change_points({.id = file_id, .fd = file.fd.get(), .name = file.path}, file, desired);
  for (FileProbe& probe : file.probes) {
    const auto refused = file.refused.find(probe.function_id);
    if (!is_probed(probe.state) || refused == file.refused.end()) continue;
    probe.state = ProbeState::kFailed;
    probe.reason = refused->second;
  }
  tell_hooked_functions();
  probe_notes(file_id, file);
}

// Only what differs is touched: everything else goes on counting.
void Prober::change_points(const ProbedFile& probed, File& file,
                           const std::map<uint32_t, std::vector<ProbePoint>>& desired) {
  std::set<uint32_t> leaving;
  bool suspending = false;
  for (const auto& [function_id, points] : file.attached) {
    const auto wanted = desired.find(function_id);
    if (wanted != desired.end() && wanted->second == points) continue;
    leaving.insert(function_id);
    suspending = suspending || suspended_.contains(function_id);
  }
  if (!leaving.empty()) {
    const Time deadline = SteadyClock::now() + (suspending ? kSuspendWait : kRetireWait);
    const Status status = attacher_.detach(probed, leaving, deadline);
    if (!status.ok()) {
      // They stay in, and are tried again with the next change.
      log_error("probes not taken out",
                {{"library", file.path}, {"error", std::string(status.message())}});
      return;
    }
    for (const uint32_t function_id : leaving) file.attached.erase(function_id);
  }
  std::vector<ProbePoint> joining;
  for (const auto& [function_id, points] : desired) {
    if (file.attached.contains(function_id)) continue;
    std::ranges::copy(points, std::back_inserter(joining));
  }
  if (joining.empty() && leaving.empty()) return;
  size_t failed = 0;
  for (const ProbeOutcome& outcome : attacher_.attach(probed, joining)) {
    const uint32_t function_id = outcome.point.function_id;
    if (outcome.status.ok()) {
      file.attached[function_id].push_back(outcome.point);
    } else {
      ++failed;
      file.refused[function_id] = std::string(outcome.status.message());
    }
  }
  log_info("library probed", {{"library", file.path},
                              {"functions", std::to_string(file.attached.size())},
                              {"added", std::to_string(joining.size() - failed)},
                              {"removed", std::to_string(leaving.size())},
                              {"failed", std::to_string(failed)}});
}

// The kernel must know a function before its first probe fires.
void Prober::tell_functions(const File& file) {
  if (std::exchange(told_stacks_, plan_.stacks) != plan_.stacks) told_.clear();
  const auto functions = registry_.get();
  for (const FileProbe& probe : file.probes) {
    if (!is_probed(probe.state) || probe.function_id >= functions->size()) continue;
    const Function& function = (*functions)[probe.function_id];
    const auto known = told_.find(probe.function_id);
    if (known != told_.end() && known->second == function) continue;
    programs_.set_function(function, plan_.stacks);
    told_.insert_or_assign(probe.function_id, function);
  }
}

// In several files at once, a function costs what it does in the last one.
void Prober::tell_costs(const File& file) {
  for (const FileProbe& probe : file.probes) {
    if (!is_probed(probe.state)) continue;
    const CallCost cost = get_call_cost(costs_, probe.hit_cost, probe.point.timing);
    programs_.set_outside_cost(probe.function_id, static_cast<uint32_t>(cost.outside_ns));
  }
}

// By the driver's functions as they are probed, in whatever file. What the budget took out goes on
// being counted: that costs next to nothing.
void Prober::tell_hooked_functions() {
  std::map<std::string_view, uint32_t> ids;
  for (const auto& [id, file] : files_) {
    if (!HookNotes::is_driver(file.path)) continue;
    for (const FileProbe& probe : file.probes) {
      if (!is_probed(probe.state) && probe.state != ProbeState::kSuspended) continue;
      ids.emplace(probe.symbol, probe.function_id);
    }
  }
  for (size_t entry = 0; entry < GPUPERF_HOOK_COUNT; ++entry) {
    const auto known = ids.find(HookNotes::kEntries[entry]);
    programs_.set_hooked_function(entry,
                                  known == ids.end() ? std::nullopt : std::optional(known->second));
  }
}

void Prober::probe_notes(int file_id, const File& file) {
  if (!HookNotes::is_library(file.path)) return;
  const Status status = notes_.set({.id = file_id, .fd = file.fd.get(), .name = file.path},
                                   {.count = plan_.launch_hooks, .launches = launch_reports_});
  if (!status.ok()) log_warn("launch hooks not used", {{"error", std::string(status.message())}});
}

void Prober::close_retired() {
  if (!attacher_.has_retired()) {
    retire_poll_ = kFirstRetirePoll;
    return;
  }
  retire_poll_ = std::min(2 * retire_poll_, kLastRetirePoll);
  std::set<uint64_t> cookies;
  const auto calls = in_flight_.read();
  if (calls.ok()) {
    for (const gpuperf_in_flight& call : *calls) cookies.insert(call.cookie);
  } else {
    log_error("calls in flight not read", {{"error", std::string(calls.status().message())}});
  }
  attacher_.close_retired(cookies, SteadyClock::now());
}

// After the first scan: the workloads' probes come first.
void Prober::calibrate_once() {
  if (std::exchange(calibrated_, true)) return;
  if (changed_) listeners_.on_report(make_report());
  const Result<ProbeCosts> costs = calibrate(programs_.mechanism());
  changed_ = true;
  if (costs.ok()) {
    costs_ = *costs;
    for (const auto& [id, file] : files_) tell_costs(file);
    return;
  }
  problems_.push_back({"overhead",
                       "the cost of a probe could not be measured, so the budget is not kept: " +
                           std::string(costs.status().message()),
                       "restart gpuperfd; if it stays, probe fewer functions"});
}

std::shared_ptr<const ProbeReport> Prober::make_report() const {
  const auto functions = registry_.get();
  ReportInput input{.config = plan_.config,
                    .functions = *functions,
                    .mechanism = get_mechanism_name(programs_.mechanism()),
                    .default_threshold_ns = plan_.default_threshold_ns,
                    .costs = costs_,
                    .problems = problems_};
  std::ranges::copy(scan_problems_, std::back_inserter(input.problems));
  for (const auto& [id, file] : files_) {
    const std::vector<uint32_t> wanted(file.wanted.begin(), file.wanted.end());
    input.files.push_back({file.path, file.probes, file.known.list_missing(plan_.config, wanted)});
  }
  return make_probe_report(input);
}

}  // namespace gpuperf
