#include "daemon/inject/container_edits.h"

namespace gpuperf {

ContainerEdits make_container_edits(const std::string& library, const std::string& socket_folder) {
  constexpr const char* kLibrary = "/usr/lib/gpuperf/libgpuperf_injector.so";
  constexpr const char* kSocketFolder = "/run/gpuperf";  // the library's default for ingest.sock
  return {.environment = {{"CUDA_INJECTION64_PATH", kLibrary}},
          .mounts = {{library, kLibrary}, {socket_folder, kSocketFolder}}};
}

}  // namespace gpuperf
