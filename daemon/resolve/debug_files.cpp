#include "daemon/resolve/debug_files.h"

#include <lzma.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <span>
#include <vector>

#include "daemon/probe/discovery/process_files.h"

namespace gpuperf {
namespace {

constexpr std::string_view kDebugRoot = "/usr/lib/debug";
// Reading and summing up more would hold up other requests.
constexpr uint64_t kMaxSummedBytes = uint64_t{512} << 20;

enum class Root { kProcess, kDaemon };

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::string join(std::initializer_list<std::string_view> parts) {
  std::string path;
  for (const std::string_view part : parts) path += part;
  return path;
}

// "/usr/lib/debug/.build-id/ab/cdef.debug"
std::string get_build_id_path(std::string_view build_id) {
  const std::string id = to_hex(build_id);
  return join({kDebugRoot, "/.build-id/", std::string_view(id).substr(0, 2), "/",
               std::string_view(id).substr(2), ".debug"});
}

std::string_view get_folder(std::string_view path) { return path.substr(0, path.rfind('/') + 1); }

// The checksum of .gnu_debuglink, which is that of xz, too.
std::optional<uint32_t> sum_up(int fd, uint64_t size_bytes) {
  if (size_bytes > kMaxSummedBytes) return std::nullopt;
  std::vector<uint8_t> chunk(size_t{256} << 10);
  uint32_t sum = 0;
  for (uint64_t offset = 0; offset < size_bytes;) {
    const ssize_t count = ::pread(fd, chunk.data(), chunk.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    sum = lzma_crc32(chunk.data(), static_cast<size_t>(count), sum);
    offset += static_cast<uint64_t>(count);
  }
  return sum;
}

Result<OpenedFile> open_path(const DebugFileWanted& wanted, Root root, const std::string& path) {
  const Result<ProcessFiles> files = ProcessFiles::open(wanted.proc_root, wanted.pid);
  if (root == Root::kProcess) return files.ok() ? files->open_file(path) : files.status();
  return open_host_file(files.ok() ? files->process() : ProcessStatus{.uid = UINT32_MAX},
                        std::string(wanted.host_root), path);
}

std::optional<DebugFile> open_candidate(const DebugFileWanted& wanted, Root root,
                                        const std::string& path) {
  Result<OpenedFile> opened = open_path(wanted, root, path);
  const bool is_trusted =
      opened.ok() && (opened->owner_uid == 0 || opened->owner_uid == wanted.owner_uid);
  if (absl::IsPermissionDenied(opened.status()) || (opened.ok() && !is_trusted)) {
    wanted.count_drop(DropCause::kNamesFileRefused);
  }
  if (!is_trusted) return std::nullopt;
  const Result<ElfFile> file = ElfFile::open(opened->fd.get(), ElfFile::Kind::kDebug);
  if (!file.ok()) return std::nullopt;
  Result<DebugFacts> facts = read_debug_facts(*file);
  if (!facts.ok()) return std::nullopt;
  return DebugFile{.opened = *std::move(opened), .path = path, .facts = *std::move(facts)};
}

std::optional<DebugFile> find_by_build_id(const DebugFileWanted& wanted,
                                          const std::string& build_id) {
  if (build_id.empty()) return std::nullopt;
  const std::string path = get_build_id_path(build_id);
  for (const Root root : {Root::kProcess, Root::kDaemon}) {
    std::optional<DebugFile> found = open_candidate(wanted, root, path);
    if (found && found->facts.build_id == build_id) return found;
  }
  return std::nullopt;
}

bool is_linked(const DebugFileWanted& wanted, const DebugFile& file) {
  if (file.facts.build_id != wanted.facts.build_id) return false;
  if (wanted.known != nullptr && file.opened.identity == *wanted.known) return true;
  return sum_up(file.opened.fd.get(), file.opened.identity.size_bytes) == wanted.facts.link.crc32;
}

}  // namespace

std::optional<DebugFile> find_debug_file(const DebugFileWanted& wanted) {
  if (auto found = find_by_build_id(wanted, wanted.facts.build_id)) return found;
  const std::string& name = wanted.facts.link.name;
  if (name.empty()) return std::nullopt;
  const std::string_view folder = get_folder(wanted.path);
  for (const std::string& path :
       {join({folder, name}), join({folder, ".debug/", name}), join({kDebugRoot, folder, name})}) {
    if (path == wanted.path) continue;
    std::optional<DebugFile> found = open_candidate(wanted, Root::kProcess, path);
    if (found && is_linked(wanted, *found)) return found;
  }
  return std::nullopt;
}

std::optional<DebugFile> find_alternate_file(const DebugFileWanted& wanted,
                                             std::string_view debug_path,
                                             const AlternateLink& alternate) {
  if (alternate.path.empty()) return std::nullopt;
  if (auto found = find_by_build_id(wanted, alternate.build_id)) return found;
  const bool is_absolute = alternate.path.starts_with('/');
  const std::string path =
      is_absolute ? alternate.path : std::string(get_folder(debug_path)) + alternate.path;
  for (const Root root : {Root::kProcess, Root::kDaemon}) {
    std::optional<DebugFile> found = open_candidate(wanted, root, path);
    if (found && found->facts.build_id == alternate.build_id) return found;
  }
  return std::nullopt;
}

}  // namespace gpuperf
