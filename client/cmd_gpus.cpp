// gpuperfctl gpus: how the host's GPUs are, so that a slow kernel can be told from a slow GPU.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "client/gpu_counter_table.h"
#include "client/gpu_table.h"
#include "client/view.h"

namespace gpuperf::client {
namespace {

Result<std::string> draw_gpus(Connection& connection, const View& view) {
  v1::ListGpusResponse response;
  RETURN_IF_ERROR(connection.call("list GPUs", v1::ListGpusRequest(), &response));
  const std::vector<v1::Gpu> gpus(response.gpus().begin(), response.gpus().end());
  if (view.format != Format::kTable) return render_rows(gpus, view.format, view.shape, view.style);
  std::string text = render_gpu_table(gpus, read_wall_clock_ns(), view.style);
  text += render_gpu_counter_table(gpus, view.style);
  if (gpus.empty()) {
    text += paint(fmt::format("\nNo GPU: {}\n", make_printable(response.reason())), Tone::kDim,
                  view.style);
  }
  return text;
}

}  // namespace

void declare_gpus(CLI::App& app, Invocation& invocation) {
  add_watch_flag(app, invocation.options);
  app.callback([&invocation] {
    invocation.run = [&invocation] { return run_view(invocation, draw_gpus); };
  });
}

}  // namespace gpuperf::client
