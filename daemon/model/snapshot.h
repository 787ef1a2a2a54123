#pragma once

// What the daemon knows at one moment, for every reader outside the loop. Never changes once built.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/event.h"
#include "daemon/model/function.h"
#include "daemon/model/histogram.h"

namespace gpuperf {

// Totals of one function over some set of processes.
struct FunctionTotals {
  uint64_t calls = 0;
  uint64_t abandoned = 0;
  uint64_t untimed = 0;
  uint64_t total_ns = 0;
  uint64_t self_ns = 0;
  uint64_t min_ns = 0;  // 0 = none completed
  uint64_t max_ns = 0;
  uint64_t slow_calls = 0;
  uint64_t other_errors = 0;
  std::map<int32_t, uint64_t> errors;  // code -> count
  Histogram histogram;                 // of completed calls

  bool operator==(const FunctionTotals&) const = default;
};

uint64_t get_error_count(const FunctionTotals& totals);
// Calls begun and neither completed, abandoned nor untimed.
uint64_t get_in_flight(const FunctionTotals& totals);
void add_delta(FunctionTotals& totals, const CellDelta& delta);
void merge_totals(FunctionTotals& totals, const FunctionTotals& other);

// One function in one process.
struct FunctionRow {
  uint32_t function_id = 0;
  ProcessKey process;
  Owner owner;
  bool exited = false;
  FunctionTotals totals;
};

// One function over all processes, living and gone, with the same owner: what metrics show. Only
// grows.
struct FunctionSeries {
  uint32_t function_id = 0;
  Owner owner;
  FunctionTotals totals;
};

struct ProcessRow {
  ProcessKey process;
  Owner owner;
  bool exited = false;
  uint32_t functions = 0;
  uint64_t calls = 0;
  uint64_t slow_calls = 0;
};

enum class ProbeState { kAttached, kEntryOnly, kWaiting, kSymbolMissing, kFailed, kDisabled };

// One configured function in one file, or without a file while none was found.
struct ProbeRow {
  std::string category;
  std::string function;
  std::string symbol;
  ProbeState state = ProbeState::kWaiting;
  std::string reason;
  std::string library;
  uint64_t offset_bytes = 0;
  std::string mechanism;
  uint64_t slow_threshold_ns = 0;
  bool operator==(const ProbeRow&) const = default;
};

struct StackFrame {
  std::string symbol;  // demangled; empty = not known
  std::string module;  // empty = not known
  uint64_t offset_bytes = 0;
  uint64_t address = 0;
  bool operator==(const StackFrame&) const = default;
};

struct SlowCall {
  uint64_t id = 0;  // 1 and up in order of arrival
  std::string category;
  std::string function;
  StatusKind status = StatusKind::kNone;
  uint64_t start_unix_ns = 0;
  SlowCallEvent event;
  std::vector<StackFrame> user_stack;  // innermost first
};

// Something the daemon cannot do.
struct Problem {
  std::string subject;
  std::string message;
  std::string hint;
  auto operator<=>(const Problem&) const = default;
};

// Facts about the daemon itself that do not change while it runs.
struct DaemonFacts {
  std::string version;
  uint32_t pid = 0;
  uint64_t start_unix_ns = 0;
  std::string kernel;
  std::string config_path;
  std::string config_json;      // text of the file as read
  std::string effective_json;   // every setting in force
  std::string metrics_address;  // empty = not served
};

// The probes' side, replaced as a whole when something attaches or fails.
struct ProbeReport {
  std::string mechanism = "none";  // "session", "multi", "perf"
  uint32_t files = 0;
  std::vector<ProbeRow> probes;  // configuration order
  std::vector<Problem> problems;
};

struct Snapshot {
  int64_t taken_mono_ns = 0;
  std::shared_ptr<const DaemonFacts> daemon;
  std::shared_ptr<const ProbeReport> probes;
  std::shared_ptr<const std::vector<Function>> functions;  // by id
  std::vector<std::shared_ptr<const FunctionRow>> rows;
  std::vector<std::shared_ptr<const FunctionSeries>> series;
  std::vector<ProcessRow> processes;
  std::vector<std::shared_ptr<const SlowCall>> slow_calls;  // arrival order
  uint64_t cpu_ns = 0;                                      // used by the daemon
  uint64_t resident_bytes = 0;                              // of the daemon
};

// Processes that run. pid 0 stands for calls that could not be kept per process: none itself.
uint64_t count_running_processes(const Snapshot& snapshot);

// Where the newest snapshot is found. Any thread; never empty after the first publish.
class SnapshotBoard {
 public:
  void publish(std::shared_ptr<const Snapshot> snapshot) {
    const std::lock_guard lock(mutex_);
    newest_ = std::move(snapshot);
  }
  std::shared_ptr<const Snapshot> get() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> newest_ =
      std::make_shared<const Snapshot>();  // guarded by mutex_
};

}  // namespace gpuperf
