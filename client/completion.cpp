#include "client/completion.h"

#include <absl/strings/str_split.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace gpuperf::client {
namespace {

// Where the walk along the words has come to.
struct Place {
  const CLI::App* app = nullptr;
  const CLI::Option* awaited = nullptr;  // its value is the next word; null = none
  size_t positionals = 0;                // words given to `app`
  std::string address;
};

// The option of this command or of one around it; flags of those may stand anywhere.
const CLI::Option* find_option(const CLI::App* app, const std::string& name) {
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_positional() && option->check_name(name)) return option;
    }
  }
  return nullptr;
}

bool needs_value(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

void take_value(Place& place, const std::string& value) {
  if (place.awaited->check_lname("address")) place.address = value;
  place.awaited = nullptr;
}

void take_flag(Place& place, const std::string& word) {
  const size_t equals = word.find('=');
  const CLI::Option* option = find_option(place.app, word.substr(0, equals));
  if (option == nullptr || !needs_value(*option)) return;
  place.awaited = option;
  if (equals != std::string::npos) take_value(place, word.substr(equals + 1));
}

void take_word(Place& place, const std::string& word) {
  if (word == "=") return;  // bash makes a word of its own of it
  if (place.awaited != nullptr) return take_value(place, word);
  if (word.starts_with('-')) return take_flag(place, word);
  for (const CLI::App* command : place.app->get_subcommands({})) {
    if (command->check_name(word)) {
      place.app = command;
      place.positionals = 0;
      return;
    }
  }
  ++place.positionals;
}

const CLI::Option* find_positional(const CLI::App& app, size_t index) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && index-- == 0) return option;
  }
  return nullptr;
}

// Names with other characters would need quoting, differently in every shell: not offered.
bool is_plain(const std::string& name) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+@,";
  return !name.empty() && name.find_first_not_of(kPlain) == std::string::npos;
}

std::optional<KnownKind> find_known_kind(const CLI::Option& option, const CLI::App& app) {
  if (option.check_lname("category")) return KnownKind::kCategory;
  if (option.check_lname("function") || option.check_name("PATTERN")) return KnownKind::kFunction;
  if (option.check_lname("pid")) return KnownKind::kProcess;
  if (option.check_lname("capture")) return KnownKind::kCapture;
  const bool is_id = option.get_positional() &&
                     (option.check_name("ID") || option.check_name("A") || option.check_name("B"));
  if (!is_id) return std::nullopt;
  return app.get_parent()->get_name() == "slow" ? KnownKind::kSlowCall : KnownKind::kCapture;
}

// A flag's or argument's values: its type "a|b|c", or what the daemon knows.
std::vector<Candidate> list_values(const CLI::Option& option, const Place& place,
                                   const ListKnown& list_known) {
  std::vector<Candidate> values;
  const std::string type = option.get_type_name();
  if (type.find('|') != std::string::npos) {
    for (const auto& choice : absl::StrSplit(type, '|'))
      values.push_back({std::string(choice), ""});
    return values;
  }
  const std::optional<KnownKind> kind = find_known_kind(option, *place.app);
  if (!kind.has_value()) return values;
  std::set<std::string> seen;
  for (Candidate& known : list_known(*kind, place.address)) {
    if (is_plain(known.text) && seen.insert(known.text).second) values.push_back(std::move(known));
  }
  return values;
}

std::vector<Candidate> list_flags(const CLI::App* app) {
  std::vector<Candidate> flags;
  std::set<std::string> seen;
  for (const CLI::App* around = app; around != nullptr; around = around->get_parent()) {
    for (const CLI::Option* option : around->get_options()) {
      if (option->get_positional() || option->get_group().empty()) continue;
      for (const std::string& name : option->get_lnames()) {
        const bool elsewhere = name == "version" && around != app;
        if (!elsewhere && seen.insert(name).second) {
          flags.push_back({"--" + name, option->get_description()});
        }
      }
    }
  }
  return flags;
}

std::vector<Candidate> list_words(const Place& place, const ListKnown& list_known) {
  std::vector<Candidate> words;
  if (place.positionals == 0) {
    for (const CLI::App* command : place.app->get_subcommands({})) {
      if (command->get_group().empty()) continue;  // for shells, not for people
      words.push_back({command->get_name(), command->get_description()});
    }
  }
  const CLI::Option* positional = find_positional(*place.app, place.positionals);
  if (positional == nullptr) return words;
  for (Candidate& value : list_values(*positional, place, list_known))
    words.push_back(std::move(value));
  return words;
}

constexpr std::string_view kBash =
    R"(# bash completion for gpuperfctl; load it with: source <(gpuperfctl completion bash)
_gpuperfctl() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _gpuperfctl gpuperfctl
)";

constexpr std::string_view kZsh = R"(#compdef gpuperfctl
# zsh completion for gpuperfctl; load it with: source <(gpuperfctl completion zsh)
_gpuperfctl() {
  local -a lines candidates
  local line
  lines=("${(@f)$(${words[1]} completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in $lines; do
    if [[ $line == *$'\t'* ]]; then
      candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    else
      candidates+=("${line//:/\\:}")
    fi
  done
  if (( $#candidates )); then
    _describe gpuperfctl candidates
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _gpuperfctl ]]; then
  _gpuperfctl "$@"
else
  compdef _gpuperfctl gpuperfctl
fi
)";

constexpr std::string_view kFish =
    R"(# fish completion for gpuperfctl; load it with: gpuperfctl completion fish | source
function __gpuperfctl_candidates
    set -l words (commandline -opc)
    set -l found ($words[1] completion words -- $words[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c gpuperfctl -f -a '(__gpuperfctl_candidates)'
)";

}  // namespace

std::vector<Candidate> find_candidates(const CLI::App& root, const std::vector<std::string>& words,
                                       const ListKnown& list_known) {
  Place place = {.app = &root};
  for (size_t i = 0; i + 1 < words.size(); ++i) take_word(place, words[i]);
  std::string current = words.empty() ? "" : words.back();
  std::string before;  // what stands before the value in the same word
  if (current == "=") {
    current.clear();
  } else if (const size_t equals = current.find('=');
             place.awaited == nullptr && current.starts_with("--") && equals != std::string::npos) {
    place.awaited = find_option(place.app, current.substr(0, equals));
    before = current.substr(0, equals + 1);
    current.erase(0, equals + 1);
    if (place.awaited == nullptr) return {};
  }
  std::vector<Candidate> candidates = place.awaited != nullptr
                                          ? list_values(*place.awaited, place, list_known)
                                      : current.starts_with('-') ? list_flags(place.app)
                                                                 : list_words(place, list_known);
  std::erase_if(candidates,
                [&](const Candidate& candidate) { return !candidate.text.starts_with(current); });
  for (Candidate& candidate : candidates) candidate.text.insert(0, before);
  return candidates;
}

std::string_view get_completion_script(std::string_view shell) {
  if (shell == "bash") return kBash;
  return shell == "zsh" ? kZsh : kFish;
}

}  // namespace gpuperf::client
