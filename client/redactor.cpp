#include "client/redactor.h"

#include <absl/strings/ascii.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "client/sha256.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

enum class Handling {
  kOpen,      // ours: from a closed set, or a version
  kSentence,  // text that may have names in it
  kPath,
  kFunction,  // ours where its category is of a library
  kLeftOut,   // text or messages: also where names are kept
};

struct FieldRow {
  std::string_view field;  // "Message.field", or "Message" for all of it
  Handling handling;
};

// Every other text field is a name.
constexpr FieldRow kFields[] = {
    {"GetStatusResponse.version", Handling::kOpen},
    {"GetStatusResponse.mechanism", Handling::kOpen},
    {"GetStatusResponse.kernel", Handling::kOpen},
    {"GetStatusResponse.config_path", Handling::kPath},
    {"GetStatusResponse.store_path", Handling::kPath},
    {"GetStatusResponse.ingest_socket", Handling::kPath},
    {"GetStatusResponse.metrics_address", Handling::kSentence},
    {"GetStatusResponse.gpus_reason", Handling::kSentence},
    {"BoundLevel", Handling::kOpen},
    {"StepTime", Handling::kOpen},
    {"MemoryShare", Handling::kOpen},
    {"Drop", Handling::kOpen},
    {"Problem", Handling::kSentence},
    {"InjectionWay.way", Handling::kOpen},
    {"InjectionWay.detail", Handling::kSentence},
    {"Suspension.category", Handling::kFunction},
    {"Suspension.function", Handling::kFunction},
    {"FunctionStats.category", Handling::kFunction},
    {"FunctionStats.function", Handling::kFunction},
    {"ErrorCount.error", Handling::kOpen},
    {"DirectionBytes", Handling::kOpen},
    {"Probe.category", Handling::kFunction},
    {"Probe.function", Handling::kFunction},
    {"Probe.symbol", Handling::kFunction},
    {"Probe.library", Handling::kPath},
    {"Probe.reason", Handling::kSentence},
    {"Probe.mechanism", Handling::kOpen},
    {"Process.session_state", Handling::kOpen},
    {"Session.state", Handling::kOpen},
    {"Session.cause", Handling::kOpen},
    {"Session.level", Handling::kOpen},
    {"Session.injector_version", Handling::kOpen},
    {"Session.detail", Handling::kSentence},
    {"SessionLoss", Handling::kOpen},
    {"SessionGap", Handling::kOpen},
    {"CopyStats", Handling::kOpen},
    {"SyncStats", Handling::kOpen},
    {"GpuOverhead", Handling::kOpen},
    {"GpuMemory.memory", Handling::kOpen},
    {"ListGpusResponse.driver_version", Handling::kOpen},
    {"ListGpusResponse.reason", Handling::kSentence},
    {"ListGpusResponse.events_problem", Handling::kSentence},
    {"Gpu.name", Handling::kOpen},
    {"Gpu.driver_version", Handling::kOpen},
    {"Gpu.limited_by", Handling::kOpen},
    {"Gpu.verdict", Handling::kSentence},
    {"Gpu.hint", Handling::kSentence},
    {"GpuClockLimit", Handling::kOpen},
    {"GpuXid", Handling::kOpen},
    {"GpuCallCost", Handling::kOpen},
    {"GpuCounters.reason", Handling::kSentence},
    {"OverheadTrial.stopped_by", Handling::kSentence},
    {"SlowCall.category", Handling::kFunction},
    {"SlowCall.function", Handling::kFunction},
    {"SlowCall.reason", Handling::kOpen},
    {"SlowCall.state", Handling::kOpen},
    {"SlowCall.user_stack_end", Handling::kOpen},
    {"SlowCall.arguments", Handling::kLeftOut},
    {"SlowCall.return_value", Handling::kLeftOut},
    {"SlowCall.explanation", Handling::kLeftOut},
    {"SlowCall.user_stack", Handling::kLeftOut},
    {"Wait.kind", Handling::kOpen},
    {"Wait.syscall", Handling::kOpen},
    {"Wait.file_kind", Handling::kOpen},
    {"Wait.kernel_stack", Handling::kLeftOut},
    {"Waker.stack", Handling::kLeftOut},
    {"TimeSplit.blocked_on", Handling::kOpen},
    {"BlockedTime", Handling::kOpen},
    {"NestedCalls.category", Handling::kFunction},
    {"NestedCalls.function", Handling::kFunction},
    {"GpuLauncher.function", Handling::kOpen},
    {"GpuLauncher.frame", Handling::kLeftOut},
    {"GpuCopyTime", Handling::kOpen},
    {"GpuDuringCall.missing", Handling::kSentence},
};

