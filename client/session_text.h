#pragma once

// Sessions of injected processes in words, the same in every command.

#include <string>
#include <string_view>

#include "client/table.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

Tone find_session_tone(std::string_view state);
// "left to another client of CUPTI: libkineto.so"; empty where there is nothing to say.
std::string describe_cause(const v1::Session& session);
// What to do about it; empty = nothing.
std::string find_cause_hint(const v1::Session& session);
// "2 collecting, 1 yielded"; "none" without any. The words in the tones of their states.
std::string describe_session_counts(const v1::SessionCounts& counts, const TextStyle& style);

}  // namespace gpuperf::client
