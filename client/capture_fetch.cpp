#include "client/capture_fetch.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <functional>
#include <optional>

#include "client/capture_wait.h"
#include "client/output_file.h"
#include "client/text.h"

namespace gpuperf::client {
namespace {

using Write = std::function<Status(std::string_view)>;

Status read_stream(Connection& connection, const v1::FetchCaptureRequest& request,
                   const Write& write) {
  Progress progress;
  progress.show(fmt::format("capture {}: preparing", request.id()));
  Status written = absl::OkStatus();
  uint64_t total_bytes = 0;
  uint64_t got_bytes = 0;
  const auto on_piece = [&](const v1::FetchCaptureResponse& piece) {
    if (piece.total_bytes() > 0) total_bytes = piece.total_bytes();
    got_bytes += piece.data().size();
    progress.show(fmt::format("capture {}: {} of {}", request.id(), format_bytes(got_bytes),
                              format_bytes(total_bytes)));
    written = write(piece.data());
    return written.ok();
  };
  RETURN_IF_ERROR(
      connection.fetch_capture(fmt::format("fetch capture {}", request.id()), request, on_piece));
  RETURN_IF_ERROR(written);
  if (got_bytes == total_bytes) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("cannot fetch capture {}: received {} of {} bytes; try again", request.id(),
                  got_bytes, total_bytes));
}

}  // namespace

void add_path_flags(CLI::App& app, PathFlags& flags) {
  app.add_option("--weight", flags.weight,
                 "Which time to sum: on the GPU, on the CPU or off the CPU; default: gpu, or cpu "
                 "if there was no GPU work")
      ->check(CLI::IsMember({"gpu", "cpu", "off-cpu"}).description(""))
      ->type_name("gpu|cpu|off-cpu");
  app.add_flag_callback(
      "--per-process", [&flags] { flags.path.set_per_process(true); },
      "Separate stacks by process: \"comm (pid)\" is the first frame");
  app.add_flag_callback(
      "--per-thread", [&flags] { flags.path.set_per_thread(true); },
      "Separate stacks by thread: \"comm (tid)\" follows");
  app.add_flag_callback(
      "--lines", [&flags] { flags.path.set_lines(true); }, "Show source lines in frames");
  app.add_flag_callback(
      "--by-capture-site", [&flags] { flags.path.set_by_capture_site(true); },
      "Attribute CUDA graph nodes to their capture site, not to the launch of the graph");
  add_interpreter_flag(app, [&flags] { flags.path.set_interpreter_frames(true); });
}

v1::CaptureWeight find_weight(const std::string& name) {
  if (name.empty()) return v1::CAPTURE_WEIGHT_UNSPECIFIED;
  if (name == "cpu") return v1::CAPTURE_WEIGHT_CPU_TIME;
  return name == "off-cpu" ? v1::CAPTURE_WEIGHT_OFF_CPU_TIME : v1::CAPTURE_WEIGHT_GPU_TIME;
}

void add_file_flag(CLI::App& app, std::string& file) {
  app.add_option("--file", file, "File to write; default: standard output, if it is not a terminal")
      ->type_name("FILE")
      ->check(make_text_check());
}

Status check_destination(const Invocation& invocation, const std::string& file) {
  if (!file.empty()) return check_writable(file);
  if (!invocation.output.is_terminal()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "standard output is a terminal: write to a file with --file FILE, or redirect it with > or "
      "|");
}

Status fetch_capture(Connection& connection, const v1::FetchCaptureRequest& request,
                     const Output& output, const std::string& file) {
  if (file.empty()) {
    return read_stream(connection, request,
                       [&](std::string_view bytes) { return output.write(bytes); });
  }
  ASSIGN_OR_RETURN(OutputFile written, OutputFile::make(file));
  RETURN_IF_ERROR(read_stream(connection, request,
                              [&](std::string_view bytes) { return written.write(bytes); }));
  return written.commit();
}

}  // namespace gpuperf::client
