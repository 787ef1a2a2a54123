#include "daemon/export/metrics_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "daemon/model/metric_catalog.h"

namespace gpuperf {
namespace {

constexpr std::string_view kCounterEnding = "_total";

// The shortest text that reads back as the same number: 8.192e-06, not 8.192000000000001e-06.
std::string format_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string escape(std::string_view text, bool in_quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || (in_quotes && c == '"')) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string_view get_type_name(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Histogram:
      return "histogram";
    case prometheus::MetricType::Summary:
    case prometheus::MetricType::Untyped:
      break;  // the catalog has none
  }
  return "unknown";
}

// The latest within the bucket (above, upper].
const Exemplar* find_exemplar(const std::vector<Exemplar>* exemplars, double above, double upper) {
  const Exemplar* latest = nullptr;
  if (exemplars == nullptr) return nullptr;
  for (const Exemplar& each : *exemplars) {
    if (each.seconds <= above || each.seconds > upper) continue;
    if (latest == nullptr || each.end_unix_seconds > latest->end_unix_seconds) latest = &each;
  }
  return latest;
}

class Writer {
 public:
  Writer(std::ostream& out, MetricsFormat format, const Exemplars& exemplars)
      : out_(out), format_(format), exemplars_(exemplars) {}

  void write(const prometheus::MetricFamily& family) {
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    std::string_view name = family.name;
    // In OpenMetrics the ending belongs to the sample, not to the family.
    if (format_ == MetricsFormat::kOpenMetrics && is_counter && name.ends_with(kCounterEnding)) {
      name.remove_suffix(kCounterEnding.size());
    }
    out_ << "# HELP " << name << ' ' << escape(family.help, format_ == MetricsFormat::kOpenMetrics)
         << "\n# TYPE " << name << ' ' << get_type_name(family.type) << '\n';
    const bool has_exemplars = family.name == get_metric(Metric::kFunctionDuration).name;
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (family.type == prometheus::MetricType::Histogram) {
        write_histogram(family.name, metric, has_exemplars ? find_exemplars(metric) : nullptr);
      } else {
        write_sample(family.name, metric, "",
                     format_value(is_counter ? metric.counter.value : metric.gauge.value));
      }
    }
  }

  void finish() {
    if (format_ == MetricsFormat::kOpenMetrics) out_ << "# EOF\n";
  }

 private:
  const std::vector<Exemplar>* find_exemplars(const prometheus::ClientMetric& metric) const {
    if (format_ != MetricsFormat::kOpenMetrics) return nullptr;
    std::vector<std::string> values;
    for (const auto& label : metric.label) values.push_back(label.value);
    const auto found = exemplars_.find(values);
    return found == exemplars_.end() ? nullptr : &found->second;
  }

  // `more`: a further label, as text.
  void write_sample(std::string_view name, const prometheus::ClientMetric& metric,
                    std::string_view more, std::string_view value,
                    const Exemplar* exemplar = nullptr) {
    std::string labels;
    for (const auto& label : metric.label) {
      if (!labels.empty()) labels += ',';
      labels += label.name + "=\"" + escape(label.value, true) + '"';
    }
    if (!more.empty()) labels += (labels.empty() ? "" : ",") + std::string(more);
    out_ << name;
    if (!labels.empty()) out_ << '{' << labels << '}';
    out_ << ' ' << value;
    if (exemplar != nullptr) {
      out_ << " # {slow_call_id=\"" << exemplar->slow_call_id << "\"} "
           << format_value(exemplar->seconds) << ' ' << format_value(exemplar->end_unix_seconds);
    }
    out_ << '\n';
  }

  void write_histogram(const std::string& name, const prometheus::ClientMetric& metric,
                       const std::vector<Exemplar>* exemplars) {
    const auto& histogram = metric.histogram;
    write_sample(name + "_count", metric, "", std::to_string(histogram.sample_count));
    write_sample(name + "_sum", metric, "", format_value(histogram.sample_sum));
    double above = -std::numeric_limits<double>::infinity();
    for (const auto& bucket : histogram.bucket) {
      write_sample(name + "_bucket", metric, "le=\"" + format_value(bucket.upper_bound) + '"',
                   std::to_string(bucket.cumulative_count),
                   find_exemplar(exemplars, above, bucket.upper_bound));
      above = bucket.upper_bound;
    }
  }

  std::ostream& out_;
  const MetricsFormat format_;
  const Exemplars& exemplars_;
};

}  // namespace

void write_metrics(std::ostream& out, std::span<const prometheus::MetricFamily> families,
                   MetricsFormat format, const Exemplars& exemplars) {
  Writer writer(out, format, exemplars);
  for (const prometheus::MetricFamily& family : families) writer.write(family);
  writer.finish();
}

}  // namespace gpuperf
