#include "client/byte_rates.h"

#include <gtest/gtest.h>

#include "tests/unit/client/example_calls.h"

namespace gpuperf::client {
namespace {

v1::FunctionStats make_row(const std::string& function, uint64_t bytes, uint32_t pid = 0) {
  v1::FunctionStats row;
  row.set_category("cuda");
  row.set_function(function);
  row.set_pid(pid);
  row.set_bytes(bytes);
  return row;
}

TEST(ByteRatesTest, DividesTheDifferenceByTheTimeBetween) {
  ByteRates rates;
  rates.update(10 * kSecondNs, {make_row("a", 1'000), make_row("b", 7)});
  rates.update(12 * kSecondNs, {make_row("a", 5'000), make_row("b", 7)});

  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), 2'000);
  EXPECT_EQ(rates.find_bytes_per_second(make_row("b", 0)), 0);
}

TEST(ByteRatesTest, HasNoneAfterTheFirstAnswer) {
  ByteRates rates;
  rates.update(10 * kSecondNs, {make_row("a", 1'000)});

  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), std::nullopt);
}

TEST(ByteRatesTest, StaysWhileTheDaemonShowsTheSameMoment) {
  ByteRates rates;
  rates.update(10 * kSecondNs, {make_row("a", 1'000)});
  rates.update(11 * kSecondNs, {make_row("a", 3'000)});
  rates.update(11 * kSecondNs, {make_row("a", 3'000)});
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), 2'000);

  rates.update(15 * kSecondNs, {make_row("a", 3'400)});
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), 100);
}

TEST(ByteRatesTest, KeepsProcessesApart) {
  ByteRates rates;
  rates.update(1 * kSecondNs, {make_row("a", 10, 1), make_row("a", 20, 2)});
  rates.update(2 * kSecondNs, {make_row("a", 15, 1), make_row("a", 29, 2), make_row("a", 9, 3)});

  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0, 1)), 5);
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0, 2)), 9);
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0, 3)), std::nullopt);
}

TEST(ByteRatesTest, HasNoneWhereTheDaemonBeganAnew) {
  ByteRates rates;
  rates.update(10 * kSecondNs, {make_row("a", 1'000)});
  rates.update(11 * kSecondNs, {make_row("a", 900)});
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), std::nullopt);

  rates.update(1 * kSecondNs, {make_row("a", 950)});  // after a restart of the host
  EXPECT_EQ(rates.find_bytes_per_second(make_row("a", 0)), std::nullopt);
}

}  // namespace
}  // namespace gpuperf::client
