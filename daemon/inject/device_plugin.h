#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/base/mutex.h"
#include "daemon/base/result.h"
#include "daemon/base/unix_socket.h"
#include "daemon/inject/container_edits.h"
#include "daemon/inject/plugin_service.h"

namespace gpuperf {

// Offers the resource gpuperf.dev/inject to the node's kubelet, by its device plugin interface.
//
// Thread: one, but for cancel(). Owns a gRPC server with its socket in the kubelet's folder, which
// it removes at its end. A kubelet that starts removes the sockets in its folder and forgets its
// plugins: both are seen at the next update(), and everything begins anew. A kubelet that refuses
// is asked again after `first_retry`, twice as long each time up to `max_retry`.
class DevicePlugin {
 public:
  struct Options {
    std::string folder;  // has kubelet.sock
    std::chrono::milliseconds first_retry{1'000};
    std::chrono::milliseconds max_retry{60'000};
    std::chrono::milliseconds patience{5'000};  // with a kubelet that does not answer
  };

  DevicePlugin(Options options, const ContainerEdits& edits);
  ~DevicePlugin();
  DevicePlugin(const DevicePlugin&) = delete;
  DevicePlugin& operator=(const DevicePlugin&) = delete;

  // Brings everything to how it should be; to be called every second or so. `health`: whether
  // containers can be injected. Blocks for `patience` at most. OK: registered.
  Status update(const Status& health);
  // Ends an update() that waits, and lets no other wait. Any thread.
  void cancel();

  std::string kubelet_socket() const { return options_.folder + "/kubelet.sock"; }
  std::string own_socket() const { return options_.folder + "/gpuperf-inject.sock"; }

 private:
  // Which kubelet listens: a path's inode alone may be that of the socket before.
  struct Stamp {
    FileId file;
    int64_t changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  static std::optional<Stamp> find_stamp(const std::string& path);
  Status serve();
  void stop_serving();
  Status register_with_kubelet();

  // Set once in the constructor.
  const Options options_;
  // The thread of update() only.
  PluginService service_;
  std::unique_ptr<grpc::Server> server_;  // null = not serving
  std::optional<FileId> socket_;          // ours, as made
  std::optional<Stamp> kubelet_;          // that was last asked
  Status registered_;                     // what it answered
  std::chrono::milliseconds retry_;
  std::chrono::steady_clock::time_point retry_at_;
  Mutex mutex_;
  grpc::ClientContext* asking_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuperf
