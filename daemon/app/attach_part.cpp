#include "daemon/app/attach_part.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "daemon/app/rights.h"
#include "daemon/app/sessions_part.h"
#include "daemon/inject/injector_file.h"
#include "daemon/owner/container.h"

namespace gpuperf {
namespace {

// How often an attached process without a session is checked: its library offers a new connection
// half a second after it has lost one.
constexpr int64_t kLookPeriodNs = 1'000'000'000;

}  // namespace

AttachPart::AttachPart(Core& core, SessionsPart& sessions) : Part(core), sessions_(sessions) {
  if (!core.settings.sessions.attach || !core.settings.ingest.enabled) return;
  attacher_ = std::make_unique<ProcessAttacher>(ProcessAttacher::Setup{
      .drop_rights = [] { return drop_rights_but_attaching(); },
      .find_library = [path =
                           core.settings.ingest.injector_path] { return find_injector_file(path); },
      .find_owner = [files = core.reader.make_files()](
                        const ProcessKey& process) { return read_owner(files, process, nullptr); },
      .on_connection =
          [this](uint32_t pid, std::shared_ptr<Fd> connection, const AttachFacts& facts) {
            core_.loop->post([this, pid, connection, facts] {
              attached_.insert(pid);
              sessions_.adopt(std::move(*connection), facts);
            });
          }});
}

void AttachPart::prepare() {
  if (attacher_) attacher_->start();
}

Status AttachPart::start() {
  if (!attacher_) return absl::OkStatus();
  attacher_->post_adopt_all([this](std::vector<uint32_t> attached) {
    core_.loop->post([this, attached = std::move(attached)] {
      attached_.insert(attached.begin(), attached.end());
    });
  });
  return absl::OkStatus();
}

void AttachPart::stop() {
  if (!attacher_) return;
  stop_beside_loop([this] { attacher_->stop(); });
}

bool AttachPart::has_session(uint32_t pid) const {
  const std::shared_ptr<const Snapshot> snapshot = core_.board.get();
  if (snapshot == nullptr) return true;
  return std::ranges::any_of(snapshot->gpu.sessions, [pid](const auto& row) {
    return row->open && row->facts.process.pid == pid;
  });
}

void AttachPart::advance(int64_t now_mono_ns) {
  if (!attacher_) return;
  attacher_->reap();
  if (now_mono_ns < next_look_mono_ns_) return;
  next_look_mono_ns_ = now_mono_ns + kLookPeriodNs;
  std::erase_if(attached_, [this](uint32_t pid) {
    if (has_session(pid)) return false;
    attacher_->post_adopt(pid);
    return !read_start_ticks("/proc", pid).ok();
  });
}

Status AttachPart::check_allowed() const {
  if (attacher_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      core_.settings.sessions.attach
          ? "gpuperfd accepts no sessions: ingest.enabled is false"
          : "sessions.attach is false: this gpuperfd attaches to no process; set it to true and "
            "restart gpuperfd");
}

void AttachPart::post_attach(const AttachOrder& order, ControlPort::AttachDone done) {
  if (const Status allowed = check_allowed(); !allowed.ok()) return done(allowed);
  attacher_->post_attach(order, [this, done = std::move(done)](Result<AttachRow> row) {
    core_.loop->post([done, row = std::move(row)] { done(row); });
  });
}

void AttachPart::post_detach(uint32_t pid, ControlPort::AttachDone done) {
  if (const Status allowed = check_allowed(); !allowed.ok()) return done(allowed);
  attached_.erase(pid);
  attacher_->post_detach(pid, [this, done = std::move(done)](Result<AttachRow> row) {
    core_.loop->post([done, row = std::move(row)] { done(row); });
  });
}

void AttachPart::post_list(ControlPort::AttachListDone done) {
  if (const Status allowed = check_allowed(); !allowed.ok()) return done(allowed);
  attacher_->post_list([this, done = std::move(done)](Result<std::vector<AttachRow>> rows) {
    core_.loop->post([done, rows = std::move(rows)] { done(rows); });
  });
}

}  // namespace gpuperf
