#pragma once

#include <string>

#include "client/command.h"
#include "client/connection.h"
#include "gpuperf/v1/observe.pb.h"

namespace gpuperf::client {

// --per-process, --per-thread, --lines, --by-capture-site, --interpreter-frames, --weight.
struct PathFlags {
  v1::PathOptions path;
  std::string weight;
};
void add_path_flags(CLI::App& app, PathFlags& flags);
// "gpu", "cpu", "off-cpu"; empty = what the capture has.
v1::CaptureWeight find_weight(const std::string& name);

// --file FILE.
void add_file_flag(CLI::App& app, std::string& file);
// Where no file is named, standard output has to be one or a pipe: before work is begun.
Status check_destination(const Invocation& invocation, const std::string& file);

// The form of a capture, into the file, or standard output where none is named.
Status fetch_capture(Connection& connection, const v1::FetchCaptureRequest& request,
                     const Output& output, const std::string& file);

}  // namespace gpuperf::client
