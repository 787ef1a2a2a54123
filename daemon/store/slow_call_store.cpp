#include "daemon/store/slow_call_store.h"

#include <pthread.h>
#include <sqlite3.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/base/work_watch.h"
#include "daemon/store/call_query.h"
#include "daemon/store/store_file.h"

namespace gpuperf {
namespace {

// One transaction: a commit costs as much as some 20 calls, and while it is written its calls wait.
constexpr size_t kMaxBatchCalls = 512;
// Bounds the memory and the log where records are long: with seven stacks of 60 frames, 46 KB.
constexpr size_t kMaxBatchBytes = 8 << 20;

// A process of which fewer calls than this part of the queue wait has a place when it is full.
constexpr size_t kFewParts = 16;

int64_t count_ns(std::chrono::nanoseconds duration) { return duration.count(); }

}  // namespace

std::unique_ptr<SlowCallStore> SlowCallStore::start(const Options& options, const Clock& clock) {
  std::unique_ptr<SlowCallStore> store(new SlowCallStore(options, clock));
  const MutexLock lock(store->read_mutex_);
  Status status = store->open();
  if (status.ok()) {
    const Result<uint64_t> last_id = store->database_->read_last_id();
    status = last_id.status();
    store->last_id_ = last_id.value_or(0);
  }
  store->opened_ = status.ok();
  if (!status.ok()) {
    store->reader_.reset();
    store->database_.reset();
    store->note_failure(
        absl::Status(status.code(), std::string(status.message()) + ", and start gpuperfd again"));
  }
  store->pruning_ = store->opened_;
  store->thread_ = std::thread([raw = store.get()] { raw->run(); });
  return store;
}

SlowCallStore::SlowCallStore(const Options& options, const Clock& clock)
    : options_(options), clock_(clock) {}

SlowCallStore::~SlowCallStore() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Status SlowCallStore::open() {
  ASSIGN_OR_RETURN(auto database, SlowCallDatabase::open(options_.database));
  ASSIGN_OR_RETURN(reader_, SlowCallDatabase::open_reader(options_.database.path));
  database_ = std::move(database);
  return absl::OkStatus();
}

bool SlowCallStore::post_write(const ProcessKey& process, std::function<StoredCall()> make,
                               std::function<void(bool)> done) {
  {
    const MutexLock lock(mutex_);
    const auto own = waiting_.find(process);
    const size_t own_count = own == waiting_.end() ? 0 : own->second.size();
    const bool has_few = own_count < options_.queue_calls / kFewParts;
    if (waiting_count_ >= (has_few ? 2 : 1) * options_.queue_calls) return false;
    waiting_[process].push_back({.make = std::move(make), .done = std::move(done)});
    queued_.note(++waiting_count_);
  }
  wake_.notify_one();
  return true;
}

Result<std::vector<StoredCall>> SlowCallStore::query(const StoreQuery& query) {
  const MutexLock lock(read_mutex_);
  if (reader_ == nullptr)
    return absl::FailedPreconditionError("slow-call store: query: " + problem());
  return query_calls(*reader_, query);
}

Result<std::optional<StoredCall>> SlowCallStore::find(uint64_t id) {
  const MutexLock lock(read_mutex_);
  if (reader_ == nullptr)
    return absl::FailedPreconditionError("slow-call store: query: " + problem());
  return find_call(*reader_, id);
}

void SlowCallStore::fill(SelfReport& report) {
  report.add(Bound::kStoreQueue, queued_.take(), options_.queue_calls);
  report.add(Bound::kStore, used_bytes(), options_.database.max_bytes);
  report.add(MemoryPart::kStore, static_cast<uint64_t>(sqlite3_memory_used()));
  report.steps.push_back({std::string(kStoreWriteStep), writes_.get()});
  report.steps.push_back({std::string(kStoreSyncStep), syncs_.get()});
}

std::string SlowCallStore::problem() const {
  const MutexLock lock(mutex_);
  return problem_;
}

bool SlowCallStore::is_stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

void SlowCallStore::run() {
  // Only for those who look at threads; the name fits, so it cannot fail.
  (void)pthread_setname_np(pthread_self(), "store");
  // To the end: with a lowered bound, the first write would have to remove all that is too much.
  while (pruning_ && !is_stopping()) prune_when_due();
  while (true) {
    const auto posts = take_posts();
    if (!posts) return;
    const Work work("store");
    if (!posts->empty()) write_posts(*posts);
    prune_when_due();
    sync_when_due();
  }
}

// nullopt = stopping, and nothing waits.
std::optional<std::vector<SlowCallStore::Post>> SlowCallStore::take_posts() {
  MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + get_wait();
  while (!stopping_ && waiting_.empty() && wake_.wait_until(lock, deadline)) continue;
  if (waiting_.empty() && stopping_) return std::nullopt;
  std::vector<Post> posts;
  for (auto turn = waiting_.begin(); !waiting_.empty() && posts.size() < kMaxBatchCalls;) {
    if (turn == waiting_.end()) turn = waiting_.begin();
    posts.push_back(std::move(turn->second.front()));
    turn->second.pop_front();
    turn = turn->second.empty() ? waiting_.erase(turn) : std::next(turn);
  }
  waiting_count_ -= posts.size();
  queued_.note(waiting_count_);
  return posts;
}

std::chrono::milliseconds SlowCallStore::get_wait() const {
  if (failing_) return kPruneInterval;
  if (pruning_) return std::chrono::milliseconds(0);
  return sync_mono_ns_ ? kSyncInterval : kPruneInterval;
}

bool SlowCallStore::may_try() {
  if (!opened_ || (failing_ && clock_.mono_ns() < retry_mono_ns_)) return false;
  if (database_ != nullptr) return true;
  const MutexLock lock(read_mutex_);
  const Status status = open();
  if (!status.ok()) note_failure(status);
  return status.ok();
}

void SlowCallStore::write_posts(std::span<const Post> posts) {
  std::vector<bool> stored(posts.size());
  std::vector<StoredCall> calls;
  std::vector<size_t> places;  // of calls, in posts
  size_t batch_bytes = 0;
  const auto flush = [&] {
    const bool written = write_calls(calls);
    for (const size_t place : places) stored[place] = written;
    calls.clear();
    places.clear();
    batch_bytes = 0;
  };
  for (size_t i = 0; i < posts.size() && may_try(); ++i) {
    StoredCall call = posts[i].make();
    const Status status = SlowCallDatabase::check(call);
    if (!status.ok()) {
      log_warn("slow call not stored", {{"error", std::string(status.message())}});
      continue;
    }
    batch_bytes += SlowCallDatabase::count_bytes(call);
    calls.push_back(std::move(call));
    places.push_back(i);
    if (batch_bytes >= kMaxBatchBytes) flush();
  }
  if (!calls.empty()) flush();
  for (size_t i = 0; i < posts.size(); ++i) posts[i].done(stored[i]);
}

bool SlowCallStore::write_calls(std::span<const StoredCall> calls) {
  const auto begin = std::chrono::steady_clock::now();
  Status status = database_->has_moved()
                      ? absl::NotFoundError(options_.database.path + ": it was moved or removed")
                      : database_->write(calls);
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) {
    status = begin_anew(status);
    if (status.ok()) status = database_->write(calls);
  }
  if (!status.ok()) {
    note_failure(status);
    return false;
  }
  writes_.add(std::chrono::steady_clock::now() - begin);
  note_stored();
  return true;
}

