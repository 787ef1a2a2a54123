#include "daemon/base/pem_file.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>

namespace gpuperf {
namespace {

template <auto kFree>
struct Freed {
  template <typename Object>
  void operator()(Object* object) const {
    (void)kFree(object);
  }
};
using Text = std::unique_ptr<BIO, Freed<BIO_free>>;

Text open_text(const std::string& text) {
  return Text(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace

Result<std::string> read_pem_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) return errno_status(errno, path + ": read");
  if (text.find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(path + ": contains no PEM text (-----BEGIN …)");
  }
  return text;
}

bool is_key_of(const std::string& key_pem, const std::string& certificate_pem) {
  const Text key_text = open_text(key_pem);
  const Text certificate_text = open_text(certificate_pem);
  char no_password[] = "";  // else it would be asked for on the terminal
  const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> key(
      PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, no_password));
  const std::unique_ptr<X509, Freed<X509_free>> certificate(
      PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  return key != nullptr && certificate != nullptr &&
         X509_check_private_key(certificate.get(), key.get()) == 1;
}

}  // namespace gpuperf
