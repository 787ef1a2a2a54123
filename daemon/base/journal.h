#pragma once

// Entries of systemd's journal (systemd.journal-fields(7)).

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/log.h"

namespace gpuperf {

// Whether `fd` is a stream to the journal. `journal_stream`: the value of JOURNAL_STREAM, in which
// systemd says "DEVICE:INODE" of the one it made; null = not set.
bool is_journal_stream(int fd, const char* journal_stream);

// The fields of one entry, each "NAME=value": MESSAGE (the whole line), PRIORITY,
// SYSLOG_IDENTIFIER, MESSAGE_ID where the event has one, and GPUPERF_KEY for every field, its
// value as it is.
std::vector<std::string> make_journal_entry(spdlog::level::level_enum level, std::string_view line,
                                            LogEvent event, std::initializer_list<LogField> fields);

// False when journald did not take it. Any thread; waits while journald is busy, as a write to its
// stream does.
bool send_to_journal(const std::vector<std::string>& entry);

}  // namespace gpuperf
