// gpuperfctl version: the versions of this program and of the daemon, which may be absent.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "client/version.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

Result<std::string> find_daemon_version(const Invocation& invocation) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(invocation, nullptr));
  v1::GetStatusResponse status;
  RETURN_IF_ERROR(connection->call("read the daemon's version", v1::GetStatusRequest(), &status));
  return status.version();
}

// Never fails for want of a daemon: the version of this program is known without one.
Status run_version(const Invocation& invocation) {
  RETURN_IF_ERROR(parse_address(invocation.options.address).status());
  const Result<std::string> daemon = find_daemon_version(invocation);
  const std::string client_version(get_client_version());
  const std::string daemon_version = daemon.ok() ? *daemon : "";
  const Format format = find_format(invocation.options);
  if (format == Format::kJson) {
    nlohmann::ordered_json object;
    object["client_version"] = client_version;
    object["daemon_version"] = daemon_version;
    return invocation.output.write(write_json(object, JsonShape::kIndented));
  }
  if (format == Format::kCsv) {
    return invocation.output.write(fmt::format("client_version,daemon_version\n{},{}\n",
                                               client_version, make_printable(daemon_version)));
  }
  const std::string said = daemon.ok() ? daemon_version : std::string(daemon.status().message());
  return invocation.output.write(
      fmt::format("gpuperfctl {}\ngpuperfd   {}\n", client_version, make_printable(said)));
}

}  // namespace

std::string_view get_client_version() { return GPUPERF_VERSION; }

void declare_version(CLI::App& app, Invocation& invocation) {
  app.callback(
      [&invocation] { invocation.run = [&invocation] { return run_version(invocation); }; });
}

}  // namespace gpuperf::client
