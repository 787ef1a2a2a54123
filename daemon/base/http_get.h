#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/base/listen_address.h"
#include "daemon/base/result.h"

namespace gpuperf {

// What is read from an HTTP server, without TLS.
struct HttpUrl {
  HostPort address;
  std::string path = "/";  // with its query
  bool operator==(const HttpUrl&) const = default;
};

// Reads "http://127.0.0.1:8000/metrics" and "http://[::1]:8000/metrics"; the host is an address or
// "localhost", because looking up names may take longer than anyone waits.
Result<HttpUrl> parse_http_url(std::string_view text);

// The body that a GET gets, by HTTP/1.0, so that it comes in one piece. DEADLINE_EXCEEDED: it was
// not complete within `timeout`, however it arrived; OUT_OF_RANGE: it has more than `max_bytes`,
// headers included; UNAVAILABLE: no answer, half of one, or none of status 200.
Result<std::string> get_over_http(const HttpUrl& url, std::chrono::milliseconds timeout,
                                  size_t max_bytes);

}  // namespace gpuperf
