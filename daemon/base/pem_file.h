#pragma once

#include <string>

#include "daemon/base/result.h"

namespace gpuperf {

// The text of a file of certificates or a key. INVALID_ARGUMENT: it is not PEM.
Result<std::string> read_pem_file(const std::string& path);

// Whether both texts can be read and the private key is that of the first certificate.
bool is_key_of(const std::string& key_pem, const std::string& certificate_pem);

}  // namespace gpuperf
