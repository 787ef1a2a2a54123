#include "daemon/probe/discovery/file_search.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/needed_rights.h"
#include "daemon/base/work_watch.h"

namespace gpuperf {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Safety net under the notices; a scan of 1,000 processes takes some 50 ms of one CPU.
constexpr std::chrono::seconds kScanPeriod{60};
// Without notices: the promise is a second to a new file.
constexpr std::chrono::milliseconds kScanPeriodWithoutNotices{800};
// Of files found, so long at a time; then whatever else has happened.
constexpr std::chrono::milliseconds kSlice{50};
// After a scan, scans for lost notices pause for so many times as long as it took.
constexpr int kScanPauseFactor = 10;
// Processes that were not read in time are looked at again; a user's first pause is as long.
constexpr std::chrono::seconds kPutOffPause{2};
// Being refused takes some 20 us.
constexpr std::chrono::milliseconds kLateRead{100};
// As well before a scan that was asked for with a pause.
constexpr std::chrono::seconds kAskedScanPause{3};
constexpr size_t kMaxUnopened = 1'024;
// Symbol tables of all that 50 new PyTorch environments map.
constexpr std::chrono::seconds kWorkLimit{60};

}  // namespace

FileSearch::FileSearch(ProcFiles proc, Query query, DropCounters& drops, Listeners listeners)
    : proc_(std::move(proc)), drops_(drops), listeners_(std::move(listeners)) {
  set_finder(query);
}

FileSearch::~FileSearch() { stop(); }

Status FileSearch::start() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return errno_status(errno, "file search: epoll_create1");
  news_ready_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!news_ready_.valid() || !wake_.valid()) return errno_status(errno, "file search: eventfd");
  auto mappings = MappingEvents::start(make_filter());
  if (mappings.ok()) {
    mappings_ = std::move(*mappings);
  } else {
    problems_.push_back({"discovery",
                         "no notice of new mappings, scanning every 0.8 s instead: " +
                             std::string(mappings.status().message()),
                         kNeededRights});
  }
  for (const int descriptor : {wake_.get(), mappings_ ? mappings_->descriptor() : -1}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (descriptor >= 0 && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return errno_status(errno, "file search: epoll_ctl");
    }
  }
  next_scan_ = SteadyClock::now();
  thread_ = std::thread([this] { run(); });
  return absl::OkStatus();
}

void FileSearch::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  news_.close();
  wake();
  thread_.join();
}

void FileSearch::wake() {
  (void)eventfd_write(wake_.get(), 1);  // full only when a wake-up already waits
}

void FileSearch::post_query(Query query) {
  {
    const MutexLock lock(mutex_);
    commands_.query = std::move(query);
    ++query_number_;
  }
  wake();
}

void FileSearch::post_scan(bool after_pause) {
  {
    const MutexLock lock(mutex_);
    (after_pause ? commands_.scan_later : commands_.scan_now) = true;
  }
  wake();
}

std::optional<FileSearch::News> FileSearch::take() {
  while (true) {
    std::optional<Told> told = news_.try_pop();
    if (!told) {
      eventfd_t count = 0;
      (void)eventfd_read(news_ready_.get(), &count);  // empty when it was read already
      told = news_.try_pop();
    }
    if (!told) return std::nullopt;
    if (told->query == query_number_) return std::move(told->news);
  }
}

void FileSearch::hand(News news) {
  (void)news_.push({.query = query_, .news = std::move(news)});  // closed: nobody wants it
  (void)eventfd_write(news_ready_.get(), 1);
}

void FileSearch::run() {
  while (!stopping_) {
    take_commands();
    if (SteadyClock::now() >= next_scan_) scan_all();
    scan_dirty();
    scan_put_off();
    hand_pending();
    Time until = pending_.empty() ? next_scan_ : SteadyClock::now();
    if (!put_off_.empty()) until = std::min(until, put_off_until_);
    wait_for_news(until);
  }
}

void FileSearch::take_commands() {
  Commands commands;
  {
    const MutexLock lock(mutex_);
    commands = std::exchange(commands_, {});
    query_ = query_number_;
  }
  if (commands.query) {
    set_finder(*commands.query);
    if (mappings_) mappings_->set_filter(make_filter());
    pending_.clear();
    scan_.reset();
  }
  if (commands.query || commands.scan_now) next_scan_ = SteadyClock::now();
  if (commands.scan_later) next_scan_ = std::min(next_scan_, earliest_scan_ + kAskedScanPause);
}

// What is looked for now is of no use any more.
bool FileSearch::is_interrupted() { return stopping_ || query_ != query_number_; }

void FileSearch::set_finder(const Query& query) {
  finder_ = std::make_shared<LibraryFinder>(
      query.config, LibraryFinder::Options{.proc = proc_,
                                           .skip_pid = static_cast<uint32_t>(getpid()),
                                           .further_globs = query.further_globs,
                                           .is_interrupted = [this] { return is_interrupted(); }});
}

// Shares the finder with the thread of the notices: it asks for nothing that ever changes.
MappingEvents::Filter FileSearch::make_filter() const {
  return [finder = finder_, on_mapping = listeners_.on_mapping](uint32_t pid,
                                                                const std::string& path) {
    on_mapping(pid, path);
    return finder->concerns(path);
  };
}

