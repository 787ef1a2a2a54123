#include "daemon/web/secret.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/write_all.h"

namespace gpuperf {
namespace {

constexpr size_t kSecretBytes = 32;

std::optional<gid_t> find_group(const std::string& name) {
  std::vector<char> buffer(16 * 1024);
  group entry{};
  group* found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0) return {};
  if (found == nullptr) return {};
  return entry.gr_gid;
}

Status write_secret_file(const std::string& path, const std::string& group,
                         const std::string& secret) {
  // One that is left of a daemon that was killed; never opened, it may be a link.
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return errno_status(errno, "remove the old");
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_status(errno, "create");
  const std::optional<gid_t> gid = group.empty() ? std::nullopt : find_group(group);
  if (gid &&
      (fchown(file.get(), static_cast<uid_t>(-1), *gid) != 0 || fchmod(file.get(), 0640) != 0)) {
    return errno_status(errno, "give to group " + group);
  }
  return write_all(file.get(), secret + "\n");
}

}  // namespace

Result<std::string> make_secret() {
  std::array<unsigned char, kSecretBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return errno_status(errno, "get random bytes from the kernel");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size() || a.empty()) return false;
  volatile unsigned char difference = 0;  // volatile: the loop has no early end
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

Result<SecretFile> SecretFile::make(std::string path, const std::string& group) {
  ASSIGN_OR_RETURN(std::string secret, make_secret());
  if (const Status written = write_secret_file(path, group, secret); !written.ok()) {
    return Status(written.code(), path + ": " + std::string(written.message()));
  }
  return SecretFile(std::move(path), std::move(secret));
}

SecretFile::SecretFile(SecretFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), secret_(std::move(other.secret_)) {}

SecretFile::~SecretFile() {
  if (!path_.empty()) (void)unlink(path_.c_str());  // best effort: the next start removes it
}

}  // namespace gpuperf
