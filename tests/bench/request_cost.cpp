// What seeing requests adds to a write of 14 bytes to a TCP connection of this host and the read of
// them: without gpuperf; `others`, in a session that is not followed; `followed`, where each write
// is reported as a part of a response, and each read is checked.
//
// usage: request_cost [ROUNDS]     root; a round takes two seconds
// All in one process, on one CPU, in turns; the programs are loaded anew in each round. A figure is
// the median of the rounds, what is added the median of the rounds' own differences, with the
// middle half of them.

#include <bpf/libbpf.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/probe/attach/programs.h"
#include "tests/bench/timing.h"
#include "tests/tcp_pair.h"

namespace gpuperf::bench {
namespace {

constexpr int kWrites = 1'000;  // of a slice: their records fit into the ring
constexpr int kSlices = 50;     // of each way in a round
constexpr std::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
constexpr std::string_view kHead = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
constexpr std::string_view kPart = "9\r\ndata: a\n\n\r\n";

// Both ends of a connection. What fails ends the benchmark.
class Connection {
 public:
  Connection() {
    if (server_.get() < 0) std::abort();
    const int on = 1;
    (void)setsockopt(server_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pass(client_, server_, kRequest);
    pass(server_, client_, kHead);
  }
  // Nanoseconds per write and its read.
  double measure() {
    const double start_ns = read_clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < kWrites; ++i) pass(server_, client_, kPart);
    return (read_clock_ns(CLOCK_MONOTONIC) - start_ns) / kWrites;
  }

 private:
  static void pass(const Fd& from, const Fd& to, std::string_view text) {
    char received[256];
    if (write(from.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        read(to.get(), received, sizeof received) != static_cast<ssize_t>(text.size())) {
      std::abort();
    }
  }

  TcpPair pair_ = make_tcp_pair();
  const Fd& client_ = pair_.client;
  const Fd& server_ = pair_.server;
};

using Drain = std::unique_ptr<ring_buffer, decltype(&ring_buffer__free)>;

Drain make_drain(const Programs& programs, uint64_t& parts) {
  const auto count = [](void* context, void*, size_t) {
    ++*static_cast<uint64_t*>(context);
    return 0;
  };
  return Drain(ring_buffer__new(programs.map_fd("report_ring"), count, &parts, nullptr),
               &ring_buffer__free);
}

// One round's figure of each way.
Status run_round(RoundFigures& samples) {
  RoundFigures slices;
  Connection bare;
  for (int i = 0; i < kSlices; ++i) slices["bare"].push_back(bare.measure());
  ASSIGN_OR_RETURN(
      const auto programs,
      Programs::load(Mechanism::kPerf, {.functions = 2, .cells = 16, .follow_requests = true}));
  const auto session = static_cast<uint32_t>(getsid(0));
  Connection other;  // before its session is followed
  if (!programs->set_request_session(session, true)) return absl::InternalError("no such map");
  Connection followed;
  uint64_t parts = 0;
  const Drain drain = make_drain(*programs, parts);
  if (drain == nullptr) return absl::InternalError("the ring cannot be read");
  (void)ring_buffer__consume(drain.get());
  parts = 0;
  for (int i = 0; i < kSlices; ++i) {
    (void)programs->set_request_session(session, false);
    slices["others"].push_back(other.measure());
    (void)programs->set_request_session(session, true);
    slices["followed"].push_back(followed.measure());
    (void)ring_buffer__consume(drain.get());
  }
  if (parts != uint64_t{kSlices} * kWrites) {
    return absl::InternalError(std::to_string(parts) + " parts were told, not each");
  }
  for (const auto& [way, values] : slices) samples[way].push_back(get_percentile(values, 0.5));
  return absl::OkStatus();
}

int run(int rounds) {
  pin_here();
  const auto measured = run_rounds(rounds, run_round);
  if (!measured) return 1;
  const RoundFigures& samples = *measured;
  const std::vector<double>& bare_ns = samples.at("bare");
  for (const auto& [way, values] : samples) {
    std::vector<double> more_ns;
    for (size_t i = 0; i < values.size(); ++i) more_ns.push_back(values[i] - bare_ns[i]);
    std::printf("%-10s %6.0f ns, %5.0f ns more (%.0f to %.0f)\n", way.c_str(),
                get_percentile(values, 0.5), get_percentile(more_ns, 0.5),
                get_percentile(more_ns, 0.25), get_percentile(more_ns, 0.75));
  }
  return 0;
}

}  // namespace
}  // namespace gpuperf::bench

int main(int count, char** words) {
  return gpuperf::bench::run(count > 1 ? std::atoi(words[1]) : 20);
}
