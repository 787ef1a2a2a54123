#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/app/leaf_parts.h"
#include "daemon/app/overhead_part.h"
#include "daemon/app/probing_part.h"
#include "daemon/app/tracing_part.h"
#include "daemon/config/qos_rule.h"
#include "daemon/export/foreign_metrics.h"
#include "daemon/export/qos_reading.h"
#include "daemon/state/qos_watch.h"
#include "daemon/store/whole_file.h"

namespace gpuperf {
namespace {

constexpr int64_t kLookNs = 500'000'000;
constexpr int64_t kFileNs = 1'000'000'000;
constexpr size_t kFileMaxBytes = 512;
// Of a breach that lasts, gpuperf's own part is measured: so long after it began, for so long.
constexpr int64_t kCheckAfterNs = 10'000'000'000;
constexpr int64_t kCheckNs = 30'000'000'000;

constexpr LogEvent kBreached{"rule breached", "7ca76ac170b2446595a9607089b613a1"};
constexpr LogEvent kReleased{"rule released", "ed0cd9fbbe734c2fa012c2fbd1fc465e"};

using Kind = OverheadDemand::Kind;

// Observes more or less by rules over our own metrics and those of other programs, and by a file
// that others write.
class QosPart final : public Part {
 public:
  QosPart(Core& core, ProbingPart& probing, TracingPart& tracing, OverheadPart& overhead)
      : Part(core), probing_(probing), tracing_(tracing), overhead_(overhead) {}

  Status start() override {
    apply_settings(core_.settings);
    return absl::OkStatus();
  }

  // A rule that stays as it is goes on as it stands.
  void apply_settings(const Settings& settings) override {
    const auto release_ns = static_cast<int64_t>(settings.qos.release_seconds) * 1'000'000'000;
    std::vector<Watched> watched;
    for (const auto& [name, text] : settings.qos.rules) {
      auto rule = parse_qos_rule(name, text);
      if (!rule.ok()) continue;  // not reached: the configuration was checked
      const auto same = std::ranges::find_if(watched_, [&](const Watched& old) {
        return old.watch.row().rule == *rule && release_ns == release_ns_;
      });
      if (same != watched_.end()) {
        watched.push_back(std::move(*same));
      } else {
        watched.push_back({.watch = QosWatch(*std::move(rule), release_ns)});
      }
    }
    watched_ = std::move(watched);
    ForeignMetricsReader::Wanted wanted;
    for (const Watched& row : watched_) {
      const QosRule& rule = row.watch.row().rule;
      if (!rule.url.empty()) wanted[rule.url].insert(rule.foreign_metric);
    }
    foreign_.set_wanted(std::move(wanted));
    release_ns_ = release_ns;
    path_ = settings.qos.file;
    detail_percent_ = settings.qos.detail_percent;
    next_file_mono_ns_ = 0;
  }

  void advance(int64_t now_mono_ns) override {
    if (now_mono_ns >= next_file_mono_ns_) {
      next_file_mono_ns_ = now_mono_ns + kFileNs;
      read_file();
    }
    if (now_mono_ns >= next_look_mono_ns_ && !watched_.empty()) {
      next_look_mono_ns_ = now_mono_ns + kLookNs;
      look(now_mono_ns);
    }
    end_check();
    demand(choose_demand());
  }

  void fill(Snapshot& snapshot) const override {
    for (const Watched& watched : watched_) {
      const QosRow& row = watched.watch.row();
      snapshot.qos_rules.push_back(row);
      if (row.fault.empty()) continue;
      snapshot.problems.push_back(
          {"qos.rules." + row.rule.name, row.rule.url + ": " + row.fault, kForeignHelp});
    }
    if (!file_fault_.empty()) snapshot.problems.push_back({"qos.file", file_fault_, kFileHelp});
  }

 private:
  struct Watched {
    QosWatch watch;
    int64_t check_mono_ns = 0;  // when to measure what gpuperf itself costs; 0 = not
  };

  static constexpr char kFileHelp[] =
      "nothing is demanded by it; write detail or stand-down and the reason, or remove the file";

  static constexpr char kForeignHelp[] =
      "the rule cannot be breached; start the program that serves the metrics, or correct the rule";

  void read_file() {
    std::string fault;
    OverheadDemand demand;
    const auto text = path_.empty() ? Result<std::string>(std::string())
                                    : read_file_beginning(path_, kFileMaxBytes);
    if (text.ok()) {
      const size_t begin = std::min(text->find_first_not_of(" \t\r\n"), text->size());
      const size_t end = std::min(text->find_first_of(" \t\r\n", begin), text->size());
      const std::string_view word = std::string_view(*text).substr(begin, end - begin);
      const size_t reason = text->find_first_not_of(" \t", end);
      if (word == get_demand_name(Kind::kDetail)) demand.kind = Kind::kDetail;
      if (word == get_demand_name(Kind::kStandDown)) demand.kind = Kind::kStandDown;
      if (demand.kind != Kind::kNone) {
        demand.reason = path_;
        if (reason < text->size() && (*text)[reason] != '\n') {
          demand.reason += ": " + text->substr(reason, text->find('\n', reason) - reason);
        }
      } else if (!word.empty()) {
        fault = path_ + " does not begin with detail or stand-down";
      }
    } else if (!absl::IsNotFound(text.status())) {
      fault = std::string(text.status().message());
    }
    if (std::exchange(file_fault_, fault) != fault) core_.changed = true;
    file_demand_ = std::move(demand);
  }

