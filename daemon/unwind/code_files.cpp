#include "daemon/unwind/code_files.h"

#include <utility>

#include "daemon/unwind/vdso.h"

namespace gpuperf {
namespace {

Result<CodeFiles::CodePtr> read_headers(OpenedFile opened) {
  ASSIGN_OR_RETURN(CodeFile file, CodeFile::open(opened.fd.get()));
  return std::make_shared<const CodeFiles::Code>(CodeFiles::Code{
      .fd = std::move(opened.fd), .identity = opened.identity, .file = std::move(file)});
}

}  // namespace

Result<CodeFiles::CodePtr> CodeFiles::keep(OpenedFile opened) {
  const FileIdentity identity = opened.identity;
  if (const CodePtr* known = open_.find(identity)) return *known;
  ASSIGN_OR_RETURN(CodePtr code, read_headers(std::move(opened)));
  (void)open_.put(identity, code, 1);
  return code;
}

Result<CodeFiles::CodePtr> CodeFiles::open_vdso(const MapEntry& mapping) {
  const uint64_t size_bytes = mapping.end_address - mapping.start_address;
  if (vdso_ == nullptr) {
    ASSIGN_OR_RETURN(Vdso own, copy_vdso());
    ASSIGN_OR_RETURN(vdso_, read_headers({.fd = std::move(own.file)}));
    vdso_bytes_ = own.size_bytes;
  }
  if (size_bytes != vdso_bytes_) return absl::DataLossError("[vdso]: of another size");
  return vdso_;
}

}  // namespace gpuperf
