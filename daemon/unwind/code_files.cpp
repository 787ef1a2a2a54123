#include "daemon/unwind/code_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace gpuperf {
namespace {

// It has two pages; a forged mapping of that name is refused.
constexpr uint64_t kMaxVdsoBytes = 1 << 20;

Result<CodeFiles::CodePtr> read_headers(OpenedFile opened) {
  ASSIGN_OR_RETURN(CodeFile file, CodeFile::open(opened.fd.get()));
  return std::make_shared<const CodeFiles::Code>(CodeFiles::Code{
      .fd = std::move(opened.fd), .identity = opened.identity, .file = std::move(file)});
}

}  // namespace

Result<CodeFiles::CodePtr> CodeFiles::open(const std::string& proc_root, uint32_t pid,
                                           const MapEntry& mapping) {
  ASSIGN_OR_RETURN(OpenedFile opened, open_mapped_file(proc_root, pid, mapping));
  const FileIdentity identity = opened.identity;
  if (const CodePtr* known = open_.find(identity)) return *known;
  ASSIGN_OR_RETURN(CodePtr code, read_headers(std::move(opened)));
  (void)open_.put(identity, code, 1);
  return code;
}

Result<CodeFiles::CodePtr> CodeFiles::open_vdso(const MapEntry& mapping, const ReadMemory& read) {
  if (vdso_ != nullptr) return vdso_;
  const uint64_t size_bytes = mapping.end_address - mapping.start_address;
  if (size_bytes > kMaxVdsoBytes) return absl::DataLossError("[vdso]: larger than one can be");
  std::vector<std::byte> image(size_bytes);
  if (!read(mapping.start_address, image)) {
    return absl::UnavailableError("[vdso]: not readable in the process's memory");
  }
  OpenedFile opened{.fd = Fd(memfd_create("vdso", MFD_CLOEXEC))};
  if (!opened.fd.valid()) return errno_status(errno, "[vdso]: memfd_create");
  if (write(opened.fd.get(), image.data(), image.size()) != std::ssize(image)) {
    return errno_status(errno, "[vdso]: write to a memfd");
  }
  ASSIGN_OR_RETURN(vdso_, read_headers(std::move(opened)));
  return vdso_;
}

}  // namespace gpuperf
