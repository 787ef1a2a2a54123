// Any bytes as what a client of the HTTP port sends, and the promises of
// daemon/export/http_request_reader.h; its query, as the page's server reads it.

#include "daemon/export/http_message.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/export/http_reading.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  (void)parse_query(bytes);
  return testing::find_http_fault(bytes);
}

}  // namespace gpuperf::fuzz
