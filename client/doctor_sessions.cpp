#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "client/doctor.h"
#include "client/session_text.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

std::string name_process(const v1::Session& session) {
  return fmt::format("process {} ({})", session.pid(), session.comm());
}

// A runtime call needs no GPU: only processes that have done something with it are asked for.
std::vector<Check> check_not_injected(const DaemonAnswers& answers) {
  std::set<uint32_t> injected;
  for (const v1::Session& session : answers.sessions) injected.insert(session.pid());
  std::map<uint32_t, std::string> missing;
  for (const v1::FunctionStats& row : answers.cuda_calls) {
    const bool counts = row.pid() != 0 && !row.exited() && row.calls() > 0;
    if (counts && !injected.contains(row.pid())) missing.emplace(row.pid(), row.comm());
  }
  if (missing.empty()) return {};
  std::string names;
  size_t named = 0;
  for (const auto& [pid, comm] : missing) {
    if (++named > kNamed) break;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", pid, comm);
  }
  if (missing.size() > kNamed) names += fmt::format(" and {} more", missing.size() - kNamed);
  return {{"injection", CheckState::kHint,
           fmt::format("processes that call CUDA but are not injected, so gpuperfd does not see "
                       "their kernels: {}",
                       names),
           "attach to them now: sudo gpuperfctl attach --pid PID (docs/attach.md), or start them "
           "with CUDA_INJECTION64_PATH=…/libgpuperf_injector.so in their environment; in a "
           "container, also mount the library and ingest.sock: docs/injection.md"}};
}

// Each process that uses CUDA: how the library is in it, or whether it can be.
std::vector<Check> check_attachments(const std::vector<v1::Attachment>& attachments) {
  std::vector<Check> checks;
  for (const v1::Attachment& row : attachments) {
    const std::string process = fmt::format("process {} ({})", row.pid(), row.comm());
    if (row.state() == "cannot") {
      checks.push_back({"attach", CheckState::kHint,
                        fmt::format("{} cannot be attached to: {}", process, row.detail()),
                        row.hint()});
      continue;
    }
    std::string how = "can be attached to";
    if (row.state() == "injected") how = "was injected at its start";
    if (row.state() == "attached") {
      how = fmt::format("was attached to: one thread was held for {}",
                        format_duration(row.held_ns()));
    }
    checks.push_back({"attach", CheckState::kOk, fmt::format("{} {}", process, how), ""});
  }
  return checks;
}

// Launches that went past the hooks of their process.
std::vector<Check> check_past_hooks(const DaemonAnswers& answers) {
  struct Past {
    std::string comm;
    uint64_t calls = 0;
    const v1::FunctionStats* most = nullptr;
  };
  std::map<uint32_t, Past> processes;
  for (const v1::FunctionStats& row : answers.cuda_calls) {
    if (row.pid() == 0 || row.exited() || row.calls_past_hooks() == 0) continue;
    Past& past = processes[row.pid()];
    past.comm = row.comm();
    past.calls += row.calls_past_hooks();
    if (past.most == nullptr || past.most->calls_past_hooks() < row.calls_past_hooks()) {
      past.most = &row;
    }
  }
  std::vector<Check> checks;
  for (const auto& [pid, past] : processes) {
    checks.push_back(
        {"injection", CheckState::kHint,
         fmt::format("{} launches, copies and memsets of process {} ({}) bypassed its launch "
                     "hooks, most of them {}: probes counted these, at two traps each",
                     format_count(past.calls), pid, past.comm, past.most->function()),
         "the caller copied the function's address before cuInit, or this driver version cannot be "
         "hooked: docs/decisions/0025-launch-hooks.md"});
  }
  return checks;
}

// Those that do not work are among the daemon's problems.
std::vector<Check> check_ways(const v1::GetStatusResponse& status) {
  std::vector<Check> checks;
  for (const v1::InjectionWay& way : status.injection_ways()) {
    if (!way.working()) continue;
    checks.push_back({"injection", CheckState::kOk,
                      fmt::format("containers are injected by {}: {}", way.way(), way.detail()),
                      ""});
  }
  return checks;
}

CheckState find_weight(const v1::Session& session) {
  return session.state() == "failed" ? CheckState::kProblem : CheckState::kHint;
}

// A session that does not collect, or not everything.
std::vector<Check> check_session(const v1::Session& session) {
  std::vector<Check> checks;
  const bool is_collecting = session.state() == "collecting";
  const bool is_odd =
      !is_collecting && session.state() != "starting" && session.state() != "waiting";
  if (is_odd || (is_collecting && session.cause() == "graphs_unseen")) {
    const std::string cause = describe_cause(session);
    checks.push_back({"session", find_weight(session),
                      fmt::format("{} is {}{}{}", name_process(session), session.state(),
                                  cause.empty() ? "" : ": ", cause),
                      find_cause_hint(session)});
  }
  if (session.lost_records() > 0) {
    std::string reasons;
    for (const v1::SessionLoss& loss : session.losses()) {
      if (loss.reason() == "sampled") continue;
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", loss.reason(),
                             format_count(loss.count()));
    }
    checks.push_back({"session", CheckState::kHint,
                      fmt::format("{} lost {} records: {}", name_process(session),
                                  format_count(session.lost_records()), reasons),
                      fmt::format("statistics do not include them; if this continues, sample: sudo "
                                  "gpuperfctl sessions run {} --sample-every 10",
                                  session.pid())});
  }
  return checks;
}

}  // namespace

std::vector<Check> check_sessions(const DaemonAnswers& answers) {
  std::vector<Check> checks;
  size_t collecting = 0;
  for (const v1::Session& session : answers.sessions) {
    if (session.state() == "collecting") ++collecting;
    for (Check& check : check_session(session)) checks.push_back(std::move(check));
  }
  if (collecting > 0) {
    checks.insert(
        checks.begin(),
        {"sessions", CheckState::kOk,
         fmt::format("injected processes that report their kernels: {}", collecting), ""});
  } else if (answers.sessions.empty() && answers.cuda_calls.empty()) {
    checks.push_back(
        {"sessions", CheckState::kOk, "no process is injected, and no process calls CUDA", ""});
  }
  for (Check& check : check_ways(answers.status)) checks.push_back(std::move(check));
  for (Check& check : check_not_injected(answers)) checks.push_back(std::move(check));
  for (Check& check : check_attachments(answers.attachments)) checks.push_back(std::move(check));
  for (Check& check : check_past_hooks(answers)) checks.push_back(std::move(check));
  return checks;
}

}  // namespace gpuperf::client
