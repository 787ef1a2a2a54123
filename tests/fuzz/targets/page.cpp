// Any bytes as what the page asks (daemon/web/query.h): a query, and the JSON of a request. The
// first byte chooses the request.

#include "daemon/web/query.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

#include <array>
#include <memory>

#include "gpuperf/v1/control.pb.h"
#include "gpuperf/v1/observe.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {
namespace {

using google::protobuf::Message;

// What is asked by POST, and the lists with the most fields.
const std::array<const Message*, 5> kRequests = {
    &v1::ListSlowCallsRequest::default_instance(), &v1::ListFunctionsRequest::default_instance(),
    &v1::FetchCaptureRequest::default_instance(), &v1::SummariseCaptureRequest::default_instance(),
    &v1::StartCaptureRequest::default_instance()};

std::string check_json(const std::string& json, const Message& kind) {
  const std::unique_ptr<Message> request(kind.New()), again(kind.New());
  if (!parse_json(json, *request).ok()) return "";
  std::string written;
  if (!google::protobuf::util::MessageToJsonString(*request, &written).ok()) {
    return "a request that cannot be written";
  }
  if (!parse_json(written, *again).ok()) return "a request that cannot be read again";
  return again->SerializeAsString() == request->SerializeAsString() ? "" : "another request";
}

}  // namespace

std::string find_fault(std::string_view bytes) {
  // libprotobuf prints a line for each text that is wrong.
  static const auto logged = google::protobuf::SetLogHandler(nullptr);
  (void)logged;
  if (bytes.empty()) return "";
  const Message& kind = *kRequests[static_cast<uint8_t>(bytes.front()) % kRequests.size()];
  bytes.remove_prefix(1);
  const Result<std::string> json = make_request_json(parse_query(bytes));
  if (json.ok()) {
    google::protobuf::Struct object;
    if (!parse_json(*json, object).ok()) return "a query whose JSON cannot be read";
    const std::string fault = check_json(*json, kind);
    if (!fault.empty()) return fault;
  }
  return check_json(std::string(bytes), kind);
}

std::vector<std::string> make_seeds() {
  return {std::string(1, '\0') +
              "filter.function=cuda%22Memcpy*&filter.pid=71&page.limit=20&sort=start_unix_ns",
          "\1per_process=true&filter.since_unix_ns=18446744073709551615",
          "\1"
          R"({"filter": {"category": "cuda"}, "page": {"limit": 3}})",
          "\2"
          R"({"id": "7", "format": "flamegraph", "before_id": 6})",
          "\3"
          R"({"id": 7, "by": "CAPTURE_GROUPING_STACK"})",
          "\4"
          R"({"target": {"pid": 71}, "duration_ms": 1000, "stacks": true})"};
}

}  // namespace gpuperf::fuzz
