#include "daemon/app/session_log.h"

#include <memory>
#include <string>

#include "daemon/model/session_names.h"

namespace gpuperf {

struct SessionLog::Session final : SessionFollower {
  Session(SessionLog& its_log, const SessionEntry& its_entry);
  void take_batch(const SessionBatch& batch, int64_t now_mono_ns) override;
  void take_status(const SessionStatus& status, int64_t now_mono_ns) override;
  void close(const SessionClosed& closed) override;

  SessionLog& log;
  const SessionEntry& entry;
  uint64_t records = 0;
  uint64_t names = 0;
};

void SessionLog::follow(SessionRegistry& sessions) {
  sessions.add([this](SessionEntry& entry) { return std::make_unique<Session>(*this, entry); });
}

SessionLog::Session::Session(SessionLog& its_log, const SessionEntry& its_entry)
    : log(its_log), entry(its_entry) {
  ++log.open_;
  const SessionOpened& opened = entry.row().facts;
  if (!log.may_log(opened.mono_ns)) return;
  log_info("session open", {{"session", std::to_string(opened.session_id)},
                            {"pid", std::to_string(opened.process.pid)},
                            {"comm", opened.owner.comm},
                            {"injector", opened.injector_version},
                            {"open", std::to_string(log.open_)}});
}

void SessionLog::Session::take_batch(const SessionBatch& batch, int64_t) {
  records += count_records(batch);
  names += batch.names.size();
}

void SessionLog::Session::take_status(const SessionStatus& status, int64_t now_mono_ns) {
  if (status.state == entry.row().status.state || !log.may_log(now_mono_ns)) return;
  log_info("session state", {{"session", std::to_string(status.session_id)},
                             {"pid", std::to_string(entry.row().facts.process.pid)},
                             {"state", std::string(get_session_state_name(status.state))},
                             {"detail", status.detail}});
}

void SessionLog::Session::close(const SessionClosed& closed) {
  --log.open_;
  const SessionOpened& opened = entry.row().facts;
  if (!log.may_log(closed.mono_ns)) return;
  log_info("session closed", {{"session", std::to_string(closed.session_id)},
                              {"pid", std::to_string(opened.process.pid)},
                              {"comm", opened.owner.comm},
                              {"reason", closed.reason},
                              {"records", std::to_string(records)},
                              {"names", std::to_string(names)},
                              {"open", std::to_string(log.open_)}});
}

}  // namespace gpuperf