std::optional<Handling> find_handling(const FieldDescriptor& field) {
  const std::string type = field.containing_type()->name();
  const std::string name = type + "." + field.name();
  for (const FieldRow& row : kFields) {
    if (row.field == name || row.field == type) return row.handling;
  }
  return std::nullopt;
}

// Labels of metrics whose values are from closed sets, or ours.
constexpr std::string_view kOpenLabels[] = {
    "bound",  "clock",      "component", "direction", "driver", "error", "gpu",     "gpu_instance",
    "kernel", "kind",       "le",        "mechanism", "name",   "part",  "pipe",    "quantile",
    "reason", "slurm_rank", "stage",     "state",     "step",   "sync",  "version", "xid"};

// Values of log lines likewise.
constexpr std::string_view kOpenKeys[] = {"version", "mechanism", "thread", "state",       "stage",
                                          "demand",  "role",      "method", "system_calls"};
// And those that are sentences, ours with names in them.
constexpr std::string_view kSentenceKeys[] = {"error",  "problem", "cause", "warning",
                                              "reason", "metrics", "api",   "config",
                                              "detail", "file",    "path",  "library"};
// Stacks, arguments and results of calls.
constexpr std::string_view kLeftOutKeys[] = {"stack", "explanation", "return_value"};

// Settings whose keys are names, and those whose values are from closed sets.
constexpr std::string_view kNamedSettings[] = {"budget_percent_by_comm", "headers",
                                               "resource_attributes"};
constexpr std::string_view kOpenSettings[] = {"level"};

// Files of ours, and of the kernel.
constexpr std::string_view kOpenPaths[] = {"/etc/gpuperf/config.json",
                                           "/etc/gpuperf/conf.d",
                                           "/run/gpuperf",
                                           "/run/gpuperf/api.sock",
                                           "/run/gpuperf/gpuperfd.lock",
                                           "/run/gpuperf/ingest.sock",
                                           "/var/lib/gpuperf",
                                           "/var/lib/gpuperf/slow_calls.db",
                                           "/usr/lib/gpuperf",
                                           "/usr/lib/gpuperf/libgpuperf_injector.so",
                                           "/sys/kernel/btf/vmlinux",
                                           "/sys/kernel/security/lockdown",
                                           "/metrics",
                                           "/readyz",
                                           "/healthz",
                                           "/ui/"};
// Libraries by name, up to ".so".
constexpr std::string_view kLibraries[] = {
    "libcuda",  "libcudart",    "libcublas",           "libcublasLt",
    "libcudnn", "libcudnn_ops", "libcudnn_graph",      "libnccl",
    "libtorch", "libtorch_cpu", "libtorch_cuda",       "libtorch_python",
    "libc10",   "libc10_cuda",  "libnvidia-ml",        "libcupti",
    "libc",     "libpthread",   "libgpuperf_injector", "ld-linux-x86-64"};

constexpr std::string_view kSections[] = {"export", "grpc",    "ingest",   "injection", "limits",
                                          "log",    "metrics", "overhead", "sessions",  "slow",
                                          "stats",  "storage", "trace",    "gpu"};
constexpr std::string_view kOwnNames[] = {"gpuperf", "gpuperfd", "gpuperfctl", "root", "other"};
constexpr std::string_view kSeparators = " \t\n\r\"'`()[]{}<>,;=|";
constexpr size_t kLeastKnownBytes = 3;  // shorter names are found in every sentence
constexpr size_t kLeastIdDigits = 12;

template <size_t N>
bool contains(const std::string_view (&list)[N], std::string_view text) {
  return std::ranges::find(list, text) != std::end(list);
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  // With more points it is a version, or an address.
  return !text.empty() && absl::ascii_isdigit(text[0]) && std::ranges::count(text, '.') <= 1 &&
         text.find_first_not_of("0123456789.+-e%") == std::string_view::npos;
}

