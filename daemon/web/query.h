#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "daemon/base/result.h"
#include "daemon/export/http_message.h"

namespace gpuperf {

// The parameters of a query as the JSON of a message: "filter.category=cuda&page.limit=20" ->
// {"filter":{"category":"cuda"},"page":{"limit":"20"}}, which protobuf reads numbers, enums and
// switches from, too. INVALID_ARGUMENT: a name that is empty or both a value and an object.
Result<std::string> make_request_json(const HttpParameters& parameters);

// A message from its JSON form; INVALID_ARGUMENT says what is wrong with it.
Status parse_json(const std::string& json, google::protobuf::Message& message);

}  // namespace gpuperf
