#pragma once

// The Container Device Interface: a file by which podman, docker and containerd learn what
// `--device gpuperf.dev/inject=all` means (docs/injection.md).

#include <string>

#include "daemon/base/result.h"
#include "daemon/inject/container_edits.h"

namespace gpuperf {

// The file's text.
std::string render_cdi_spec(const ContainerEdits& edits);

// Makes the file, whole or not at all, unless it is there with this text. Makes its folder if only
// that is missing. ALREADY_EXISTS: another program's file is there, and is left alone.
Status write_cdi_spec(const std::string& path, const std::string& text);

}  // namespace gpuperf