// "comm-0123abcd", or a path that begins so.
bool is_pseudonym(std::string_view word) {
  const size_t dash = word.find('-');
  if (dash == std::string_view::npos || dash == 0 || word.size() < dash + 9) return false;
  const std::string_view kind = word.substr(0, dash);
  const std::string_view hash = word.substr(dash + 1, 8);
  const bool ends = word.size() == dash + 9 || !absl::ascii_isalnum(word[dash + 9]);
  return ends &&
         std::ranges::all_of(kind, [](char c) { return absl::ascii_islower(c) || c == '_'; }) &&
         std::ranges::all_of(hash, [](char c) { return absl::ascii_isxdigit(c); });
}

bool is_address(const std::string& word) {
  in6_addr address{};
  const std::string host = word.substr(0, word.rfind(':'));
  return inet_pton(AF_INET, word.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, word.c_str(), &address) == 1 ||
         inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool is_local_address(std::string_view word) {
  return word.starts_with("127.") || word.starts_with("0.0.0.0") || word == "::1" || word == "::";
}

// A container's id, a UUID, the address of a PCI device.
bool is_identifier(std::string_view word) {
  size_t digits = 0;
  for (const char c : word) {
    if (c == '-' || c == ':' || c == '.') continue;
    if (!absl::ascii_isxdigit(c)) return false;
    ++digits;
  }
  return digits >= kLeastIdDigits && !is_number(word);
}

// Of a host, or a file; no setting and no version.
bool is_dotted_name(std::string_view word) {
  const size_t dot = word.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == word.size()) return false;
  if (contains(kSections, word.substr(0, dot))) return false;
  return std::ranges::any_of(word, [](char c) { return absl::ascii_isalpha(c); }) &&
         !absl::ascii_isdigit(word[0]);
}

std::string make_key() {
  std::string key(32, '\0');
  // Cannot be cut short or fail for so few bytes once the kernel's generator is ready.
  (void)getrandom(key.data(), key.size(), 0);
  return key;
}

}  // namespace

bool is_library_category(std::string_view category) {
  constexpr std::string_view kOurs[] = {"cuda", "cublas", "cudnn", "nccl", "libtorch"};
  return contains(kOurs, category);
}

Redactor::Redactor(bool keeps_names) : Redactor(keeps_names, make_key()) {}
Redactor::Redactor(bool keeps_names, std::string key)
    : keeps_names_(keeps_names), key_(std::move(key)) {}

std::string Redactor::replace(std::string_view kind, std::string_view name) {
  if (keeps_names_ || name.empty() || contains(kOwnNames, name)) return std::string(name);
  replaced_.emplace(name);
  const std::string inner = key_ + std::string(name);
  // Twice, as in HMAC: nothing follows from hashes of names that begin alike.
  const Sha256 first = hash_sha256(inner);
  const std::string outer = key_ + std::string(first.begin(), first.end());
  return fmt::format("{}-{}", kind, to_hex(hash_sha256(outer), 4));
}

std::string Redactor::replace_function(std::string_view category, std::string_view name) {
  return is_library_category(category) ? std::string(name) : replace("function", name);
}

void Redactor::learn(std::string_view kind, std::string_view name) {
  if (name.size() < kLeastKnownBytes || is_number(name) || contains(kOwnNames, name)) return;
  known_.emplace(name, kind);
}

void Redactor::learn(const Message& message) {
  visit(const_cast<Message&>(message), /*is_learning=*/true);  // which changes nothing
}

void Redactor::redact(Message& message) { visit(message, /*is_learning=*/false); }

void Redactor::visit(Message& message, bool is_learning) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  // A function's category says how it is handled: it is changed last.
  std::ranges::stable_sort(fields, {},
                           [](const auto* field) { return field->name() == "category"; });
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (find_handling(*field) == Handling::kLeftOut) {
      if (!is_learning) reflection.ClearField(&message, field);
      continue;
    }
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (is_message) {
        visit(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, i)
                                   : *reflection.MutableMessage(&message, field),
              is_learning);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        visit_text(message, *field, i, is_learning);
      }
    }
  }
}

