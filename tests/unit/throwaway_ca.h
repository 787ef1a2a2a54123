#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/unit/files.h"

namespace gpuperf {

// An authority of a test's own, with a certificate for 127.0.0.1 that servers and clients can show.
// Made by the openssl program; about 20 ms.
class ThrowawayCa {
 public:
  ThrowawayCa() {
    const std::string make_key = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes ";
    run(make_key + "-x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
    run(make_key +
        "-subj /CN=peer -addext subjectAltName=IP:127.0.0.1 -keyout peer.key "
        "-out peer.csr");
    run("openssl x509 -req -in peer.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
        "-copy_extensions copy -out peer.pem");
  }

  std::string ca_file() const { return folder_ / "ca.pem"; }
  std::string cert_file() const { return folder_ / "peer.pem"; }
  std::string key_file() const { return folder_ / "peer.key"; }

 private:
  void run(const std::string& command) {
    const std::string quiet = "cd " + folder_.path().string() + " && " + command + " 2>>log";
    if (std::system(quiet.c_str()) != 0) throw std::runtime_error(read_file(folder_ / "log"));
  }

  TempFolder folder_;
};

}  // namespace gpuperf
