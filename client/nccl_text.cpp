#include "client/nccl_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "client/stack_text.h"

namespace gpuperf::client {
namespace {

constexpr size_t kShortId = 8;
constexpr int kShownFrames = 6;

std::string describe_id(const v1::NcclCommunicator& communicator) {
  return communicator.id().substr(0, kShortId);
}

// "2 of 16": here, of all.
std::string describe_ranks(const v1::NcclCommunicator& communicator) {
  const int local = communicator.local_ranks_size();
  if (communicator.ranks() == 0) return fmt::format("{} of ?", local);
  return fmt::format("{} of {}{}", local, communicator.ranks(),
                     communicator.ranks_inferred() ? "?" : "");
}

std::string describe_rank(const v1::NcclRank& rank) {
  if (!rank.has_rank()) return "";
  return fmt::format("{}{}", rank.rank(), rank.rank_inferred() ? "?" : "");
}

std::string format_bandwidth(double bytes_per_second) {
  return bytes_per_second == 0 ? "" : fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

std::string render_stacks(const v1::NcclCommunicator& communicator) {
  std::string text;
  for (const v1::NcclStack& stack : communicator.stacks()) {
    text += fmt::format("{}{} last called from: {}\n", kIndent,
                        make_printable(fmt::format("{}", fmt::join(stack.ranks(), ", "))),
                        describe_innermost_frames(stack.frames(), kShownFrames));
  }
  return text;
}

std::string render_verdicts(const std::vector<v1::NcclCommunicator>& communicators,
                            const TextStyle& style) {
  std::string text;
  for (const v1::NcclCommunicator& communicator : communicators) {
    if (communicator.verdict().empty()) continue;
    const bool is_stuck = communicator.state() == v1::NCCL_STATE_STUCK;
    text += paint(make_printable(communicator.verdict()), is_stuck ? Tone::kBad : Tone::kWarning,
                  style) +
            fmt::format(" Communicator {}.\n", describe_id(communicator));
    for (const std::string& line : communicator.evidence()) {
      text += fmt::format("{}{}\n", kIndent, make_printable(line));
    }
    text += render_stacks(communicator);
  }
  if (!text.empty()) return text + "\n";
  const bool is_comparable = std::ranges::any_of(communicators, [](const auto& communicator) {
    return communicator.local_ranks_size() > 1 && communicator.in_step();
  });
  return is_comparable
             ? "No rank on this host is waited for.\n\n"
             : "No communicator has several ranks on this host whose calls can be compared: which "
               "rank is late cannot be told here. Across hosts: "
               "docs/runbooks/GpuperfNcclRankLate.md\n\n";
}

std::string render_sizes(const std::vector<v1::NcclCommunicator>& communicators,
                         const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"COMM"},
               {"RANKS"},
               {"OPERATION"},
               {"SIZE FROM", kRight},
               {"COUNT", kRight},
               {"BYTES", kRight},
               {"TIMED", kRight},
               {"AVG GPU", kRight},
               {"BUS BANDWIDTH", kRight}});
  for (const v1::NcclCommunicator& communicator : communicators) {
    for (const v1::NcclSize& size : communicator.sizes()) {
      table.add_row({{describe_id(communicator)},
                     {describe_ranks(communicator)},
                     {size.operation()},
                     {format_bytes(size.size_bytes())},
                     {format_count(size.count())},
                     {format_bytes(size.bytes())},
                     {format_count(size.timed())},
                     {size.timed() == 0 ? "" : format_duration(size.gpu_ns() / size.timed())},
                     {format_bandwidth(size.bus_bandwidth())}});
    }
  }
  return table.take_text(style);
}

std::string render_ranks(const std::vector<v1::NcclCommunicator>& communicators,
                         const TextStyle& style) {
  constexpr auto kRight = Column::Align::kRight;
  Table table({{"COMM"},
               {"RANK", kRight},
               {"PID", kRight},
               {.title = "PROCESS", .shrink_to = 8},
               {"COLLECTIVES", kRight},
               {"WAITED", kRight},
               {"WAITED FOR", kRight},
               {.title = "BY", .optional = true},
               {.title = "LAST CALL", .shrink_to = 12},
               {"AGO", kRight},
               {.title = "NOW", .optional = true}});
  for (const v1::NcclCommunicator& communicator : communicators) {
    for (const v1::NcclRank& rank : communicator.local_ranks()) {
      const bool is_late = rank.pid() == communicator.late_pid();
      const bool by_gpu = rank.gpu_waited_ns() + rank.gpu_caused_ns() > 0;
      const bool is_compared = by_gpu || rank.host_waited_ns() + rank.host_caused_ns() > 0;
      table.add_row({{describe_id(communicator)},
                     {describe_rank(rank), is_late ? Tone::kWarning : Tone::kPlain},
                     {std::to_string(rank.pid())},
                     {rank.comm()},
                     {format_count(rank.collectives())},
                     {format_duration(by_gpu ? rank.gpu_waited_ns() : rank.host_waited_ns())},
                     {format_duration(by_gpu ? rank.gpu_caused_ns() : rank.host_caused_ns())},
                     {is_compared ? (by_gpu ? "kernels" : "calls") : ""},
                     {rank.last_call()},
                     {rank.last_call().empty() ? "" : format_duration(rank.last_call_age_ns())},
                     {rank.activity() == "unknown" ? "" : rank.activity()}});
    }
  }
  return table.take_text(style);
}

}  // namespace

std::string render_nccl(const std::vector<v1::NcclCommunicator>& communicators,
                        const TextStyle& style) {
  if (communicators.empty()) return "";
  return render_verdicts(communicators, style) + render_sizes(communicators, style) + "\n" +
         render_ranks(communicators, style);
}

}  // namespace gpuperf::client
