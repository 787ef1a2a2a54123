// gpuperfctl steps [list|show|operators|experts]: what inference and training loops do, step by
// step.

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "client/list_view.h"
#include "client/step_text.h"

namespace gpuperf::client {
namespace {

constexpr ListCall<v1::ListStepProcessesRequest, v1::ListStepProcessesResponse, v1::StepProcess>
    kListStepProcesses = {.rows = &v1::ListStepProcessesResponse::mutable_processes,
                          .action = "list processes with steps",
                          .page_rows = 1000};

constexpr ListCall<v1::ListStepsRequest, v1::ListStepsResponse, v1::Step> kListSteps = {
    .rows = &v1::ListStepsResponse::mutable_steps, .action = "list steps", .page_rows = 1000};

constexpr ListCall<v1::ListStepOperatorsRequest, v1::ListStepOperatorsResponse, v1::StepOperator>
    kListOperators = {.rows = &v1::ListStepOperatorsResponse::mutable_operators,
                      .action = "list operators of steps",
                      .page_rows = 1000};

constexpr ListCall<v1::ListStepExpertsRequest, v1::ListStepExpertsResponse, v1::ExpertLayer>
    kListExperts = {.rows = &v1::ListStepExpertsResponse::mutable_layers,
                    .action = "list experts of steps",
                    .page_rows = 1000};

Result<std::string> draw_step_processes(Connection& connection, const View& view,
                                        const Options& options) {
  return draw_list(connection, view, options, kListStepProcesses, v1::ListStepProcessesRequest(),
                   &render_step_processes,
                   "\nNo process with steps matches. Without filters: gpuperfctl steps\n",
                   "\nNo process has made a step. A step is a call of a function with a role: "
                   "docs/steps.md\n");
}

Result<std::string> draw_steps(Connection& connection, const View& view, const Options& options,
                               bool slow_only) {
  v1::ListStepsRequest request;
  request.set_slow_only(slow_only);
  return draw_list(connection, view, options, kListSteps, request, &render_steps,
                   "\nNo step matches. Without filters: gpuperfctl steps list\n",
                   slow_only ? "\nNo slow step yet. All: gpuperfctl steps list\n"
                             : "\nNo step yet. A step is a call of a function with a role: "
                               "docs/steps.md\n");
}

Result<std::string> draw_operators(Connection& connection, const View& view,
                                   const Options& options) {
  return draw_list(connection, view, options, kListOperators, v1::ListStepOperatorsRequest(),
                   &render_step_operators,
                   "\nNo operator matches. Without filters: gpuperfctl steps operators\n",
                   "\nNo operator yet. They are known of inference on ggml's CPU backend, such as "
                   "llama.cpp; why not of this one: gpuperfctl probes --function ggml_operator\n");
}

Result<std::string> draw_experts(Connection& connection, const View& view, const Options& options) {
  return draw_list(connection, view, options, kListExperts, v1::ListStepExpertsRequest(),
                   &render_step_experts,
                   "\nNo layer with experts matches. Without filters: gpuperfctl steps experts\n",
                   "\nNo layer with experts yet. They are known of models that run on ggml's CPU "
                   "backend, such as llama.cpp: gpuperfctl steps operators\n");
}

Result<std::string> draw_one_step(Connection& connection, const View& view, uint64_t id) {
  v1::GetStepRequest request;
  request.set_id(id);
  v1::GetStepResponse response;
  RETURN_IF_ERROR(connection.call(fmt::format("show step {}", id), request, &response));
  if (view.format == Format::kTable) {
    return explain_step(response, read_wall_clock_ns(), view.style);
  }
  return render_message(response, view.format, view.shape, view.style);
}

void declare_steps_list(CLI::App& steps, Invocation& invocation) {
  Options& options = invocation.options;
  CLI::App& app = *steps.add_subcommand("list", "List the steps that were kept, newest first");
  const auto slow_only = std::make_shared<bool>(false);
  app.add_flag("--slow", *slow_only, "Only slow steps, longest first");
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_time_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*v1::Step::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.callback([&steps, &invocation, slow_only] {
    refuse_list_flags(steps);
    invocation.run = [&invocation, slow_only]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*v1::Step::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_steps(connection, view, invocation.options, *slow_only);
      });
    };
  });
}

// A list without options of its own.
using Draw = Result<std::string> (*)(Connection&, const View&, const Options&);

void declare_steps_table(CLI::App& steps, Invocation& invocation, const std::string& name,
                         const std::string& help, const google::protobuf::Descriptor& row,
                         Draw draw) {
  Options& options = invocation.options;
  CLI::App& app = *steps.add_subcommand(name, help);
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(row));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  app.callback([&steps, &invocation, &row, draw] {
    refuse_list_flags(steps);
    invocation.run = [&invocation, &row, draw]() -> Status {
      RETURN_IF_ERROR(check_sort_field(row, invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw(connection, view, invocation.options);
      });
    };
  });
}

void declare_steps_show(CLI::App& steps, Invocation& invocation) {
  CLI::App& app = *steps.add_subcommand("show", "Explain one step");
  const auto id = std::make_shared<uint64_t>(0);
  app.add_option("ID", *id, "Id from steps list")
      ->required()
      ->check(make_whole_number_check(1, UINT64_MAX));
  app.callback([&steps, &invocation, id] {
    refuse_list_flags(steps);
    invocation.run = [&invocation, id] {
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_one_step(connection, view, *id);
      });
    };
  });
}

}  // namespace

void declare_steps(CLI::App& app, Invocation& invocation) {
  Options& options = invocation.options;
  add_process_flags(app, options);
  add_function_flags(app, options);
  add_sort_flag(app, options, list_sort_fields(*v1::StepProcess::descriptor()));
  add_limit_flag(app, options);
  add_watch_flag(app, options);
  declare_steps_list(app, invocation);
  declare_steps_show(app, invocation);
  declare_steps_table(app, invocation, "operators",
                      "Show which operators steps spend their time on",
                      *v1::StepOperator::descriptor(), &draw_operators);
  declare_steps_table(app, invocation, "experts", "Show which experts the tokens of steps go to",
                      *v1::ExpertLayer::descriptor(), &draw_experts);
  app.callback([&invocation] {
    if (invocation.run) return;  // a subcommand's callback came first
    invocation.run = [&invocation]() -> Status {
      RETURN_IF_ERROR(check_sort_field(*v1::StepProcess::descriptor(), invocation.options.sort));
      return run_view(invocation, [&](Connection& connection, const View& view) {
        return draw_step_processes(connection, view, invocation.options);
      });
    };
  });
}

}  // namespace gpuperf::client
