#include "daemon/probe/prober.h"

#include <linux/capability.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/needed_rights.h"
#include "daemon/base/process_status.h"
#include "daemon/base/work_watch.h"
#include "daemon/probe/attach/probe_report.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

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

// Full scans, a minute apart, that must miss a file before its probes go: a library that is loaded
// again soon keeps them.
constexpr int kUnseenScans = 2;

// Within that processes note what they counted until the end (injector/entry.cpp).
constexpr std::chrono::milliseconds kLastNotes{150};

// All configured functions of several large libraries at once.
constexpr std::chrono::seconds kWorkLimit{60};

// Whatever happens wakes the thread.
constexpr std::chrono::minutes kLongestWait{1};

constexpr const char* kSuspendedReason =
    "suspended: its calls cost a process more than overhead.budget_percent, so they are counted in "
    "short windows only; see gpuperfctl status";
constexpr const char* kSampledReason =
    "sampled: its calls are counted in short windows only (\"sample\": true in the configuration)";
constexpr const char* kWrittenReason =
    "the file was modified while probed: its probes are detached until it is unchanged for 2 s, "
    "because they would corrupt its new content; to replace a library, rename a new file over it";

FileSearch::Query make_query(const ProbePlan& plan) {
  FileSearch::Query query{.config = plan.config};
  if (plan.launch_hooks) query.further_globs = {HookNotes::kLibraryGlob};
  return query;
}

// Whether both find the same probes in the same files: thresholds may differ.
bool finds_the_same(ProbePlan a, ProbePlan b) {
  for (ProbePlan* plan : {&a, &b}) {
    plan->config.thresholds.clear();
    for (ProbeSpec& spec : plan->config.probes) spec.slow_threshold_ns.reset();
  }
  return a.config == b.config && a.launch_hooks == b.launch_hooks;
}

int64_t to_mono_ns(SteadyClock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

Prober::Prober(ProbePlan plan, ProcFiles proc, FunctionRegistry& registry, TensorLayouts& layouts,
               Programs& programs, DropCounters& drops, Listeners listeners,
               FileSearch::Listeners search_listeners)
    : registry_(registry),
      programs_(programs),
      drops_(drops),
      listeners_(std::move(listeners)),
      plan_(std::move(plan)),
      search_(std::move(proc), make_query(plan_), drops, std::move(search_listeners)),
      attacher_(programs),
      layouts_(layouts, programs),
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
  auto writes = FileWatch::open();
  if (writes.ok()) {
    writes_ = std::move(*writes);
    RETURN_IF_ERROR(watch(writes_->descriptor()));
  } else {
    problems_.push_back(
        {"probes",
         "cannot watch probed files for writes: " + std::string(writes.status().message()),
         "raise fs.inotify.max_user_instances, and never overwrite a library in "
         "place while gpuperfd runs"});
  }
  RETURN_IF_ERROR(search_.start());
  RETURN_IF_ERROR(watch(search_.descriptor()));
  std::ranges::copy(search_.problems(), std::back_inserter(problems_));
  if (!programs_.unseen_ends().empty()) {
    problems_.push_back(
        {"launch hooks",
         "launches in a process's last 100 ms may be missing if it is killed, calls _exit or "
         "executes another program, because this kernel cannot trace: " +
             programs_.unseen_ends(),
         "use Linux 6.16 or later, or one with CONFIG_FUNCTION_TRACER"});
  }
  thread_ = std::thread([this] { run(); });
  return absl::OkStatus();
}

void Prober::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  search_.stop();
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

void Prober::post_suspended(std::set<uint32_t> function_ids, bool is_sampling) {
  {
    const MutexLock lock(mutex_);
    commands_.suspended = Suspended{std::move(function_ids), is_sampling};
  }
  wake();
}

void Prober::post_window(uint32_t function_id, std::chrono::milliseconds length) {
  {
    const MutexLock lock(mutex_);
    commands_.window.emplace(function_id, length);
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
    {
      const Work work("probe", kWorkLimit);
      take_writes();  // before anything else: they are what can harm
      take_commands();
      ask_for_scan();
      take_news();
      close_retired();
      if (std::exchange(changed_, false)) listeners_.on_report(make_report());
    }
    wait_for_news();
  }
  // First: until then hooks keep calls from the probes.
  if (notes_.stop_counting()) std::this_thread::sleep_for(kLastNotes);
  notes_.detach_all();
  attacher_.detach_all();
}

// Files that were written to and have been left alone since are looked at anew.
void Prober::ask_for_scan() {
  if (is_scan_asked_) return;
  const Time now = SteadyClock::now();
  is_scan_asked_ = std::ranges::any_of(files_, [now](const auto& entry) {
    return entry.second.written && entry.second.quiet_at <= now;
  });
  if (is_scan_asked_) search_.post_scan(false);
}

