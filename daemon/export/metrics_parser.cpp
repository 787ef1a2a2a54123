#include "daemon/export/metrics_parser.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace gpuperf {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr size_t kMaxBuckets = 64 * kMaxParsedSeries;

constexpr std::pair<std::string_view, MetricType> kTypes[] = {{"counter", MetricType::Counter},
                                                              {"gauge", MetricType::Gauge},
                                                              {"histogram", MetricType::Histogram},
                                                              {"summary", MetricType::Summary}};

std::string_view take_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? std::string_view() : text.substr(begin);
}

// Up to the next blank, which is left in `rest`.
std::string_view take_word(std::string_view& rest) {
  rest = take_blanks(rest);
  const size_t end = std::min(rest.find_first_of(" \t\r"), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

// "+Inf" and "NaN" too.
std::optional<double> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

uint64_t to_count(double number) {
  if (!(number >= 0)) return 0;
  constexpr double kMost = 9e18;
  return static_cast<uint64_t>(std::min(number, kMost));
}

// `"text with \" and \n"`: what is quoted, without its quotation marks.
std::optional<std::string> take_quoted(std::string_view& rest) {
  if (!rest.starts_with('"')) return std::nullopt;
  std::string text;
  for (size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return text;
    }
    if (rest[i] == '\\' && i + 1 < rest.size()) {
      ++i;
      text += rest[i] == 'n' ? '\n' : rest[i];
    } else {
      text += rest[i];
    }
  }
  return std::nullopt;
}

// A line with a value: NAME{LABEL="VALUE",…} NUMBER
struct Sample {
  std::string_view name;
  std::vector<ClientMetric::Label> labels;
  double value = 0;
};

bool read_labels(std::string_view& rest, Sample& sample) {
  while (true) {
    rest = take_blanks(rest);
    if (rest.starts_with('}')) {
      rest.remove_prefix(1);
      return true;
    }
    const size_t equals = rest.find('=');
    if (equals == rest.npos) return false;
    std::string_view name = rest.substr(0, equals);
    name = take_word(name);
    rest = take_blanks(rest.substr(equals + 1));
    auto value = take_quoted(rest);
    if (!value) return false;
    sample.labels.push_back({std::string(name), *std::move(value)});
    rest = take_blanks(rest);
    if (rest.starts_with(',')) rest.remove_prefix(1);
  }
}

std::optional<Sample> read_sample(std::string_view line) {
  Sample sample;
  const size_t end = std::min(line.find_first_of("{ \t"), line.size());
  sample.name = line.substr(0, end);
  std::string_view rest = take_blanks(line.substr(end));
  if (rest.starts_with('{')) {
    rest.remove_prefix(1);
    if (!read_labels(rest, sample)) return std::nullopt;
  }
  const auto value = read_number(take_word(rest));
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

class Parser {
 public:
  explicit Parser(const MetricNames& names) : names_(names) {}

  void add_line(std::string_view line) {
    if (line.starts_with('#')) return add_type(line.substr(1));
    // Most lines are of other metrics.
    const std::string_view name = line.substr(0, line.find_first_of("{ \t"));
    if (find_family_name(name).empty()) return;
    if (auto sample = read_sample(line)) add(*std::move(sample));
  }
  bool is_full() const { return series_.size() > kMaxParsedSeries || buckets_ > kMaxBuckets; }
  std::vector<MetricFamily> take() {
    std::erase_if(families_, [](const MetricFamily& family) { return family.metric.empty(); });
    return std::move(families_);
  }

 private:
  using Labels = std::vector<ClientMetric::Label>;

  void add_type(std::string_view rest) {
    if (take_word(rest) != "TYPE") return;
    const std::string_view name = take_word(rest);
    if (!names_.contains(name)) return;
    const std::string_view word = take_word(rest);
    const auto* type =
        std::ranges::find(kTypes, word, &std::pair<std::string_view, MetricType>::first);
    get_family(name).type = type == std::end(kTypes) ? MetricType::Untyped : type->second;
  }

  // Of a line's name, which in histograms has more behind it; empty = it is not wanted.
  std::string_view find_family_name(std::string_view name) const {
    if (names_.contains(name)) return name;
    for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
      if (!name.ends_with(suffix)) continue;
      const std::string_view family = name.substr(0, name.size() - suffix.size());
      return names_.contains(family) ? family : std::string_view();
    }
    return {};
  }

  MetricFamily& get_family(std::string_view name) {
    const auto known = std::ranges::find(families_, name, &MetricFamily::name);
    if (known != families_.end()) return *known;
    families_.push_back({std::string(name), "", MetricType::Untyped, {}});
    return families_.back();
  }

  ClientMetric& get_series(MetricFamily& family, const Labels& labels) {
    std::string key = family.name;
    for (const ClientMetric::Label& label : labels) {
      key += '\0' + label.name + '\0' + label.value;
    }
    const auto [place, is_new] = series_.try_emplace(std::move(key), family.metric.size());
    if (is_new) family.metric.emplace_back().label = labels;
    return family.metric[place->second];
  }

  void add(Sample sample) {
    const std::string_view family_name = find_family_name(sample.name);
    MetricFamily& family = get_family(family_name);
    if (family.type == MetricType::Summary) return;
    const std::string_view suffix = sample.name.substr(family_name.size());
    if ((family.type == MetricType::Histogram) == suffix.empty()) return;
    if (suffix == "_bucket") return add_bucket(family, std::move(sample));
    ClientMetric& series = get_series(family, sample.labels);
    if (suffix == "_sum") {
      series.histogram.sample_sum = sample.value;
    } else if (suffix == "_count") {
      series.histogram.sample_count = to_count(sample.value);
    } else if (family.type == MetricType::Counter) {
      series.counter.value = sample.value;
    } else {
      series.gauge.value = sample.value;
    }
  }

  void add_bucket(MetricFamily& family, Sample sample) {
    const auto label = std::ranges::find(sample.labels, "le", &ClientMetric::Label::name);
    if (label == sample.labels.end()) return;
    const auto bound = read_number(label->value);
    if (!bound) return;
    sample.labels.erase(label);
    ++buckets_;
    get_series(family, sample.labels).histogram.bucket.push_back({to_count(sample.value), *bound});
  }

  const MetricNames& names_;
  std::vector<MetricFamily> families_;
  std::map<std::string, size_t> series_;  // by family and labels: place in its family
  size_t buckets_ = 0;
};

}  // namespace

Result<std::vector<MetricFamily>> parse_metrics(std::string_view text, const MetricNames& names) {
  Parser parser(names);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    parser.add_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (parser.is_full()) {
      return absl::OutOfRangeError("more than " + std::to_string(kMaxParsedSeries) +
                                   " series of the metrics that rules read");
    }
  }
  return parser.take();
}

}  // namespace gpuperf
