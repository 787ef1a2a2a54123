#pragma once

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace gpuperf {

// 256 random bits as 64 hexadecimal digits, from the kernel.
Result<std::string> make_secret();

// Whether both are the same, in a time that does not tell how much of them is.
bool is_same_secret(std::string_view a, std::string_view b);

// A secret of this run of the daemon, in a file that only those can read who may use it.
//
// Owns the file, which goes with it. Thread: made and destroyed on one, matches on any.
class SecretFile {
 public:
  // Makes the file anew, 0600; where `group` is given and exists, 0640 and the group's. The error
  // names the file and the cause.
  static Result<SecretFile> make(std::string path, const std::string& group);
  ~SecretFile();
  SecretFile(SecretFile&& other) noexcept;
  SecretFile& operator=(SecretFile&&) = delete;
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  bool matches(std::string_view given) const { return is_same_secret(secret_, given); }
  const std::string& path() const { return path_; }

 private:
  SecretFile(std::string path, std::string secret)
      : path_(std::move(path)), secret_(std::move(secret)) {}

  std::string path_;  // empty = moved from
  std::string secret_;
};

}  // namespace gpuperf