void Prober::wait_for_news() {
  std::chrono::milliseconds wait = attacher_.has_retired() ? retire_poll_ : kLongestWait;
  const Time now = SteadyClock::now();
  for (const auto& [id, file] : files_) {
    if (!file.written || is_scan_asked_) continue;
    wait = std::min(wait, std::chrono::ceil<std::chrono::milliseconds>(file.quiet_at - now));
  }
  epoll_event events[4];
  (void)epoll_wait(epoll_.get(), events, std::size(events),
                   static_cast<int>(std::max<int64_t>(wait.count(), 0)));
  eventfd_t wakes = 0;
  (void)eventfd_read(wake_.get(), &wakes);  // empty when something else woke us
}

void Prober::take_commands() {
  Commands commands;
  {
    const MutexLock lock(mutex_);
    commands = std::exchange(commands_, {});
  }
  if (commands.plan) set_plan(*std::move(commands.plan));
  if (commands.suspended && *commands.suspended != suspended_) {
    suspended_ = std::move(*commands.suspended);
    for (auto& [id, file] : files_) file.stale = true;
    reconcile_all();
  }
  if (commands.window) run_window(commands.window->first, commands.window->second);
  if (commands.launch_reports && *commands.launch_reports != launch_reports_) {
    launch_reports_ = *commands.launch_reports;
    for (const auto& [id, file] : files_) {
      if (!file.written) probe_notes(id, file);
    }
  }
  std::ranges::move(commands.done, std::back_inserter(awaiting_root_));
  if (is_root_searched_) answer();
}

void Prober::set_plan(ProbePlan plan) {
  const bool is_found = finds_the_same(plan_, plan);
  const ProbePlan before = std::exchange(plan_, std::move(plan));
  for (auto& [id, file] : files_) file.stale = true;
  if (is_found) return reconcile_all();
  renumber_probes(before.config);
  for (auto& [id, file] : files_) {
    file.wanted.clear();  // positions of another configuration
    file.refused.clear();
    file.outdated = true;
  }
  is_plan_searched_ = false;
  is_root_searched_ = false;
  search_.post_query(make_query(plan_));
}

// Probes stay as they are until their file is found again, and are reported meanwhile: but for
// those of functions that the configuration has no longer.
void Prober::renumber_probes(const ProbeConfig& before) {
  const auto name = [](const ProbeSpec& spec) {
    return std::pair<std::string_view, std::string_view>(spec.category, spec.function);
  };
  std::map<std::pair<std::string_view, std::string_view>, size_t> positions;
  for (size_t i = 0; i < plan_.config.probes.size(); ++i) {
    positions.emplace(name(plan_.config.probes[i]), i);
  }
  for (auto& [id, file] : files_) {
    std::erase_if(file.probes, [&](FileProbe& probe) {
      const auto known = positions.find(name(before.probes[probe.spec]));
      if (known != positions.end()) probe.spec = known->second;
      return known == positions.end();
    });
  }
}

void Prober::answer() {
  if (awaiting_root_.empty()) return;
  // Before the answer, so that who asks next sees what was changed.
  changed_ = false;
  listeners_.on_report(make_report());
  for (const auto& done : std::exchange(awaiting_root_, {})) done();
}

void Prober::take_writes() {
  std::set<int> written;
  if (writes_ && !writes_->drain([&written](int file_id) { written.insert(file_id); })) {
    // Which files were written is lost: any may have been.
    for (const auto& [file_id, file] : files_) written.insert(file_id);
  }
  std::erase_if(written, [this](int file_id) { return !note_written(file_id); });
  if (written.empty()) return;
  // Together: who writes to hundreds of files would hold up everything else otherwise.
  notes_.detach(written);
  attacher_.detach_files(written);
  changed_ = true;
}

bool Prober::note_written(int file_id) {
  const auto entry = files_.find(file_id);
  if (entry == files_.end()) return false;
  File& file = entry->second;
  file.quiet_at = SteadyClock::now() + kQuietPeriod;
  if (std::exchange(file.written, true)) return false;
  file.attached.clear();
  for (FileProbe& probe : file.probes) {
    if (!is_probed(probe.state)) continue;
    probe.state = ProbeState::kFailed;
    probe.reason = kWrittenReason;
  }
  log_warn("library modified while probed", {{"library", file.path}, {"probes", "detached"}});
  return true;
}

bool Prober::has_commands() {
  const MutexLock lock(mutex_);
  return commands_.plan || commands_.suspended || commands_.window || commands_.launch_reports ||
         !commands_.done.empty();
}