void FileSearch::wait_for_news(Time until) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
  epoll_event events[2];
  (void)epoll_wait(epoll_.get(), events, std::size(events),
                   static_cast<int>(std::max<int64_t>(wait.count(), 0)));
  eventfd_t wakes = 0;
  (void)eventfd_read(wake_.get(), &wakes);  // empty when something else woke us
  take_mappings();
}

void FileSearch::take_mappings() {
  if (!mappings_) return;
  auto [notices, lost] = mappings_->take();
  dirty_.merge(notices);
  if (lost == 0) return;
  drops_.add(DropCause::kDiscoveryEventsLost, lost);
  next_scan_ = std::min(next_scan_, std::max(SteadyClock::now(), earliest_scan_));
}

void FileSearch::scan_all() {
  const Time begin = SteadyClock::now();
  next_scan_ =
      begin + (mappings_ ? std::chrono::milliseconds(kScanPeriod) : kScanPeriodWithoutNotices);
  hand(ScanBegan());
  std::optional<Work> work(std::in_place, "search", kWorkLimit);
  std::map<MappedInode, std::vector<uint32_t>> handed;
  auto report = finder_->scan_all([&](const ScanReport& of_root) {
    work.reset();
    for (const FoundFile& file : of_root.files) handed.emplace(file.mapped, file.probes);
    hand_root(of_root);
    work.emplace("search", kWorkLimit);
  });
  const Time end = SteadyClock::now();
  earliest_scan_ = end + kScanPauseFactor * (end - begin);
  if (is_interrupted()) return;
  if (!report.ok()) {
    log_error("scan failed", {{"error", std::string(report.status().message())}});
    hand(RootHanded());
    return;
  }
  for (const uint32_t pid : report->watched_pids) listeners_.on_watched(pid);
  put_off_.assign(report->put_off_pids.begin(), report->put_off_pids.end());
  put_off_until_ = end + kPutOffPause;
  std::vector<FoundFile> files = std::exchange(report->files, {});
  std::erase_if(files, [&handed](const FoundFile& file) {
    const auto known = handed.find(file.mapped);
    return known != handed.end() && known->second == file.probes;
  });
  add_pending(std::move(files));
  scan_ = *std::move(report);
  is_idle_told_ = false;
}

void FileSearch::hand_root(const ScanReport& report) {
  add_pending(report.files);
  while (pending_.contains(ProcessUsers::kRoot) && !is_interrupted()) hand_next();
  hand(RootHanded());
}

void FileSearch::scan_dirty() {
  std::map<uint32_t, std::vector<std::string>> by_pid;
  for (auto& [pid, path] : std::exchange(dirty_, {})) by_pid[pid].push_back(path);
  for (const auto& [pid, paths] : by_pid) {
    if (stopping_) return;
    const Work work("search", kWorkLimit);
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

void FileSearch::put_off(uint32_t pid) {
  if (std::ranges::find(put_off_, pid) != put_off_.end()) return;
  if (put_off_.empty()) put_off_until_ = SteadyClock::now() + kPutOffPause;
  put_off_.push_back(pid);
}

// Those of users who are still to wait are refused at once; one that is late again comes behind
// them, so that each has his turn.
void FileSearch::scan_put_off() {
  const Time begin = SteadyClock::now();
  if (put_off_.empty() || begin < put_off_until_) return;
  std::vector<uint32_t> refused;
  std::vector<uint32_t> late;
  for (const uint32_t pid : std::exchange(put_off_, {})) {
    if (is_interrupted()) return;  // the next scan finds them all
    const Work work("search", kWorkLimit);
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

void FileSearch::add_pending(std::vector<FoundFile> files) {
  for (FoundFile& file : files) {
    const MappedInode mapped = file.mapped;
    pending_[file.uid].insert_or_assign(mapped, std::move(file));
  }
}

// Root's all, and others' for so long.
void FileSearch::hand_pending() {
  const Time until = SteadyClock::now() + kSlice;
  while (!pending_.empty() && !is_interrupted()) {
    if (!pending_.contains(ProcessUsers::kRoot) && SteadyClock::now() >= until) return;
    hand_next();
  }
  if (is_interrupted() || is_idle_told_) return;
  hand(AllHanded{.scan = std::exchange(scan_, std::nullopt), .is_all_read = put_off_.empty()});
  is_idle_told_ = true;
}

void FileSearch::hand_next() {
  auto user = pending_.find(ProcessUsers::kRoot);
  if (user == pending_.end()) user = pending_.upper_bound(last_user_);
  if (user == pending_.end()) user = pending_.begin();
  last_user_ = user->first;
  const auto next = user->second.extract(user->second.begin());
  if (user->second.empty()) pending_.erase(user);
  open_and_hand(next.mapped());
}

void FileSearch::open_and_hand(const FoundFile& found) {
  std::optional<Work> work(std::in_place, "search", kWorkLimit);
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
  work.reset();
  is_idle_told_ = false;
  hand(FileOpened{.found = found, .opened = *std::move(opened)});
}

}  // namespace gpuperf