Status SlowCallStore::begin_anew(const Status& damage) {
  const MutexLock lock(read_mutex_);
  reader_.reset();
  database_.reset();
  if (absl::IsDataLoss(damage)) {
    RETURN_IF_ERROR(set_aside_store(options_.database.path, damage));
  } else {
    log_warn("slow-call store created again", {{"cause", std::string(damage.message())}});
  }
  return open();
}

void SlowCallStore::prune_when_due() {
  const int64_t now_mono_ns = clock_.mono_ns();
  if (!pruning_ && now_mono_ns < prune_mono_ns_) return;
  prune_mono_ns_ = now_mono_ns + count_ns(kPruneInterval);
  pruning_ = false;
  if (!may_try()) return;
  const Result<bool> more = database_->prune_some(static_cast<uint64_t>(clock_.unix_ns()));
  pruning_ = more.value_or(false);
  Status status = more.status();
  if (status.ok() && !pruning_) status = database_->checkpoint();
  if (absl::IsDataLoss(status)) status = begin_anew(status);
  if (!status.ok()) return note_failure(status);
  used_bytes_.store(database_->read_used_bytes().value_or(0), std::memory_order_relaxed);
}

void SlowCallStore::sync_when_due() {
  if (!sync_mono_ns_ || clock_.mono_ns() < *sync_mono_ns_ || database_ == nullptr) return;
  sync_mono_ns_.reset();
  const auto begin = std::chrono::steady_clock::now();
  const Status status = database_->sync();
  syncs_.add(std::chrono::steady_clock::now() - begin);
  if (!status.ok()) note_failure(status);
}

void SlowCallStore::note_stored() {
  used_bytes_.store(database_->read_used_bytes().value_or(0), std::memory_order_relaxed);
  if (!sync_mono_ns_) sync_mono_ns_ = clock_.mono_ns() + count_ns(kSyncInterval);
  if (!std::exchange(failing_, false)) return;
  {
    const MutexLock lock(mutex_);
    problem_.clear();
  }
  log_info("slow calls are stored again", {{"path", options_.database.path}});
}

void SlowCallStore::note_failure(const Status& status) {
  retry_mono_ns_ = clock_.mono_ns() + count_ns(options_.retry_interval);
  const std::string problem(status.message());
  if (!std::exchange(failing_, true)) {
    log_warn("slow calls are not stored", {{"error", problem}});
  }
  const MutexLock lock(mutex_);
  problem_ = problem;
}

}  // namespace gpuperf
