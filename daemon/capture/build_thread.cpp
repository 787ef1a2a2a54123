#include "daemon/capture/build_thread.h"

#include <sys/utsname.h>

#include <utility>

#include "daemon/base/proc_text.h"
#include "daemon/base/thread_cpu.h"
#include "daemon/base/work_watch.h"
#include "daemon/owner/container.h"

namespace gpuperf {
namespace {

std::string read_host_name() {
  utsname name{};
  return uname(&name) == 0 ? name.nodename : "unknown";
}

std::string read_comm(uint32_t pid, uint32_t tid) {
  const auto text =
      read_bounded_text(get_proc_path("/proc", pid, "task/" + std::to_string(tid) + "/comm"), 64);
  if (!text.ok()) return {};
  return text->text.substr(0, text->text.find('\n'));
}

// The largest captures, on a busy machine.
constexpr std::chrono::seconds kWorkLimit{300};

Owner find_owner(const ProcFiles& proc, const Snapshot& snapshot, const ProcessKey& process) {
  for (const ProcessRow& row : snapshot.processes) {
    if (is_same_process(row.process, process)) return row.owner;
  }
  for (const auto& session : snapshot.gpu.sessions) {
    if (is_same_process(session->facts.process, process)) return session->facts.owner;
  }
  return read_owner(proc, process, nullptr);
}

}  // namespace

BuildThread::BuildThread(Parts parts)
    : parts_(std::move(parts)), host_(read_host_name()), jobs_(kMaxJobs), thread_([this] {
        while (auto job = jobs_.pop()) {
          const Work work("build", kWorkLimit);
          (*job)();
        }
      }) {}

void BuildThread::stop() {
  jobs_.close();
  if (thread_.joinable()) thread_.join();
}

void BuildThread::set_symbolizer(Symbolizer* symbolizer) {
  const MutexLock lock(symbolizer_mutex_);
  symbolizer_ = symbolizer;
}

bool BuildThread::post_resolve(std::vector<StackRequest> requests,
                               Symbolizer::OnResolved on_resolved) {
  const MutexLock lock(symbolizer_mutex_);
  return symbolizer_ != nullptr &&
         symbolizer_->post_resolve({}, std::move(requests), std::move(on_resolved));
}

void BuildThread::post_build(Build order) {
  const auto build = std::make_shared<Build>(std::move(order));
  build->functions = parts_.functions.get();
  build->names = {.get_owner =
                      [this, snapshot = parts_.board.get()](const ProcessKey& process) {
                        return find_owner(parts_.proc, *snapshot, process);
                      },
                  .read_thread_comm = read_comm,
                  .functions = build->functions.get(),
                  .host = host_,
                  .version = GPUPERF_VERSION};
  if (!post([this, build] { join(build); })) build->on_refused();
}

void BuildThread::join(const std::shared_ptr<Build>& build) {
  const uint64_t begun_ns = read_thread_cpu_ns();
  build->builder = std::make_unique<CaptureBuilder>(build->window, build->scope, build->names);
  std::vector<StackRequest> requests;
  for (const CaptureBuilder::StackKey& key : build->builder->stacks()) {
    if (key.known != nullptr) {
      requests.emplace_back(std::monostate());
    } else {
      requests.emplace_back(TakenStack{key.stack_id});
    }
  }
  build->cpu_ns += read_thread_cpu_ns() - begun_ns;
  const size_t count = requests.size();
  const auto on_resolved = [this, build](Symbolizer::Stacks stacks) {
    const auto go_on = [this, build, stacks = std::move(stacks)] { finish(build, stacks); };
    if (!post(go_on)) build->on_refused();
  };
  if (count == 0 || !post_resolve(std::move(requests), on_resolved)) {
    finish(build, std::vector<StackPtr>(count));
  }
}

void BuildThread::finish(const std::shared_ptr<Build>& build, const std::vector<StackPtr>& stacks) {
  std::vector<uint64_t> missing;
  for (size_t i = 0; i < stacks.size(); ++i) {
    const CaptureBuilder::StackKey& key = build->builder->stacks()[i];
    if (stacks[i] == nullptr && key.known == nullptr) missing.push_back(key.stack_id);
  }
  if (!missing.empty()) parts_.on_missing_stacks(std::move(missing));
  const uint64_t begun_ns = read_thread_cpu_ns();
  const Capture capture = build->builder->finish(stacks);
  build->builder.reset();
  build->cpu_ns += read_thread_cpu_ns() - begun_ns;
  build->on_built(*build, capture);
}

}  // namespace gpuperf