void Prober::take_news() {
  const Time until = SteadyClock::now() + kSlice;
  while (!stopping_ && !has_commands() && SteadyClock::now() < until) {
    std::optional<FileSearch::News> news = search_.take();
    if (!news) return;
    std::visit([this](auto& told) { apply(std::move(told)); }, *news);
  }
}

void Prober::apply(const FileSearch::ScanBegan& /*began*/) {
  is_scanning_ = true;
  is_scan_asked_ = false;
  refused_.clear();
  for (auto& [id, file] : files_) {
    ++file.unseen_scans;
    if (!file.written || SteadyClock::now() < file.quiet_at) continue;
    // Looked at anew, if somebody still maps it.
    file = File{.path = file.path,
                .fd = std::move(file.fd),
                .owner_uid = file.owner_uid,
                .device = file.device,
                .unseen_scans = file.unseen_scans};
    layouts_.forget({id});
    changed_ = true;
  }
}

void Prober::apply(const FileSearch::RootHanded& /*handed*/) {
  is_root_searched_ = true;
  answer();
  calibrate_once();
}

void Prober::apply(const FileSearch::AllHanded& handed) {
  if (handed.scan) {
    is_scanning_ = false;
    is_plan_searched_ = handed.is_all_read;
    reconcile_all();  // those that are in no process any more
    // A process not read in time may have any of them. To take probes out of its files would wait
    // for it, too, and every fork on the host with that.
    if (handed.is_all_read) forget_unseen();
    explain_scan(*handed.scan);
  }
}

