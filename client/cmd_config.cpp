// gpuperfctl config show|check|reload: the configuration in force, whether another one is valid,
// and having the daemon read its file anew.

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <iostream>
#include <memory>
#include <string>

#include "client/change.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = 1 << 20;  // what CheckConfig accepts

void add_settings(Table& table, const std::string& name, const ordered_json& value) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      add_settings(table, name.empty() ? key : fmt::format("{}.{}", name, key), inner);
    }
    return;
  }
  table.add_row({{name}, {value.dump(-1, ' ', false, ordered_json::error_handler_t::replace)}});
}

std::string render_config(const v1::GetConfigResponse& config, const TextStyle& style) {
  std::string files = config.path();
  for (const std::string& drop_in : config.drop_ins()) files += ", " + drop_in;
  std::string text =
      fmt::format("Read from {}; settings in use, including defaults:\n\n", make_printable(files));
  const auto settings = ordered_json::parse(config.effective_json(), nullptr, false);
  if (settings.is_discarded()) return text + make_printable(config.effective_json()) + "\n";
  Table table({{"SETTING"}, {"VALUE"}});
  add_settings(table, "", settings);
  return text + table.take_text(style);
}

Result<std::string> draw_config(Connection& connection, const View& view) {
  v1::GetConfigResponse config;
  RETURN_IF_ERROR(connection.call("read the configuration", v1::GetConfigRequest(), &config));
  if (view.format == Format::kTable) return render_config(config, view.style);
  return render_message(config, view.format, view.shape, view.style);
}

Result<std::string> read_all(int fd, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return absl::InternalError(fmt::format("cannot read {}: {}", name, strerror(errno)));
    }
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > kMaxConfigBytes) {
      return absl::InvalidArgumentError(
          fmt::format("{}: longer than the 1 MiB a configuration may have", name));
    }
  }
}

// "-" is standard input.
Result<std::string> read_config_text(const std::string& file, const std::string& name) {
  if (file == "-") return read_all(STDIN_FILENO, name);
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::InternalError(fmt::format("cannot open {}: {}", name, strerror(errno)));
  }
  Result<std::string> text = read_all(fd, name);
  close(fd);
  return text;
}

void report_errors(const v1::CheckConfigResponse& response, const std::string& name) {
  for (const v1::ConfigError& error : response.errors()) {
    std::cerr << make_printable(fmt::format("{}: {}: {}", name, error.path(), error.message()));
    if (!error.hint().empty()) std::cerr << "; hint: " << make_printable(error.hint());
    std::cerr << "\n";
  }
}

Status run_check(const Invocation& invocation, const std::string& file) {
  const std::string name = file == "-" ? "standard input" : file;
  ASSIGN_OR_RETURN(std::string text, read_config_text(file, name));
  if (!is_utf8(text)) {
    return absl::InvalidArgumentError(
        fmt::format("{}: not UTF-8 text; save the file as UTF-8", name));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  v1::CheckConfigRequest request;
  request.set_json(std::move(text));
  v1::CheckConfigResponse response;
  RETURN_IF_ERROR(connection->call(fmt::format("check {}", name), request, &response));
  const Format format = find_format(invocation.options);
  if (format == Format::kJson) {
    RETURN_IF_ERROR(invocation.output.write(write_json(to_json(response), JsonShape::kIndented)));
  } else if (format == Format::kCsv) {
    const std::vector<v1::ConfigError> rows(response.errors().begin(), response.errors().end());
    RETURN_IF_ERROR(invocation.output.write(
        render_rows(rows, format, JsonShape::kOneLine, invocation.output.read_style())));
  } else if (response.errors().empty()) {
    RETURN_IF_ERROR(invocation.output.write(make_printable(name) + ": valid\n"));
  } else {
    report_errors(response, name);
  }
  if (response.errors().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("");  // said above; only the exit code is left
}

}  // namespace

void declare_config(CLI::App& app, Invocation& invocation) {
  app.require_subcommand(1);
  app.add_subcommand("show", "All settings in use, including defaults")->callback([&invocation] {
    invocation.run = [&invocation] { return run_view(invocation, draw_config); };
  });
  CLI::App& check = *app.add_subcommand("check", "Validate a file without applying it");
  const auto file = std::make_shared<std::string>();
  check.add_option("FILE", *file, "Configuration file; - reads standard input")->required();
  check.callback([&invocation, file] {
    invocation.run = [&invocation, file] { return run_check(invocation, *file); };
  });
  app.add_subcommand("reload", "Make the daemon reload its configuration file (root)")
      ->callback([&invocation] {
        invocation.run = [&invocation] {
          return run_change<v1::ReloadConfigResponse>(invocation, "reload the configuration",
                                                      v1::ReloadConfigRequest());
        };
      });
}

}  // namespace gpuperf::client
