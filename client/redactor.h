#pragma once

// Takes names out of what a support bundle holds.

#include <google/protobuf/message.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf::client {

// Replaces names of users, processes, files, hosts, containers, pods, jobs, kernels and functions
// that are not ours by pseudonyms: the same name by the same one within one bundle. They are hashes
// with a random key that is not kept, so that nobody can try names.
//
// What is not known to be harmless is a name: of messages every text field without a row in the
// table of redactor.cpp, of metrics every label without one, of log lines every value that is no
// number. In sentences, names are found that were seen elsewhere (learn), and whatever looks like a
// path, an address, a URL or an identifier.
//
// Thread: one. Learn everything first, then redact: sentences may name what another message tells.
class Redactor {
 public:
  // `keeps_names`: they stay as they are. Secrets, stacks and arguments of calls leave in any case.
  explicit Redactor(bool keeps_names);  // with a key of its own
  Redactor(bool keeps_names, std::string key);

  // Names that may stand in sentences.
  void learn(std::string_view kind, std::string_view name);
  void learn(const google::protobuf::Message& message);

  void redact(google::protobuf::Message& message);
  // Each by itself. Lines of a log, as the daemon writes them.
  std::string redact_text(std::string_view text);
  std::string redact_path(std::string_view path);
  std::string redact_metrics(std::string_view text);  // of the Prometheus text format
  std::string redact_log(std::string_view lines);
  // A configuration, as GetConfig gives it. Values of headers leave in any case.
  nlohmann::ordered_json redact_config(nlohmann::ordered_json config);

  // Number of names replaced, each counted once.
  size_t count_names() const { return replaced_.size(); }

 private:
  std::string replace(std::string_view kind, std::string_view name);
  std::string replace_function(std::string_view category, std::string_view name);
  void visit(google::protobuf::Message& message, bool is_learning);
  void visit_text(google::protobuf::Message& message,
                  const google::protobuf::FieldDescriptor& field, int index, bool is_learning);
  std::string redact_word(std::string_view word);
  std::string redact_value(std::string_view key, std::string_view value);
  void redact_settings(const std::string& section, nlohmann::ordered_json& value);

  const bool keeps_names_;
  const std::string key_;
  std::map<std::string, std::string, std::less<>> known_;  // name -> kind; to be found in sentences
  std::set<std::string, std::less<>> replaced_;
};

// A function of the shipped configuration's libraries, whose name tells nothing of the user.
bool is_library_category(std::string_view category);

}  // namespace gpuperf::client
