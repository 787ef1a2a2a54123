#include "client/session_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "client/text.h"

namespace gpuperf::client {
namespace {

struct CauseText {
  std::string_view cause;
  std::string_view words;
  std::string_view hint;
};

constexpr CauseText kCauses[] = {
    {"control", "on request", "resume it: sudo gpuperfctl sessions run PID"},
    {"other_client", "another CUPTI client in the process has priority",
     "collection resumes when the other client (such as torch.profiler) ends; CUPTI serves one "
     "client per process"},
    {"nsight", "an Nsight tool or a debugger is attached to the process",
     "restart the workload without it"},
    {"no_cupti", "no libcupti found",
     "install CUPTI next to the CUDA runtime (as a wheel: nvidia-cuda-cupti), or add its folder to "
     "LD_LIBRARY_PATH"},
    {"cupti_version", "CUPTI is too old or does not match the CUDA runtime",
     "use the CUPTI of the CUDA toolkit that the workload runs with"},
    {"cupti_error", "a CUPTI call failed",
     "the detail names the call; if privileges are missing, set the driver option "
     "NVreg_RestrictProfilingToAdminUsers=0 or run the workload as root"},
    {"daemon_gone", "gpuperfd did not read from it for some time", ""},
    {"device_buffers", "the GPU's buffers were full, so timestamps were missing",
     "keep a sample of the launches: sudo gpuperfctl sessions run PID --sample-every 10; the "
     "workload itself is not affected"},
    {"burst", "collection is being changed for a burst, or the process does not allow bursts", ""},
    {"graphs_unseen",
     "CUDA graphs were created before the session began: their launches are not recorded",
     "start gpuperfd before the workload; if the workload was started with GPUPERF_NODE_BURSTS=1, "
     "you can also record graph nodes: sudo gpuperfctl sessions burst PID --nodes"},
};

const CauseText* find_cause(std::string_view cause) {
  const auto* found = std::find_if(std::begin(kCauses), std::end(kCauses),
                                   [&](const CauseText& text) { return text.cause == cause; });
  return found == std::end(kCauses) ? nullptr : found;
}

}  // namespace

Tone find_session_tone(std::string_view state) {
  if (state == "collecting") return Tone::kGood;
  if (state == "failed") return Tone::kBad;
  if (state == "yielded") return Tone::kWarning;
  return state == "off" || state == "paused" || state == "closed" ? Tone::kDim : Tone::kPlain;
}

std::string describe_cause(const v1::Session& session) {
  if (session.in_windows()) {
    const auto age_ns = static_cast<double>(std::max<uint64_t>(session.age_ns(), 1));
    return fmt::format("in windows: {} of its life recorded; {}",
                       format_ratio(static_cast<double>(session.collected_ns()) / age_ns),
                       session.detail().empty() ? "one is open" : session.detail());
  }
  const CauseText* cause = find_cause(session.cause());
  std::string text = cause != nullptr            ? std::string(cause->words)
                     : session.cause() == "none" ? ""
                                                 : session.cause();
  if (session.detail().empty()) return text;
  return text.empty() ? session.detail() : fmt::format("{}: {}", text, session.detail());
}

std::string find_cause_hint(const v1::Session& session) {
  const CauseText* cause = find_cause(session.cause());
  if (cause == nullptr) return "";
  std::string hint(cause->hint);
  const size_t place = hint.find("PID");
  if (place != std::string::npos) hint.replace(place, 3, std::to_string(session.pid()));
  return hint;
}

std::string describe_session_counts(const v1::SessionCounts& counts, const TextStyle& style) {
  struct Part {
    uint32_t count;
    std::string_view state;
  };
  const std::array<Part, 7> parts = {{{counts.collecting(), "collecting"},
                                      {counts.starting(), "starting"},
                                      {counts.waiting(), "waiting"},
                                      {counts.paused(), "paused"},
                                      {counts.yielded(), "yielded"},
                                      {counts.off(), "off"},
                                      {counts.failed(), "failed"}}};
  std::string text;
  for (const Part& part : parts) {
    if (part.count == 0) continue;
    const std::string words = fmt::format("{} {}", format_count(part.count), part.state);
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        paint(words, find_session_tone(part.state), style));
  }
  return text.empty() ? "none" : text;
}

}  // namespace gpuperf::client
