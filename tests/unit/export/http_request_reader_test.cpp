#include "daemon/export/http_request_reader.h"

#include <string>
#include <vector>

#include "tests/unit/export/http_reading.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

using State = HttpRequestReader::State;
using testing::find_http_fault;
using testing::HttpReading;
using testing::read_http;

constexpr size_t kMax = HttpRequestReader::kMaxBytes;
constexpr char kChunked[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

HttpReading read_whole(const std::string& bytes) {
  EXPECT_EQ(find_http_fault(bytes), "") << bytes.substr(0, 200);
  return read_http(bytes, bytes.size());
}

TEST(HttpRequestReaderTest, ReadsARequestWithoutABody) {
  const HttpReading reading = read_whole(
      "GET /a%20b/%2e%zz+?c=%20d&e HTTP/1.1\r\nHost: localhost:1\r\nACCEPT:\t text/html \r\n\r\n");

  EXPECT_EQ(reading.state, State::kComplete);
  EXPECT_EQ(reading.request.method, "GET");
  EXPECT_EQ(reading.request.path, "/a b/.%zz+");
  EXPECT_EQ(reading.request.query, "c=%20d&e");
  EXPECT_EQ(find_header(reading.request, "host"), "localhost:1");
  EXPECT_EQ(find_header(reading.request, "Accept"), "text/html");
  EXPECT_EQ(find_header(reading.request, "Accept-Encoding"), "");
  EXPECT_EQ(reading.request.body, "");
}

TEST(HttpRequestReaderTest, ReadsABodyOfALength) {
  const HttpReading reading =
      read_whole("POST /a HTTP/1.0\r\ncontent-length: 5\r\n\r\n\r\nabc, and more");

  EXPECT_EQ(reading.state, State::kComplete);
  EXPECT_EQ(reading.request.body, "\r\nabc");
}

TEST(HttpRequestReaderTest, ReadsABodyInChunks) {
  const HttpReading reading = read_whole(std::string(kChunked) +
                                         "5;name=value\r\nhello\r\n00A \r\n, world 10\r\n0\r\n"
                                         "Trailer: ignored\r\n\r\n");

  EXPECT_EQ(reading.state, State::kComplete);
  EXPECT_EQ(reading.request.body, "hello, world 10");
}

TEST(HttpRequestReaderTest, WaitsForWhatIsMissing) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\na"), std::string(kChunked),
        kChunked + std::string("2\r\nab"), kChunked + std::string("2\r\nab\r\n0\r\n")}) {
    EXPECT_EQ(read_whole(bytes).state, State::kIncomplete) << bytes;
  }
}

TEST(HttpRequestReaderTest, RefusesWhatCouldMeanTwoThings) {
  const struct {
    std::string head;
    int status;
  } rows[] = {
      {"\r\n", 400},
      {"GET\r\n", 400},
      {"GET /\r\n", 400},
      {"GET / HTTP/2.0\r\n", 400},
      {"GET  / HTTP/1.1\r\n", 400},
      {"GET /a b HTTP/1.1\r\n", 400},
      {"GET /a\tb HTTP/1.1\r\n", 400},
      {"G@T / HTTP/1.1\r\n", 400},
      {"GET / HTTP/1.1\r\nHost\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n", 400},
      {"GET / HTTP/1.1\r\n: a\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\nOther: b\r\n", 400},
      {std::string("GET / HTTP/1.1\r\nHost: a\0b\r\n", 27), 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: +1\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 0x1\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length:\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(read_whole(row.head + "\r\n").refusal_status, row.status) << row.head;
  }
}

TEST(HttpRequestReaderTest, RefusesChunksThatAreNone) {
  for (const char* chunks :
       {"\r\n", "g\r\n", "-1\r\n", "0x1\r\n", "1\r\nab\r\n", "1\r\na\n0\r\n"}) {
    EXPECT_EQ(read_whole(std::string(kChunked) + chunks).refusal_status, 400) << chunks;
  }
}

TEST(HttpRequestReaderTest, TakesAsManyBytesAsItsBoundAndNoMore) {
  const std::string begin = "GET / HTTP/1.1\r\na:";
  const auto make = [&](size_t bytes) {
    return begin + std::string(bytes - begin.size() - 4, 'b') + "\r\n\r\n";
  };

  EXPECT_EQ(read_whole(make(kMax)).state, State::kComplete);
  EXPECT_EQ(read_whole(make(kMax + 1)).refusal_status, 431);
  EXPECT_EQ(read_whole(std::string(kMax + 1, 'a')).refusal_status, 431);
}

TEST(HttpRequestReaderTest, CountsTheBodyWithTheHeaders) {
  const auto make = [](size_t body_bytes) {
    return "POST / HTTP/1.1\r\nContent-Length: " + std::to_string(body_bytes) + "\r\n\r\n";
  };
  const size_t most_bytes = kMax - make(kMax - 100).size();

  const std::string most = make(most_bytes) + std::string(most_bytes, 'a');
  EXPECT_EQ(read_whole(most).request.body.size(), most_bytes);
  EXPECT_EQ(read_whole(make(most_bytes + 1)).refusal_status, 413) << "before the body comes";
  EXPECT_EQ(read_whole(make(SIZE_MAX)).refusal_status, 413);
  EXPECT_EQ(
      read_whole("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n").refusal_status,
      413);
}

TEST(HttpRequestReaderTest, BoundsChunksAndWhatFramesThem) {
  std::string small = kChunked;
  while (small.size() <= kMax) small += "1\r\na\r\n";

  EXPECT_EQ(read_whole(small).refusal_status, 413);
  EXPECT_EQ(read_whole(std::string(kChunked) + "10000\r\n").refusal_status, 413);
  EXPECT_EQ(read_whole(std::string(kChunked) + "ffffffffffffffff\r\n").refusal_status, 413);
  EXPECT_EQ(read_whole(std::string(kChunked) + "fffffffffffffffff\r\n").refusal_status, 413);
  EXPECT_EQ(read_whole(kChunked + std::string(kMax, '0')).refusal_status, 413);
  EXPECT_EQ(read_whole(std::string(kChunked) + "0\r\n" + std::string(kMax, 'a')).refusal_status,
            413);
}

TEST(HttpRequestReaderTest, TellsWhatIsBehindTheEnd) {
  HttpRequestReader exact, more;

  EXPECT_EQ(exact.take("GET / HTTP/1.1\r\n\r\n"), State::kComplete);
  EXPECT_EQ(more.take("GET / HTTP/1.1\r\n\r\nGET"), State::kComplete);

  EXPECT_FALSE(exact.has_surplus());
  EXPECT_TRUE(more.has_surplus());
}

TEST(HttpRequestReaderTest, SaysOnceThatTheClientWaits) {
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n";
  HttpRequestReader waits, sends;

  EXPECT_EQ(waits.take(head), State::kIncomplete);
  EXPECT_EQ(sends.take(head + "a"), State::kComplete);

  EXPECT_TRUE(waits.take_continue_wanted());
  EXPECT_FALSE(waits.take_continue_wanted());
}

TEST(HttpMessageTest, ReadsQueries) {
  EXPECT_THAT(parse_query("a=1&b=x%26y+z&c&&=d&a=2"),
              ElementsAre(Pair("a", "1"), Pair("b", "x&y z"), Pair("c", ""), Pair("", "d"),
                          Pair("a", "2")));
}

}  // namespace
}  // namespace gpuperf
