// Any bytes as the metrics of another program (daemon/export/metrics_parser.h).

#include <algorithm>

#include "daemon/export/metrics_parser.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  const MetricNames names = {"a", "h", "vllm:tokens_total"};
  const auto families = parse_metrics(bytes, names);
  if (!families.ok()) return "";  // it has more than the bound
  size_t series = 0;
  for (const prometheus::MetricFamily& family : *families) {
    if (!names.contains(family.name)) return "a metric that nobody wants: " + family.name;
    if (family.metric.empty()) return "a metric without series: " + family.name;
    series += family.metric.size();
  }
  return series > std::min(kMaxParsedSeries, bytes.size()) ? "more series than there can be" : "";
}

}  // namespace gpuperf::fuzz
