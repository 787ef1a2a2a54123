#include <fmt/format.h>

#include "client/doctor.h"

namespace gpuperf::client {
namespace {

std::string_view get_name(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kHint:
      return "hint";
    case CheckState::kProblem:
      return "problem";
  }
  return "";
}

Tone find_tone(CheckState state) {
  if (state == CheckState::kOk) return Tone::kGood;
  return state == CheckState::kHint ? Tone::kWarning : Tone::kBad;
}

}  // namespace

std::string summarise_checks(const std::vector<Check>& checks) {
  const auto count = [&](CheckState state) {
    return std::ranges::count(checks, state, &Check::state);
  };
  const auto name = [](auto number, std::string_view what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  const auto problems = count(CheckState::kProblem);
  const auto hints = count(CheckState::kHint);
  if (problems == 0 && hints == 0) {
    return fmt::format("No problems: {}", name(checks.size(), "check"));
  }
  if (problems == 0) return fmt::format("No problems, {}", name(hints, "hint"));
  const auto first = std::ranges::find(checks, CheckState::kProblem, &Check::state);
  return fmt::format("{}{}: {}", name(problems, "problem"),
                     hints == 0 ? "" : " and " + name(hints, "hint"), first->message);
}

// One line a check, whole however narrow the terminal: a reason cut off is none.
std::string render_checks(const std::vector<Check>& checks, const TextStyle& style) {
  constexpr int kStateColumns = 9;
  constexpr int kNameColumns = 12;
  std::string text = paint(make_printable(summarise_checks(checks)), Tone::kHeader, style) + "\n\n";
  for (const Check& check : checks) {
    const std::string state = fmt::format("{:<{}}", get_name(check.state), kStateColumns);
    text +=
        fmt::format("{}{:<{}}{}\n", paint(state, find_tone(check.state), style),
                    make_printable(check.check) + " ", kNameColumns, make_printable(check.message));
    if (check.hint.empty()) continue;
    text += fmt::format("{:{}}{}\n", "", kStateColumns + kNameColumns,
                        paint(make_printable(check.hint), Tone::kDim, style));
  }
  return text;
}

nlohmann::ordered_json to_json(const std::vector<Check>& checks) {
  auto array = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    array.push_back({{"check", check.check},
                     {"state", get_name(check.state)},
                     {"message", check.message},
                     {"hint", check.hint}});
  }
  return array;
}

}  // namespace gpuperf::client