void Redactor::visit_text(Message& message, const FieldDescriptor& field, int index,
                          bool is_learning) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::string text = field.is_repeated() ? reflection.GetRepeatedString(message, &field, index)
                                         : reflection.GetString(message, &field);
  const auto handling = find_handling(field);
  std::string category;
  if (handling == Handling::kFunction) {
    category = reflection.GetString(message, message.GetDescriptor()->FindFieldByName("category"));
  }
  const bool is_name =
      !handling || (handling == Handling::kFunction && !is_library_category(category));
  if (is_learning) {
    if (is_name) learn(handling ? "function" : field.name(), text);
    return;
  }
  if (is_name) {
    text = replace(handling ? "function" : field.name(), text);
  } else if (handling == Handling::kPath) {
    text = redact_path(text);
  } else if (handling == Handling::kSentence) {
    text = redact_text(text);
  }
  if (field.is_repeated()) {
    reflection.SetRepeatedString(&message, &field, index, text);
  } else {
    reflection.SetString(&message, &field, text);
  }
}

std::string Redactor::redact_path(std::string_view path) {
  if (keeps_names_ || path.empty() || contains(kOpenPaths, path) || is_pseudonym(path)) {
    return std::string(path);
  }
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const size_t end = name.find(".so");
  const bool is_library = end != std::string_view::npos &&
                          contains(kLibraries, name.substr(0, end)) &&
                          name.find_first_not_of("0123456789.", end + 3) == std::string_view::npos;
  if (!is_library) return replace("path", path);
  const std::string_view folder = slash == std::string_view::npos ? "" : path.substr(0, slash);
  return folder.empty() ? std::string(name) : replace("path", folder) + "/" + std::string(name);
}

std::string Redactor::redact_word(std::string_view word) {
  if (is_pseudonym(word)) return std::string(word);
  const auto known = known_.find(word);
  if (known != known_.end()) return replace(known->second, word);
  if (word.empty() || is_number(word)) return std::string(word);
  const std::string_view tail = ".:!?";
  if (tail.find(word.back()) != std::string_view::npos) {
    return redact_word(word.substr(0, word.size() - 1)) + word.back();
  }
  if (word.front() == '/') return redact_path(word);
  if (has(word, "://")) return replace("url", word);
  if (has(word, "/") && word.starts_with("unix:")) {
    return "unix:" + redact_path(word.substr(5));
  }
  if (is_local_address(word)) return std::string(word);
  if (is_address(std::string(word))) return replace("address", word);
  if (has(word, "@")) return replace("user", word);
  if (is_identifier(word) || word.starts_with("GPU-") || word.starts_with("MIG-")) {
    return replace("id", word);
  }
  if (has(word, ".so")) return redact_path(word);
  if (has(word, "/") || is_dotted_name(word)) return replace("name", word);
  return std::string(word);
}

std::string Redactor::redact_text(std::string_view text) {
  if (keeps_names_) return std::string(text);
  std::string whole(text);
  for (const auto& [name, kind] : known_) {  // those that are no single word
    if (name.find_first_of(kSeparators) == std::string::npos) continue;
    for (size_t at = whole.find(name); at != std::string::npos; at = whole.find(name, at)) {
      const std::string pseudonym = replace(kind, name);
      whole.replace(at, name.size(), pseudonym);
      at += pseudonym.size();
    }
  }
  std::string out;
  std::string before;    // the word before `previous`
  std::string previous;  // the last word
  for (size_t at = 0; at < whole.size();) {
    // "process 71 (train.py)": whatever stands there is a name.
    const bool is_process = (before == "process" || before == "pid") && is_number(previous);
    if (is_process && whole.compare(at, 2, " (") == 0) {
      const size_t end = std::min(whole.find(')', at), whole.size());
      out += " (" + replace("comm", whole.substr(at + 2, end - at - 2));
      at = end;
      previous.clear();
      continue;
    }
    const bool is_separator = kSeparators.find(whole[at]) != std::string_view::npos;
    const size_t end = std::min(is_separator ? whole.find_first_not_of(kSeparators, at)
                                             : whole.find_first_of(kSeparators, at),
                                whole.size());
    const size_t part_end = is_separator ? at + 1 : end;
    const std::string part = whole.substr(at, part_end - at);
    at = part_end;
    if (is_separator) {
      out += part;
      continue;
    }
    out += redact_word(part);
    before = std::exchange(previous, part);
  }
  return out;
}

