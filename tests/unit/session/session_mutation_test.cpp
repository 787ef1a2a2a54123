// Damaged messages by the hundred thousand: the short form of tests/fuzz/session_fuzz.cpp. More
// with GPUPERF_LONG_TESTS=1, another seed with GPUPERF_SEED.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/unit/base/fake_clock.h"
#include "tests/unit/resolve/mutation.h"
#include "tests/unit/session/session_decoding.h"
#include "tests/unit/session/session_packets.h"

namespace gpuperf {
namespace {

using namespace session_packets;

uint32_t get_seed() {
  const char* text = std::getenv("GPUPERF_SEED");
  return text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : std::random_device()();
}

TEST(SessionMutationTest, LeavesOnlyWhatMakesSense) {
  const uint32_t seed = get_seed();
  std::cout << "seed " << seed << "\n";
  SCOPED_TRACE("GPUPERF_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  FakeClock clock{400'000'000'000'000, 1'700'000'000'000'000'000};
  const auto start_ns = static_cast<uint64_t>(clock.unix_ns() - 5'000);
  const Packet samples[] = {make_batch(make_all_records(start_ns)),
                            make_message(GPUPERF_MESSAGE_STATUS, make_status()),
                            make_message(GPUPERF_MESSAGE_HELLO, make_hello())};
  const uint32_t count = std::getenv("GPUPERF_LONG_TESTS") ? 1'000'000 : 100'000;
  uint32_t accepted = 0;

  for (uint32_t i = 0; i < count && !HasFailure(); ++i) {
    const Packet& sample = samples[i % 4 == 3 ? 1 + random() % 2 : 0];
    const SessionDecoding decoding = decode_any(mutate(sample, random), clock);
    accepted += decoding.is_accepted;
    EXPECT_EQ(decoding.fault, "");
  }

  EXPECT_GT(accepted, count / 100);  // damage was small enough to reach all of the decoder
  EXPECT_LT(accepted, count);
}

}  // namespace
}  // namespace gpuperf
