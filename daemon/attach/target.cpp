#include "daemon/attach/target.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "daemon/base/file_name.h"
#include "daemon/base/process_status.h"
#include "daemon/probe/discovery/file_opener.h"
#include "injector/attach_abi.h"

namespace gpuperf {
namespace {

constexpr std::string_view kInjector = "libgpuperf_injector.so";

struct RefusalText {
  std::string_view name;
  std::string_view hint;
};
constexpr std::array<RefusalText, kAttachRefusals> kRefusals{{
    {"", ""},
    {"gone", "check the pid: gpuperfctl attach --list"},
    {"no_cuda", "attach once it has loaded libcuda.so.1 (its first CUDA call)"},
    {"traced", "end the debugger or strace, then attach again"},
    {"seccomp",
     "if its filter answers a forbidden call with an error (Docker's and Kubernetes' do), attach "
     "with --accept-seccomp"},
    {"static", "start it with CUDA_INJECTION64_PATH, or link it dynamically: docs/injection.md"},
    {"musl", "start it with CUDA_INJECTION64_PATH: docs/injection.md"},
    {"architecture", "only 64-bit x86 programs can be attached to"},
    {"injected", "nothing to do: gpuperfctl sessions"},
    {"attached", "nothing to do: gpuperfctl sessions"},
    {"shadow_stack", "start it with CUDA_INJECTION64_PATH: docs/injection.md"},
    {"disabled", "it was started with GPUPERF_DISABLE=1: restart it without"},
    {"forked",
     "it is a fork of a process with the library: attach to a process of its own program"},
    {"not_permitted",
     "gpuperfd needs CAP_SYS_PTRACE, and no security module may forbid it: docs/attach.md"},
    {"old_kernel", "attaching needs Linux 5.6"},
    {"no_safe_thread", "try again: a thread has to wait outside of malloc, the loader and CUDA"},
    {"failed", "the process goes on as before; see docs/attach.md"},
    {"not_attached", "see: gpuperfctl attach --list"},
}};

bool has_word(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

uint32_t get_first(std::string_view status, std::string_view key) {
  const auto numbers = list_status_numbers(status, key);
  return numbers.empty() ? 0 : numbers.front();
}

}  // namespace

std::string_view get_refusal_name(AttachRefusal refusal) {
  return kRefusals[static_cast<size_t>(refusal)].name;
}

std::string_view get_refusal_hint(AttachRefusal refusal) {
  return kRefusals[static_cast<size_t>(refusal)].hint;
}

const MemoryMap* find_map(const std::vector<MemoryMap>& maps, uint64_t address) {
  const auto found =
      std::ranges::find_if(maps, [address](const MemoryMap& map) { return map.contains(address); });
  return found == maps.end() ? nullptr : &*found;
}

const MemoryMap* AttachTarget::find_library(std::string_view prefix) const {
  const auto found = std::ranges::find_if(maps, [prefix](const MemoryMap& map) {
    return map.can_execute && map.file.inode != 0 && get_file_name(map.path).starts_with(prefix);
  });
  return found == maps.end() ? nullptr : &*found;
}

const MemoryMap* AttachTarget::find_block() const {
  const auto found = std::ranges::find_if(maps, [](const MemoryMap& map) {
    return map.is_shared && map.can_write && map.path == "/memfd:" GPUPERF_ATTACH_BLOCK_NAME &&
           map.end_address - map.start_address == GPUPERF_ATTACH_BLOCK_BYTES;
  });
  return found == maps.end() ? nullptr : &*found;
}

bool has_thread(const ProcFiles& files, const AttachTarget& target, uint32_t inner_tid) {
  const std::string folder = files.root() + "/" + std::to_string(target.pid) + "/task";
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const Result<std::string> status = read_status_text(entry->path().string());
    const auto numbers =
        status.ok() ? list_status_numbers(*status, "NSpid") : std::vector<uint32_t>();
    if (!numbers.empty() && numbers.back() == inner_tid) return true;
  }
  return false;
}

Result<AttachTarget> read_attach_target(const ProcFiles& files, uint32_t pid) {
  ASSIGN_OR_RETURN(const std::string status,
                   read_status_text(files.root() + "/" + std::to_string(pid)));
  AttachTarget target{.pid = pid};
  target.inner_pid = parse_inner_id(status, pid).id;
  const std::string_view state = find_status_field(status, "State");
  target.state = state.empty() ? '?' : state.front();
  target.tracer_pid = get_first(status, "TracerPid");
  target.seccomp = static_cast<int>(get_first(status, "Seccomp"));
  target.has_shadow_stack = has_word(find_status_field(status, "x86_Thread_features"), "shstk");
  target.comm = find_status_field(status, "Name");
  if (get_first(status, "Tgid") != pid) {
    return absl::NotFoundError("pid " + std::to_string(pid) + ": is a thread, not a process");
  }
  ASSIGN_OR_RETURN(const BoundedText maps, files.read_maps(pid, kMaxMapsBytes));
  target.maps = parse_maps(maps.text);
  target.has_cuda = target.find_library("libcuda.so") != nullptr;
  target.has_injector = target.find_library(kInjector) != nullptr;
  return target;
}

Result<LoadedLibrary> open_library(const ProcFiles& files, CodeFiles& code_files,
                                   const AttachTarget& target, const MemoryMap& map) {
  if (map.path == "[vdso]") {
    ASSIGN_OR_RETURN(CodeFiles::CodePtr code, code_files.open_vdso(map));
    const auto vaddr = code->file.find_vaddr(0);
    return LoadedLibrary{.code = std::move(code), .bias = map.start_address - vaddr.value_or(0)};
  }
  ASSIGN_OR_RETURN(OpenedFile opened, open_mapped_file(files, target.pid, map));
  ASSIGN_OR_RETURN(CodeFiles::CodePtr code, code_files.keep(std::move(opened)));
  const auto vaddr = code->file.find_vaddr(map.offset_bytes);
  if (!vaddr) return absl::DataLossError(map.path + ": no segment is mapped so");
  return LoadedLibrary{.code = std::move(code), .bias = map.start_address - *vaddr};
}

Refused find_refusal(const ProcFiles& files, const AttachTarget& target) {
  const auto refuse = [](AttachRefusal why, std::string text) {
    return Refused{why, std::move(text)};
  };
  if (target.state == 'Z' || target.state == 'X') {
    return refuse(AttachRefusal::kGone, "the process has ended");
  }
  if (target.maps.empty())
    return refuse(AttachRefusal::kNoCuda, "it has no memory: a kernel thread");
  if (target.tracer_pid != 0) {
    return refuse(AttachRefusal::kTraced,
                  "another program traces it: pid " + std::to_string(target.tracer_pid));
  }
  if (target.has_shadow_stack) {
    return refuse(AttachRefusal::kShadowStack, "its threads have shadow stacks");
  }
  const std::string program = files.root() + "/" + std::to_string(target.pid) + "/exe";
  const Result<OpenedFile> opened = open_named_file(program);
  if (opened.ok()) {
    const auto elf = ElfFile::open(opened->fd.get());
    if (absl::IsUnimplemented(elf.status())) {
      return refuse(AttachRefusal::kArchitecture, "its program is not for x86-64");
    }
  }
  const bool has_glibc =
      target.find_library("libc.so.6") != nullptr || target.find_library("libc-2.") != nullptr;
  // Alpine's is ld-musl-x86_64.so.1, Debian's libc.so.
  if (target.find_library("ld-musl") != nullptr ||
      (!has_glibc && target.find_library("libc.so") != nullptr)) {
    return refuse(AttachRefusal::kMusl, "its C library is musl");
  }
  if (!has_glibc) {
    return refuse(AttachRefusal::kStatic, "it has no C library: it is linked statically");
  }
  if (!target.has_cuda) return refuse(AttachRefusal::kNoCuda, "it has not loaded libcuda");
  return {};
}

}  // namespace gpuperf
