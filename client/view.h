#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/command.h"
#include "client/connection.h"

namespace gpuperf::client {

// How the answer is to look this time.
struct View {
  Format format = Format::kTable;
  JsonShape shape = JsonShape::kIndented;
  TextStyle style;
};

using Draw = std::function<Result<std::string>(Connection&, const View&)>;

// Connects, draws and prints; with --watch again and again until interrupted: a terminal is redrawn
// in place, cut to its height; elsewhere tables and CSV follow each other with an empty line
// between, and JSON is one document per line.
Status run_view(const Invocation& invocation, const Draw& draw);

// The connection of a command that prints its answer itself. `interrupt` may be null.
Result<std::unique_ptr<Connection>> connect(const Invocation& invocation, Interrupt* interrupt);
// The same for what changes the daemon, which may take longer: it may be starting, or attaching
// probes.
Result<std::unique_ptr<Connection>> connect_to_change(const Invocation& invocation);

// The text as the whole screen of a terminal: in place of what was there, cut to its size.
std::string make_screen(const Output& output, const std::string& text);

// The first `rows` lines of a text; the last of them says how many are hidden. 0 = all.
std::string cut_to_height(const std::string& text, int rows);

}  // namespace gpuperf::client