  void look(int64_t now_mono_ns) {
    const std::shared_ptr<const Snapshot> snapshot = core_.board.get();
    const bool needs_all = std::ranges::any_of(
        watched_, [](const Watched& watched) { return needs_families(watched.watch.row().rule); });
    const auto families =
        needs_all ? core_.metrics.Collect() : std::vector<prometheus::MetricFamily>();
    for (Watched& watched : watched_) {
      QosWatch& watch = watched.watch;
      const auto before = watch.row().value;
      const QosWatch::Change change = watch.apply(
          watch.row().rule.url.empty()
              ? read_qos_sample(watch.row().rule, *snapshot, families, watch.last_mono_ns())
              : read_foreign(watch),
          now_mono_ns);
      if (change == QosWatch::Change::kBreached) begin_breach(watched, now_mono_ns);
      if (change == QosWatch::Change::kReleased) {
        log_info(kReleased, {{"rule", watch.row().rule.name}});
      }
      if (change != QosWatch::Change::kNone || before != watch.row().value) core_.changed = true;
      if (watched.check_mono_ns != 0 && now_mono_ns >= watched.check_mono_ns) {
        watched.check_mono_ns = 0;
        if (watch.row().is_breached) begin_check(watch.row().rule);
      }
    }
  }

  // nullopt: nothing newer than the last.
  std::optional<QosSample> read_foreign(QosWatch& watch) {
    const std::shared_ptr<const ForeignMetrics> metrics = foreign_.get(watch.row().rule.url);
    if (metrics == nullptr || metrics->mono_ns == watch.last_mono_ns()) return std::nullopt;
    auto sample = metrics->fault.empty()
                      ? read_foreign_sample(watch.row().rule, metrics->families, metrics->mono_ns)
                      : Result<QosSample>(absl::UnavailableError(metrics->fault));
    if (watch.set_fault(sample.ok() ? "" : std::string(sample.status().message()))) {
      core_.changed = true;
    }
    if (!sample.ok()) return std::nullopt;
    return *std::move(sample);
  }

  void begin_breach(Watched& watched, int64_t now_mono_ns) {
    const QosRow& row = watched.watch.row();
    log_warn(kBreached, {{"rule", row.rule.name},
                         {"text", row.rule.text},
                         {"value", std::to_string(row.value.value_or(0))}});
    if (row.rule.freezes) tracing_->note_breach("rule " + row.rule.name);
    if (row.rule.checks) watched.check_mono_ns = now_mono_ns + kCheckAfterNs;
  }

  void begin_check(const QosRule& rule) {
    const Status begun = overhead_.begin(kCheckNs);
    if (begun.ok()) {
      checked_ = rule.name;
    } else {
      log_warn("what gpuperf costs is not measured for a rule",
               {{"rule", rule.name}, {"error", std::string(begun.message())}});
    }
  }

  // gpuperf is the cause if a process loses more to it than its budget, whatever it was raised to.
  void end_check() {
    if (checked_.empty() || overhead_.report().is_running) return;
    const std::string name = std::exchange(checked_, "");
    const auto watched = std::ranges::find_if(
        watched_, [&](const Watched& row) { return row.watch.row().rule.name == name; });
    if (watched == watched_.end() || !watched->watch.row().is_breached) return;
    if (!overhead_.report().stopped_by.empty()) return;
    const OverheadLimits& limits = probing_.config().settings().overhead.budget;
    for (const OverheadMeasurement& measured : overhead_.report().measurements) {
      const double limit_ratio = limits.get_ratio(measured.owner.comm);
      if (limit_ratio == 0 || measured.low_ratio <= limit_ratio) continue;
      log_warn(
          "gpuperf stands down: it costs a process more than its budget while a rule is "
          "breached",
          {{"rule", name},
           {"pid", std::to_string(measured.process.pid)},
           {"low_ratio", std::to_string(measured.low_ratio)}});
      watched->watch.note_ours();
    }
  }

  // Of several, the one that observes least; of equal ones the file, then rules by name.
  OverheadDemand choose_demand() const {
    OverheadDemand chosen = file_demand_;
    for (const Watched& watched : watched_) {
      const QosRow& row = watched.watch.row();
      const Kind kind = row.is_ours ? Kind::kStandDown : row.rule.demand;
      if (!row.is_breached || kind == Kind::kNone) continue;
      if (chosen.kind == Kind::kStandDown || chosen.kind == kind) continue;
      chosen = {.kind = kind,
                .until_mono_ns = 0,
                .percent = 0,
                .reason = "rule " + row.rule.name + (row.is_ours ? ", caused by gpuperf" : "")};
    }
    if (chosen.kind == Kind::kDetail) chosen.percent = detail_percent_;
    return chosen;
  }

  void demand(OverheadDemand wanted) {
    if (wanted == probing_.standing_demand()) return;
    // What is being measured was begun under another one.
    overhead_.end(wanted.kind == Kind::kNone ? "the end of a demand"
                                             : "a demand: " + wanted.reason);
    probing_.set_standing_demand(std::move(wanted));
  }

  ProbingPart& probing_;
  TracingPart& tracing_;
  OverheadPart& overhead_;
  std::vector<Watched> watched_;  // in the order of their names
  int64_t release_ns_ = 0;
  std::string path_;
  double detail_percent_ = 0;
  OverheadDemand file_demand_;
  std::string file_fault_;
  std::string checked_;  // the rule that a measurement runs for; empty = none does
  int64_t next_file_mono_ns_ = 0;
  int64_t next_look_mono_ns_ = 0;
  ForeignMetricsReader foreign_{core_.clock};
};

}  // namespace

std::unique_ptr<Part> make_qos_part(Core& core, ProbingPart& probing, TracingPart& tracing,
                                    OverheadPart& overhead) {
  return std::make_unique<QosPart>(core, probing, tracing, overhead);
}

}  // namespace gpuperf
