#pragma once

#include <optional>
#include <string>

#include "daemon/export/http_message.h"
#include "daemon/web/secret.h"

namespace gpuperf {

// What the page's visitors must show: the secrets are in files, see SecretFile.
struct PageTokens {
  SecretFile read;    // of root and group gpuperf
  SecretFile change;  // of root alone
};

enum class Access { kRead, kChange };

struct Refusal {
  int status = 403;
  std::string message;
};

// Why a request is answered with nothing of the page. Only programs of this host reach it, whatever
// address the metrics listen on: the page speaks no TLS. And only under a name of this host: a name
// that somebody else owns may be pointed here, and a browser would then take the page for his.
std::optional<Refusal> check_visitor(const HttpRequest& request);

// Why a request may not have `wanted`. The token comes in the header Authorization, which no
// browser adds by itself: no other site can make one ask for anything.
std::optional<Refusal> check_token(const HttpRequest& request, const PageTokens& tokens,
                                   Access wanted);

}  // namespace gpuperf
