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
    {"control", "told so", "sudo gpuperfctl sessions run PID takes it up again"},
    {"other_client", "CUPTI is left to another client in the process",
     "ends by itself with torch.profiler and the like; a process has one client of CUPTI at a "
     "time"},
    {"nsight", "an Nsight tool or a debugger is in the process",
     "run the workload without it; then start it anew"},
    {"no_cupti", "no libcupti found",
     "install CUPTI beside the CUDA runtime (in wheels: nvidia-cuda-cupti), or name its folder in "
     "LD_LIBRARY_PATH"},
    {"cupti_version", "a CUPTI that does not fit the CUDA runtime, or is too old",
     "use the CUPTI of the CUDA toolkit that the workload runs with"},
    {"cupti_error", "a call of CUPTI failed",
     "the detail names it; where it says that privileges are missing: the driver's option "
     "NVreg_RestrictProfilingToAdminUsers=0, or run the workload as root"},
    {"daemon_gone", "the daemon took nothing for a while", ""},
    {"device_buffers", "the GPU's buffers ran out, so that times were missing",
     "sample: fewer launches are kept; the workload itself is not affected"},
    {"burst", "collection is being re-arranged for a burst, or the process does not allow one", ""},
    {"graphs_unseen",
     "CUDA graphs were made before the session began: their launches are not recorded",
     "start gpuperfd before the workload; or look inside for a while: sudo gpuperfctl sessions "
     "burst PID --nodes, where it was started with GPUPERF_NODE_BURSTS=1"},
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
