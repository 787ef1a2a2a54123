#pragma once

#include <prometheus/metric_family.h>

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace gpuperf {

inline constexpr size_t kMaxParsedSeries = 4096;  // of one text

using MetricNames = std::set<std::string, std::less<>>;

// The families `names` of a text in Prometheus's format 0.0.4, in the order of their first lines.
// Those without a TYPE line are Untyped, their values in `gauge`; summaries are left out, as is
// what is no line of that format. Buckets are as in the text: cumulative, in its order.
// OUT_OF_RANGE: more series than kMaxParsedSeries, or more buckets than 64 times as many.
Result<std::vector<prometheus::MetricFamily>> parse_metrics(std::string_view text,
                                                            const MetricNames& names);

}  // namespace gpuperf
