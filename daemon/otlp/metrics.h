#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <vector>

#include "daemon/otlp/attributes.h"
#include "daemon/otlp/request.h"

namespace gpuperf::otlp {

// When the values were read, and since when they count.
struct MetricTimes {
  uint64_t start_unix_ns = 0;
  uint64_t now_unix_ns = 0;
};

// The families of one scrape as ExportMetricsServiceRequests: counters become cumulative sums,
// gauges gauges, histograms cumulative histograms. Names are those that Prometheus sees; the unit
// is the catalog's. Labels without a value are left out, as Prometheus itself takes them.
std::vector<Request> make_metrics_requests(const std::vector<prometheus::MetricFamily>& families,
                                           const Origin& origin, const MetricTimes& times,
                                           size_t max_bytes = kRequestBytes);

}  // namespace gpuperf::otlp