std::string Redactor::redact_metrics(std::string_view text) {
  std::string out;
  for (const std::string_view line : split_lines(text)) {
    const size_t open = line.starts_with('#') ? std::string_view::npos : line.find('{');
    if (open == std::string_view::npos) {
      out.append(line).append("\n");
      continue;
    }
    std::vector<std::pair<std::string, std::string>> labels;
    size_t at = open + 1;
    while (at < line.size() && line[at] != '}') {
      const size_t equals = std::min(line.find('=', at), line.size());
      std::string value;
      size_t next = equals + 2;
      for (; next < line.size() && line[next] != '"'; ++next) {
        if (line[next] == '\\') value += line[next++];
        if (next < line.size()) value += line[next];
      }
      labels.emplace_back(line.substr(at, equals - at), value);
      at = next + 1;
      if (at < line.size() && line[at] == ',') ++at;
    }
    const auto category =
        std::ranges::find(labels, "category", [](const auto& l) { return l.first; });
    const std::string of = category == labels.end() ? "" : category->second;
    out.append(line.substr(0, open + 1));
    for (size_t i = 0; i < labels.size(); ++i) {
      auto& [label, value] = labels[i];
      const bool is_function = label == "category" || label == "function";
      if (is_function) value = replace_function(of, value);
      if (!is_function && !contains(kOpenLabels, label)) value = replace(label, value);
      out += fmt::format("{}{}=\"{}\"", i == 0 ? "" : ",", label, value);
    }
    out.append(at < line.size() ? line.substr(at) : "}").append("\n");
  }
  return out;
}

std::string Redactor::redact_value(std::string_view key, std::string_view value) {
  if (contains(kLeftOutKeys, key)) return "(left out)";
  if (is_number(value) || value == "true" || value == "false" || contains(kOpenKeys, key)) {
    return std::string(value);
  }
  return contains(kSentenceKeys, key) ? redact_text(value) : replace(key, value);
}

// "TIME LEVEL words of the event key=value key="value with blanks"".
std::string Redactor::redact_log(std::string_view lines) {
  std::string out;
  for (std::string_view line : split_lines(lines)) {
    const size_t first = line.find('=');
    const size_t words_end =
        first == std::string_view::npos ? line.size() : std::min(line.rfind(' ', first) + 1, first);
    out += redact_text(line.substr(0, words_end));
    line.remove_prefix(words_end);
    while (!line.empty()) {
      const size_t equals = line.find('=');
      if (equals == std::string_view::npos) break;  // no value: of somebody else's line
      const std::string_view key = line.substr(0, equals);
      line.remove_prefix(equals + 1);
      std::string value;
      size_t end = 0;
      if (line.starts_with('"')) {
        for (end = 1; end < line.size() && line[end] != '"'; ++end) {
          if (line[end] == '\\' && end + 1 < line.size()) ++end;
          value += line[end];
        }
        end = std::min(end + 1, line.size());
      } else {
        end = std::min(line.find(' '), line.size());
        value = line.substr(0, end);
      }
      line.remove_prefix(std::min(line.size(), end + 1));
      out += fmt::format("{}=\"{}\"{}", redact_text(key), redact_value(key, value),
                         line.empty() ? "" : " ");
    }
    out += '\n';
  }
  return out;
}

void Redactor::redact_settings(const std::string& key, nlohmann::ordered_json& value) {
  using nlohmann::ordered_json;
  if (value.is_object()) {
    const bool are_names = contains(kNamedSettings, key);
    ordered_json changed = ordered_json::object();
    for (auto& [inner_key, inner] : value.items()) {
      redact_settings(inner_key, inner);
      if (key == "headers" || key == "resource_attributes") inner = "(left out)";
      changed[are_names ? replace("name", inner_key) : inner_key] = inner;
    }
    value = std::move(changed);
  } else if (value.is_array()) {
    for (ordered_json& inner : value) redact_settings(key, inner);
  } else if (value.is_string() && !contains(kOpenSettings, key)) {
    const auto text = value.get<std::string>();
    const bool is_place = key == "listen" || key == "path" || text.starts_with('/');
    value = is_place ? redact_text(text) : replace(key, text);
  }
}

nlohmann::ordered_json Redactor::redact_config(nlohmann::ordered_json config) {
  redact_settings("", config);
  return config;
}

}  // namespace gpuperf::client
