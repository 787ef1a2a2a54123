#include "daemon/config/qos_rule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "daemon/base/http_get.h"
#include "daemon/config/error_text.h"

namespace gpuperf {
namespace {

constexpr size_t kRuleNameMaxBytes = 64;
constexpr size_t kRuleMaxBytes = 1000;
constexpr std::string_view kOwnPrefix = "gpuperf_";
constexpr std::string_view kOfUrl = " of http";
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
constexpr int64_t kDefaultWindowNs = 2'000'000'000;
constexpr int64_t kShortestWindowNs = 1'000'000'000;
constexpr int64_t kLongestWindowNs = 600'000'000'000;

constexpr struct {
  std::string_view name;
  QosRule::Reading reading;
  double quantile;
} kReadings[] = {
    {"rate", QosRule::Reading::kRate, 0},       {"mean", QosRule::Reading::kMean, 0},
    {"p50", QosRule::Reading::kQuantile, 0.5},  {"p90", QosRule::Reading::kQuantile, 0.9},
    {"p95", QosRule::Reading::kQuantile, 0.95}, {"p99", QosRule::Reading::kQuantile, 0.99}};

constexpr std::string_view kActions[] = {"freeze", "detail", "stand-down", "check"};

// The edges of the exported buckets are an octave apart, which is no basis for a limit: of these
// the daemon has finer ones.
constexpr Metric kFineHistograms[] = {Metric::kStepDuration, Metric::kFunctionDuration};

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// What stands before the first of `ends`, which is left in `rest`.
std::string_view take_until(std::string_view& rest, std::string_view ends) {
  const size_t end = std::min(rest.find_first_of(ends), rest.size());
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end);
  return trim(taken);
}

std::optional<double> find_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

Status fault(const std::string& words) { return absl::InvalidArgumentError(words); }

template <typename Rows>
std::vector<std::string_view> list_names(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

// "p99 gpuperf_step_seconds"
Status parse_metric(std::string_view text, QosRule& rule) {
  const size_t space = text.find(' ');
  if (space != text.npos) {
    const std::string_view word = text.substr(0, space);
    const auto* row =
        std::ranges::find(kReadings, word, [](const auto& reading) { return reading.name; });
    if (row == std::end(kReadings)) {
      const auto names = list_names(kReadings);
      return fault(quote_for_message(word) +
                   " cannot be read of a metric; what can: " + join_names(names));
    }
    rule.reading = row->reading;
    rule.quantile = row->quantile;
    text = trim(text.substr(space));
  }
  if (!rule.url.empty()) {
    if (text.empty() || text.find_first_not_of(std::string(kNameCharacters) + ":") != text.npos) {
      return fault(quote_for_message(text) + " is no name of a metric");
    }
    rule.foreign_metric = text;
    return absl::OkStatus();
  }
  const auto names = list_names(metric_rows());
  const auto row = std::ranges::find(metric_rows(), text, &MetricRow::name);
  if (row == metric_rows().end()) {
    if (!text.empty() && !text.starts_with(kOwnPrefix)) {
      return fault("no metric " + quote_for_message(text) +
                   "; of another program's, say where it is served: METRIC of "
                   "http://127.0.0.1:8000/metrics > NUMBER");
    }
    return fault("no metric " + quote_for_message(text) + "; " +
                 hint_for_unknown(text, names, "docs/metrics.md has all"));
  }
  rule.metric = row->metric;
  return absl::OkStatus();
}

// Whether the metric can be read so.
Status check_reading(const QosRule& rule) {
  if (!rule.url.empty()) return absl::OkStatus();
  const MetricRow& metric = get_metric(rule.metric);
  const std::string name(metric.name);
  switch (metric.type) {
    case MetricType::kGauge:
      if (rule.reading == QosRule::Reading::kValue) return absl::OkStatus();
      return fault(name + " is a gauge: only its value can be read, so write no word before it");
    case MetricType::kCounter:
      if (rule.reading == QosRule::Reading::kRate) return absl::OkStatus();
      return fault(name + " is a counter: write rate before it");
    case MetricType::kHistogram:
      if (rule.reading == QosRule::Reading::kValue) {
        return fault(name + " is a histogram: write rate, mean or a quantile before it");
      }
      if (rule.reading != QosRule::Reading::kQuantile ||
          std::ranges::find(kFineHistograms, rule.metric) != std::end(kFineHistograms)) {
        return absl::OkStatus();
      }
      return fault("quantiles are known of " + std::string(get_metric(kFineHistograms[0]).name) +
                   " and " + std::string(get_metric(kFineHistograms[1]).name) +
                   " only; of others write mean or rate");
  }
  return absl::OkStatus();
}

// Whether the metric can have such a label.
Status check_label(const QosRule& rule, std::string_view label) {
  if (!rule.url.empty()) {
    if (!label.empty() && label.find_first_not_of(kNameCharacters) == label.npos) {
      return absl::OkStatus();
    }
    return fault(quote_for_message(label) + " is no name of a label");
  }
  std::vector<std::string_view> known;
  for (const MetricLabel row : get_metric(rule.metric).labels) known.push_back(get_label_name(row));
  if (std::ranges::find(known, label) != known.end()) return absl::OkStatus();
  return fault("no label " + quote_for_message(label) + "; " +
               (known.empty() ? "the metric has none" : "its labels: " + join_names(known)));
}

// "phase=decode, function=llama*}"
Status parse_labels(std::string_view& rest, QosRule& rule) {
  while (true) {
    const std::string_view pair = take_until(rest, ",}");
    if (rest.empty()) return fault("the { of the labels has no }");
    const bool is_last = rest.front() == '}';
    rest.remove_prefix(1);
    const size_t equals = pair.find('=');
    const std::string_view label = trim(pair.substr(0, equals));
    RETURN_IF_ERROR(check_label(rule, label));
    if (equals == pair.npos) return fault("label " + quote_for_message(label) + " needs a value");
    std::string_view pattern = trim(pair.substr(equals + 1));
    if (pattern.size() >= 2 && pattern.front() == '"' && pattern.back() == '"') {
      pattern = pattern.substr(1, pattern.size() - 2);
    }
    rule.labels.emplace_back(label, pattern);
    if (is_last) return absl::OkStatus();
  }
}

// "p99 gpuperf_step_seconds{phase=decode}"; what follows is left in `rest`.
Status parse_reading(std::string_view& rest, QosRule& rule) {
  std::string_view head = rest;
  const size_t of = rest.find(kOfUrl);
  if (of != rest.npos) {
    head = rest.substr(0, of);
    rest = trim(rest.substr(of + 3));
    rule.url = take_until(rest, " <>");
    const auto url = parse_http_url(rule.url);
    if (!url.ok()) return url.status();
  }
  RETURN_IF_ERROR(parse_metric(take_until(head, rule.url.empty() ? "{<>:" : "{"), rule));
  RETURN_IF_ERROR(check_reading(rule));
  if (head.starts_with('{')) {
    head.remove_prefix(1);
    RETURN_IF_ERROR(parse_labels(head, rule));
  }
  if (rule.url.empty()) {
    rest = head;
  } else if (!trim(head).empty()) {
    return fault("between the labels and of stands " + quote_for_message(trim(head)));
  }
  rest = trim(rest);
  return absl::OkStatus();
}

// "2s"
Status parse_window(std::string_view text, QosRule& rule) {
  const bool is_minutes = text.ends_with('m');
  const bool has_unit = is_minutes || text.ends_with('s');
  const auto number = find_number(text.substr(0, text.size() - (has_unit ? 1 : 0)));
  const double ns = number.value_or(0) * (is_minutes ? 60e9 : 1e9);
  if (!has_unit || ns < kShortestWindowNs || ns > kLongestWindowNs) {
    return fault("over " + quote_for_message(text) + ": write a time from 1s to 10m");
  }
  rule.window_ns = static_cast<int64_t>(ns);
  return absl::OkStatus();
}

Status parse_actions(std::string_view rest, QosRule& rule) {
  while (true) {
    const std::string_view action = take_until(rest, ",");
    if (action == "freeze") {
      rule.freezes = true;
    } else if (action == "check") {
      rule.checks = true;
    } else if (action == "detail" || action == "stand-down") {
      if (rule.demand != OverheadDemand::Kind::kNone) {
        return fault("detail and stand-down exclude each other");
      }
      rule.demand =
          action == "detail" ? OverheadDemand::Kind::kDetail : OverheadDemand::Kind::kStandDown;
    } else {
      return fault("no action " + quote_for_message(action) + "; there are " +
                   join_names(kActions));
    }
    if (rest.empty()) break;
    rest.remove_prefix(1);
  }
  if (rule.checks && rule.demand == OverheadDemand::Kind::kStandDown) {
    return fault("check and stand-down exclude each other: nothing is left to be checked");
  }
  return absl::OkStatus();
}

}  // namespace

Result<QosRule> parse_qos_rule(std::string_view name, std::string_view text) {
  if (name.empty() || name.size() > kRuleNameMaxBytes ||
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") !=
          name.npos) {
    return fault("the name " + quote_for_message(name) +
                 " must have 1 to 64 letters, digits, dots, dashes and underscores");
  }
  if (text.size() > kRuleMaxBytes) return fault("a rule has at most 1,000 bytes");
  QosRule rule{.name = std::string(name), .text = std::string(text), .window_ns = kDefaultWindowNs};
  std::string_view rest = text;
  RETURN_IF_ERROR(parse_reading(rest, rule));
  if (!rest.starts_with('>') && !rest.starts_with('<')) {
    return fault("after the metric comes > or < and the limit");
  }
  rule.is_upper = rest.front() == '>';
  rest.remove_prefix(1);
  std::string_view limit = take_until(rest, ":");
  if (const size_t over = limit.find(" over "); over != limit.npos) {
    RETURN_IF_ERROR(parse_window(trim(limit.substr(over + 6)), rule));
    limit = trim(limit.substr(0, over));
  }
  const auto number = find_number(limit);
  if (!number) return fault(quote_for_message(limit) + " is no number");
  rule.limit = *number;
  if (rest.empty()) return fault("a colon and what is to be done are missing");
  rest.remove_prefix(1);
  RETURN_IF_ERROR(parse_actions(rest, rule));
  return rule;
}

std::optional<std::string> find_qos_rule_fault(std::string_view name, std::string_view text) {
  const auto rule = parse_qos_rule(name, text);
  if (rule.ok()) return std::nullopt;
  return std::string(name) + ": " + std::string(rule.status().message());
}

}  // namespace gpuperf
