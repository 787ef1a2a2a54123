#include "daemon/state/launch_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace gpuperf {
namespace {

// Student's t at 95 %, two-sided, by degrees of freedom from 1 on.
constexpr std::array kStudent = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
static_assert(kStudent.size() == LaunchCosts::kWindows - 1);

}  // namespace

void LaunchCosts::apply(const ProcessKey& process, uint64_t launches) {
  loop_thread_.check();
  processes_[process].launches += launches;
}

void LaunchCosts::end_reading(int64_t now_mono_ns) {
  loop_thread_.check();
  const int64_t begin_ns = reading_mono_ns_;
  reading_mono_ns_ = now_mono_ns;
  if (begin_ns == 0) return;
  for (auto& [key, process] : processes_) {
    process.readings.push_back({begin_ns, now_mono_ns, process.launches});
    process.launches = 0;
    if (process.readings.size() > kReadings) process.readings.pop_front();
    judge(process);
  }
}

void LaunchCosts::add_window(const ProcessKey& process, const Window& window) {
  loop_thread_.check();
  const auto known = processes_.find(process);
  if (known == processes_.end() || window.launches < 2) return;
  known->second.window = window;
}

void LaunchCosts::forget(const ProcessKey& process) {
  loop_thread_.check();
  processes_.erase(process);
}

void LaunchCosts::judge(Process& process) {
  if (!process.window) return;
  const Window& window = *process.window;
  const auto after = std::ranges::find_if(process.readings, [&](const Reading& reading) {
    return reading.begin_mono_ns >= window.end_mono_ns + kEndingNs;
  });
  if (after == process.readings.end()) return;
  const auto before = std::find_if(
      process.readings.rbegin(), process.readings.rend(),
      [&](const Reading& reading) { return reading.end_mono_ns <= window.begin_mono_ns; });
  process.window.reset();
  if (before == process.readings.rend() || before->launches == 0 || after->launches == 0) return;
  const double before_ns = before->get_interval_ns(), after_ns = after->get_interval_ns();
  if (std::max(before_ns, after_ns) > kSteady * std::min(before_ns, after_ns)) return;
  const double within_ns = static_cast<double>(window.last_mono_ns - window.first_mono_ns) /
                           static_cast<double>(window.launches - 1);
  process.costs_ns.push_back(within_ns - (before_ns + after_ns) / 2);
  if (process.costs_ns.size() > kWindows) process.costs_ns.pop_front();
}

double LaunchCosts::get_rate(const ProcessKey& process) const {
  loop_thread_.check();
  const auto known = processes_.find(process);
  if (known == processes_.end() || known->second.readings.empty()) return 0;
  const Reading& last = known->second.readings.back();
  return 1e9 * static_cast<double>(last.launches) /
         static_cast<double>(last.end_mono_ns - last.begin_mono_ns);
}

std::optional<LaunchCosts::Cost> LaunchCosts::find(const ProcessKey& process) const {
  loop_thread_.check();
  const auto known = processes_.find(process);
  if (known == processes_.end() || known->second.costs_ns.size() < kWindowsMin) return std::nullopt;
  const std::deque<double>& costs_ns = known->second.costs_ns;
  const auto count = static_cast<double>(costs_ns.size());
  const double mean_ns = std::accumulate(costs_ns.begin(), costs_ns.end(), 0.0) / count;
  const double squares = std::accumulate(
      costs_ns.begin(), costs_ns.end(), 0.0,
      [mean_ns](double sum, double ns) { return sum + (ns - mean_ns) * (ns - mean_ns); });
  return Cost{.ns = mean_ns,
              .error_ns = kStudent[costs_ns.size() - 2] * std::sqrt(squares / (count - 1) / count),
              .windows = static_cast<uint32_t>(costs_ns.size())};
}

}  // namespace gpuperf
