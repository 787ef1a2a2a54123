// gpuperfctl memory [list]|show: GPU memory by process and stack, leaks, and allocations that
// failed.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "client/list_view.h"
#include "client/memory_text.h"

namespace gpuperf::client {
namespace {

using v1::ListMemoryRequest;
using v1::ProcessMemory;

struct MemoryChoice {
  bool stacks = false;
  bool leaks = false;
  bool failures = false;
  bool interpreter_frames = false;
};

using RenderMemory = std::string (*)(const std::vector<ProcessMemory>&, const TextStyle&);
using RenderFailures = std::string (*)(const std::vector<v1::OutOfMemory>&, const TextStyle&);

template <bool kInterpreterFrames>
std::string render_stacks(const std::vector<ProcessMemory>& rows, const TextStyle& style) {
  return render_memory_stacks(rows, kInterpreterFrames, style);
}
template <bool kInterpreterFrames>
std::string render_failures(const std::vector<v1::OutOfMemory>& rows, const TextStyle& style) {
  return render_out_of_memory(rows, kInterpreterFrames, style);
}

Result<std::string> draw_memory(Connection& connection, const View& view, const Options& options,
                                const MemoryChoice& choice) {
  ListMemoryRequest request;
  request.set_with_sites(choice.stacks);
  request.set_only_leaks(choice.leaks);
  const RenderMemory stacks =
      choice.interpreter_frames ? render_stacks<true> : render_stacks<false>;
  if (choice.leaks) {
    return draw_list(connection, view, options, kListMemory, request, stacks,
                     "No leak in what matches. Without filters: gpuperfctl memory --leaks\n",
                     "No leak. A stack is taken for one once it has grown throughout 40 s while "
                     "other memory came and went, or throughout 8 min.\n");
  }
  const RenderMemory render = choice.stacks ? stacks : render_memory_table;
  return draw_list(connection, view, options, kListMemory, request, render,
                   "\nNo process matches. Without filters: gpuperfctl memory\n",
                   "\nNo process has allocated GPU memory yet. What is probed: gpuperfctl probes "
                   "--function 'cuMem*'\n");
}

Result<std::string> draw_failures(Connection& connection, const View& view, const Options& options,
                                  const MemoryChoice& choice) {
  const RenderFailures render =
      choice.interpreter_frames ? render_failures<true> : render_failures<false>;
  return draw_list(connection, view, options, kListOutOfMemory, v1::ListOutOfMemoryRequest(),
                   render,
                   "No failed allocation matches. Without filters: gpuperfctl memory --ooms\n",
                   "No allocation has failed for lack of memory since gpuperfd started.\n");
}

Result<std::string> draw_memory_of(Connection& connection, const View& view, uint32_t pid,
                                   bool interpreter_frames) {
  ListMemoryRequest request;
  request.mutable_filter()->set_pid(pid);
  request.set_with_sites(true);
  ASSIGN_OR_RETURN(const std::vector<ProcessMemory> rows,
                   read_pages(connection, kListMemory, request, 1));
  if (rows.empty()) {
    return absl::NotFoundError(
        fmt::format("process {} has not allocated GPU memory, as far as was seen; those that have: "
                    "gpuperfctl memory",
                    pid));
  }
  if (view.format != Format::kTable) {
    return render_message(rows.front(), view.format, view.shape, view.style);
  }
  return render_memory_process(rows.front(), interpreter_frames, view.style);
}

void declare_memory_show(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("show", "All that is known of one process's memory");
  const auto pid = std::make_shared<uint32_t>(0);
  command.add_option("PID", *pid, "Process id")
      ->required()
      ->check(make_whole_number_check(1, UINT32_MAX));
  const auto interpreter_frames = std::make_shared<bool>(false);
  add_interpreter_flag(command, [interpreter_frames] { *interpreter_frames = true; });
  command.callback([&app, &invocation, pid, interpreter_frames] {
    refuse_list_flags(app);
    invocation.run = [&invocation, pid, interpreter_frames] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_memory_of(connection, view, *pid, *interpreter_frames);
      });
    };
  });
}

void declare_list_flags(CLI::App& app, Options& options,
                        const std::shared_ptr<MemoryChoice>& choice) {
  add_process_flags(app, options);
  app.add_flag("--stacks", choice->stacks, "Also show which stacks hold the memory");
  app.add_flag("--leaks", choice->leaks, "Only stacks whose memory grows without end");
  app.add_flag("--ooms", choice->failures,
               "Allocations that failed for lack of memory, and who held it");
  add_interpreter_flag(app, [choice] { choice->interpreter_frames = true; });
  add_limit_flag(app, options);
  add_watch_flag(app, options);
}

}  // namespace

void declare_memory(CLI::App& app, Invocation& invocation) {
  const auto choice = std::make_shared<MemoryChoice>();
  declare_list_flags(app, invocation.options, choice);
  declare_list_flags(*app.add_subcommand("list", "Same as memory without a subcommand"),
                     invocation.options, choice);
  declare_memory_show(app, invocation);
  app.callback([&invocation, choice] {
    if (invocation.run) return;  // a subcommand's callback came first
    if (choice->stacks + choice->leaks + choice->failures > 1) {
      throw CLI::ValidationError("memory", "give one of --stacks, --leaks and --ooms");
    }
    invocation.run = [&invocation, choice] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        const Options& options = invocation.options;
        return choice->failures ? draw_failures(connection, view, options, *choice)
                                : draw_memory(connection, view, options, *choice);
      });
    };
  });
}

}  // namespace gpuperf::client
