// Writes good messages of injected processes into a folder: what session_fuzz begins with.

#include <fstream>
#include <iostream>
#include <string>

#include "tests/unit/session/session_packets.h"

int main(int argc, char** argv) {
  using namespace gpuperf::session_packets;
  if (argc != 2) {
    std::cerr << "usage: session_fuzz_corpus FOLDER\n";
    return 2;
  }
  constexpr uint64_t kStartNs = 1'699'999'999'999'000'000;  // just before the fuzzer's clock
  int number = 0;
  const auto write = [&](const Packet& packet) {
    std::ofstream(std::string(argv[1]) + "/" + std::to_string(number++), std::ios::binary)
        << packet;
  };
  write(make_batch(make_all_records(kStartNs)));
  for (const Packet& record : make_all_records(kStartNs)) {
    write(make_batch({make_name(1, "k"), make_shape(1), make_place(1), record}));
    write(make_batch({record}));
  }
  write(make_message(GPUPERF_MESSAGE_STATUS, make_status()));
  write(make_message(GPUPERF_MESSAGE_HELLO, make_hello()));
  return 0;
}
