#include "daemon/unwind/vdso.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "daemon/probe/discovery/process_maps.h"

namespace gpuperf {

Result<Vdso> copy_vdso() {
  const uint64_t start = ::getauxval(AT_SYSINFO_EHDR);
  ASSIGN_OR_RETURN(const ProcessMaps maps,
                   read_executable_maps("/proc", static_cast<uint32_t>(::getpid())));
  const auto mapping = std::ranges::find(maps.entries, start, &MapEntry::start_address);
  if (mapping == maps.entries.end()) return absl::NotFoundError("[vdso]: none is mapped");
  Vdso vdso{.file = Fd(::memfd_create("vdso", MFD_CLOEXEC)),
            .size_bytes = mapping->end_address - start};
  if (!vdso.file.valid()) return errno_status(errno, "[vdso]: memfd_create");
  const auto* const bytes = std::bit_cast<const char*>(start);
  if (::write(vdso.file.get(), bytes, vdso.size_bytes) != static_cast<ssize_t>(vdso.size_bytes)) {
    return errno_status(errno, "[vdso]: write to a memfd");
  }
  return vdso;
}

}  // namespace gpuperf