void Prober::explain_scan(const ScanReport& report) {
  std::vector<Problem> found;
  // With the capability, those few are refused to everybody by the kernel's or the sandbox's own
  // rules.
  if (report.unreadable_processes > 0 && !has_own_capability(CAP_SYS_PTRACE)) {
    found.push_back({"discovery",
                     std::to_string(report.unreadable_processes) +
                         " processes cannot be inspected: their libraries are not probed",
                     kNeededRights});
  }
  if (report.truncated_processes > 0) {
    found.push_back(
        {"discovery",
         std::to_string(report.truncated_processes) +
             " processes have too many mappings to read: libraries in the rest are not probed",
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
    found.push_back(
        {"discovery",
         std::to_string(files_left_out_) + " library files beyond the limit of " +
             std::to_string(kMaxFoundFiles) + ", or of " + std::to_string(kMaxFilesOfUser) +
             " of one user, are not probed" + owners,
         "check what those users' processes map, or narrow `libraries` in the configuration"});
  }
  if (found == scan_problems_) return;
  scan_problems_ = std::move(found);
  changed_ = true;
}

void Prober::apply(FileSearch::FileOpened file_opened) {
  auto& [found, opened] = file_opened;
  const int id = take_file_id(opened);
  if (id == 0) return;
  File& file = files_[id];
  file.unseen_scans = 0;
  if (file.written) return;  // its turn comes with the scan at quiet_at
  if (file.path.empty()) {
    file.path = found.path;
    file.device = opened.identity.device;
  }
  if (!file.fd.valid()) file.fd = std::move(opened.fd);
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
    if (is_scanning_) {
      ++refused_[owner.uid];
    } else {
      search_.post_scan(true);  // which counts them all, and says so
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
  layouts_.forget(unseen);
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
    const bool is_expected = file.outdated && !is_plan_searched_;
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
  learn_layout(file_id, file);
  take_writes();  // reading a large library takes a second; what is written meanwhile goes first
  if (file.written) return;
  reconcile(file_id, file);
  changed_ = true;
}

// Before the probes of the file, and of those whose tensors it describes, are put in.
void Prober::learn_layout(int file_id, const File& file) {
  const auto is_wanted = [this](uint32_t spec) {
    return is_operator(plan_.config.probes[spec].arguments.get());
  };
  if (std::ranges::none_of(file.wanted, is_wanted)) return;
  const std::string folder = file.path.substr(0, file.path.rfind('/') + 1);
  for (const int id :
       layouts_.learn(file_id, {file.device, folder}, file.fd.get(), file.owner_uid)) {
    File& beside = files_.at(id);
    if (!beside.written && !beside.outdated && !beside.stale) reconcile(id, beside);
  }
}

void Prober::set_layout(int file_id, FileProbe& probe) const {
  if (!is_operator(plan_.config.probes[probe.spec].arguments.get())) return;
  const FileLayouts::Layout layout = layouts_.find(file_id);
  probe.point.tensor_layout = static_cast<uint8_t>(layout.number);
  if (layout.number == 0) probe.state = ProbeState::kFailed;
  probe.reason = layout.number != 0 ? "an operator: timed by the one after it on its thread"
                                    : "where the fields of its tensors lie is not known, so it is "
                                      "not probed: " +
                                          layout.fault;
}

void Prober::reconcile(int file_id, File& file) {
  const std::vector<uint32_t> wanted(file.wanted.begin(), file.wanted.end());
  file.probes =
      file.known.choose(plan_.config, wanted, registry_, plan_.default_threshold_ns, drops_);
  std::map<uint32_t, std::vector<ProbePoint>> desired;
  for (FileProbe& probe : file.probes) {
    if (!is_probed(probe.state)) continue;
    set_layout(file_id, probe);
    if (!is_probed(probe.state)) continue;
    if (is_suspended(probe)) {
      probe.state = ProbeState::kSuspended;
      probe.reason =
          suspended_.function_ids.contains(probe.function_id) ? kSuspendedReason : kSampledReason;
      if (is_in_window(probe.function_id)) desired[probe.function_id].push_back(probe.point);
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
  if (HookNotes::is_driver(file.path)) tell_hooked_functions();
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
    suspending = suspending || window_ || suspended_.function_ids.contains(function_id);
  }
  if (!leaving.empty()) {
    const Time deadline = SteadyClock::now() + (suspending ? kSuspendWait : kRetireWait);
    const Status status = attacher_.detach(probed, leaving, deadline);
    if (!status.ok()) {
      // They stay in, and are tried again with the next change.
      log_error("probes not detached",
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
  if (window_) return;  // every few seconds
  log_info("library probed", {{"library", file.path},
                              {"functions", std::to_string(file.attached.size())},
                              {"added", std::to_string(joining.size() - failed)},
                              {"removed", std::to_string(leaving.size())},
                              {"failed", std::to_string(failed)}});
}

bool Prober::is_suspended(const FileProbe& probe) const {
  return suspended_.function_ids.contains(probe.function_id) ||
         (suspended_.is_sampling && plan_.config.probes[probe.spec].is_sampled);
}

bool Prober::is_in_window(uint32_t function_id) const {
  return window_ && window_->is_open && window_->function_id == function_id;
}

// Whether the window's function is probed in any file then.
bool Prober::reconcile_window() {
  bool is_probed = false;
  for (auto& [id, file] : files_) {
    if (stopping_ || file.written || file.outdated) continue;
    const auto is_its = [this](const FileProbe& probe) {
      return probe.function_id == window_->function_id && probe.state == ProbeState::kSuspended;
    };
    if (std::ranges::none_of(file.probes, is_its)) continue;
    reconcile(id, file);
    is_probed |= file.attached.contains(window_->function_id);
  }
  return is_probed;
}

// Nothing else is done meanwhile. Of several files, probes leave in the order in which they came,
// so the window is about as long in each.
void Prober::run_window(uint32_t function_id, std::chrono::milliseconds length) {
  window_.emplace(Window{.function_id = function_id});
  const bool is_probed = reconcile_window();
  const Time begin = SteadyClock::now();
  if (is_probed) std::this_thread::sleep_until(begin + length);
  window_->is_open = false;
  reconcile_window();
  const Time end = is_probed ? SteadyClock::now() : begin;
  window_.reset();
  if (is_probed) std::this_thread::sleep_for(Attacher::kRetireGrace);
  retire_poll_ = kFirstRetirePoll;
  close_retired();  // its trap is gone, unless a call is in flight
  listeners_.on_window(function_id, to_mono_ns(begin), to_mono_ns(end));
}

// The kernel must know a function before its first probe fires.
void Prober::tell_functions(const File& file) {
  if (std::exchange(told_stacks_, plan_.stacks) != plan_.stacks) told_.clear();
  const auto functions = registry_.get();
  for (const FileProbe& probe : file.probes) {
    if (!is_placed(probe.state) || probe.function_id >= functions->size()) continue;
    const Function& function = (*functions)[probe.function_id];
    const auto known = told_.find(probe.function_id);
    if (known != told_.end() && known->second == function) continue;
    programs_.set_function(function, plan_.stacks);
    told_.insert_or_assign(probe.function_id, function);
  }
}

// In several files at once, a function costs what it does in the last one.
void Prober::tell_costs(const File& file) {
  const auto functions = registry_.get();
  for (const FileProbe& probe : file.probes) {
    if (!is_placed(probe.state) || probe.function_id >= functions->size()) continue;
    const CallCost cost =
        get_call_cost(costs_, probe.hit_cost, probe.point.timing, (*functions)[probe.function_id]);
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
      if (!is_placed(probe.state)) continue;
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
  problems_.push_back(
      {"overhead",
       "the cost of a probe could not be measured, so the overhead budget is not enforced: " +
           std::string(costs.status().message()),
       "restart gpuperfd; if this happens again, probe fewer functions"});
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
