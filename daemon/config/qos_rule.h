#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/model/qos.h"

namespace gpuperf {

inline constexpr std::string_view kQosRulesFormat =
    "an object of name: rule, such as "
    "\"p99 gpuperf_step_seconds{phase=decode} > 0.05 over 2s: freeze, detail\"";
inline constexpr std::string_view kQosRuleNamePattern = "^[A-Za-z0-9._-]{1,64}$";
inline constexpr size_t kMaxQosRules = 32;

// [READING] METRIC[{LABEL=PATTERN,...}] [of URL] >|< NUMBER [over DURATION]: ACTION, ...
// InvalidArgument: what is wrong with it, and what is possible there. Of another program's metric
// it is not known what type it has, so whether it can be read so shows when it is.
Result<QosRule> parse_qos_rule(std::string_view name, std::string_view text);

std::optional<std::string> find_qos_rule_fault(std::string_view name, std::string_view text);

}  // namespace gpuperf
