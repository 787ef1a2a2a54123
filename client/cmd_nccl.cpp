// gpuperfctl nccl: how ranks communicate, and which of them the others wait for.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "client/list_view.h"
#include "client/nccl_text.h"

namespace gpuperf::client {
namespace {

using v1::ListNcclRequest;

Result<std::string> draw_nccl(Connection& connection, const View& view, const Options& options) {
  return draw_list(
      connection, view, options, kListNccl, ListNcclRequest{}, &render_nccl,
      "No communicator of NCCL matches. Without filters: gpuperfctl nccl\n",
      "No NCCL calls seen. If a job uses NCCL: its library may not be found or probed: "
      "gpuperfctl probes --category nccl\n");
}

}  // namespace

void declare_nccl(CLI::App& app, Invocation& invocation) {
  add_process_flags(app, invocation.options);
  add_limit_flag(app, invocation.options);
  add_watch_flag(app, invocation.options);
  app.callback([&invocation] {
    invocation.run = [&invocation] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_nccl(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
