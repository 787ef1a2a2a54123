#include "tests/bench/bench_methods.h"
#include "tests/bench/timing.h"

#include <bpf/bpf.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/probe/attach/attacher.h"
#include "daemon/probe/attach/kernel_abi.h"
#include "daemon/probe/attach/self_test.h"
#include "daemon/probe/code/placement.h"

namespace gpuperf::bench {
namespace {

// A probed call takes longer than this, a bare one a few nanoseconds.
constexpr double kProbedNs = 150;
constexpr int kLookCalls = 500;

// The library a target lies in, and where in it.
struct Place {
  std::string path;
  FunctionSymbol function;
};

Result<Place> find_place(const Target& target) {
  Dl_info info{};
  const Elf64_Sym* symbol = nullptr;
  const void* const address = reinterpret_cast<const void*>(target.function);
  if (dladdr1(address, &info, const_cast<void**>(reinterpret_cast<const void**>(&symbol)),
              RTLD_DL_SYMENT) == 0) {
    return absl::NotFoundError("no library has the target");
  }
  ASSIGN_OR_RETURN(const uint64_t offset, find_own_offset(address));
  char path[4096];
  if (realpath(info.dli_fname, path) == nullptr) return errno_status(errno, info.dli_fname);
  return Place{path, {.file_offset_bytes = offset, .size_bytes = symbol->st_size}};
}

Result<Detach> attach_nothing(const Target&) {
  return Detach([] {});
}

// The least that BPF can cost here: a session program that does nothing, where ours would sit.
Result<Detach> attach_floor(const Target& target) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  const Fd file(open(place.path.c_str(), O_RDONLY | O_CLOEXEC));
  const bpf_insn instructions[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
      {.code = BPF_JMP | BPF_EXIT}};
  LIBBPF_OPTS(bpf_prog_load_opts, options,
              .expected_attach_type = static_cast<bpf_attach_type>(kAttachUprobeSession));
  const Fd program(bpf_prog_load(BPF_PROG_TYPE_KPROBE, "bench_floor", "GPL", instructions,
                                 std::size(instructions), &options));
  if (!program.valid()) return errno_status(errno, "load the empty program");
  ASSIGN_OR_RETURN(CodeMap code, CodeMap::open(file.get()));
  ASSIGN_OR_RETURN(const Placement placement, place_entry(code, place.function));
  const UprobeMultiLinkAttr attr{.prog_fd = static_cast<uint32_t>(program.get()),
                                 .attach_type = kAttachUprobeSession,
                                 .path = reinterpret_cast<uint64_t>(place.path.c_str()),
                                 .offsets = reinterpret_cast<uint64_t>(&placement.offset_bytes),
                                 .cnt = 1};
  const long link = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);
  if (link < 0) return errno_status(errno, "attach the empty program");
  return Detach([link] { close(static_cast<int>(link)); });
}

// Where the daemon would probe, timed as asked.
Result<ProbePoint> place_daemons(int fd, const FunctionSymbol& function, Timing timing) {
  ASSIGN_OR_RETURN(CodeMap code, CodeMap::open(fd));
  ProbePoint point{.function_id = 0, .timing = timing};
  if (timing == Timing::kExits) {
    ASSIGN_OR_RETURN(point.exits, find_exits(code, function));
  }
  ASSIGN_OR_RETURN(const Placement placement, place_entry(code, function, point.exits));
  point.offset_bytes = placement.offset_bytes;
  return point;
}

Result<Detach> attach_daemons(const Place& place, int fd, const ProbePoint& point) {
  struct Probe {
    std::unique_ptr<Programs> programs;
    std::unique_ptr<Attacher> attacher;
  };
  auto probe = std::make_shared<Probe>();
  ASSIGN_OR_RETURN(probe->programs,
                   Programs::load(Mechanism::kSession, {.functions = 1, .cells = 16}));
  probe->programs->set_function({.id = 0, .status = StatusKind::kCudaRuntime}, false);
  probe->attacher = std::make_unique<Attacher>(*probe->programs);
  const auto outcome = probe->attacher->attach({.fd = fd, .name = place.path}, {&point, 1});
  RETURN_IF_ERROR(outcome[0].status);
  return Detach([probe] { probe->attacher->detach_all(); });
}

Result<Detach> attach_placed(const Target& target, Timing timing) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  const Fd file(open(place.path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSIGN_OR_RETURN(const ProbePoint point, place_daemons(file.get(), place.function, timing));
  return attach_daemons(place, file.get(), point);
}

Result<Detach> attach_ours(const Target& target) { return attach_placed(target, Timing::kReturn); }
Result<Detach> attach_ours_at_exits(const Target& target) {
  return attach_placed(target, Timing::kExits);
}

Result<Detach> attach_ours_at_symbol(const Target& target) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  const Fd file(open(place.path.c_str(), O_RDONLY | O_CLOEXEC));
  return attach_daemons(place, file.get(), {.offset_bytes = place.function.file_offset_bytes});
}

// Waits until calls take as long as probed ones.
Result<Detach> attach_tool_to(const Target& target, std::vector<std::string> command) {
  return attach_tool(std::move(command),
                     [&target] { return measure_ns_per_call(target, kLookCalls) >= kProbedNs; });
}

Result<Detach> attach_bpftrace(const Target& target) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  const std::string site = place.path + ":" + target.name;
  return attach_tool_to(target, {"bpftrace", "-e",
                                 "uprobe:" + site + " { @start[tid] = nsecs; } uretprobe:" + site +
                                     " /@start[tid]/ { @ns = hist(nsecs - @start[tid]);"
                                     " delete(@start[tid]); }"});
}

Result<Detach> attach_bcc(const Target& target) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  return attach_tool_to(target, {"funclatency-bpfcc", place.path + ":" + target.name});
}

Result<Detach> attach_libbpf_tools(const Target& target) {
  ASSIGN_OR_RETURN(const Place place, find_place(target));
  return attach_tool_to(target, {"funclatency", place.path + ":" + target.name});
}

constexpr Method kMethods[] = {
    {"bare", attach_nothing},
    {"floor", attach_floor},
    {"ours", attach_ours},
    {"ours_at_symbol", attach_ours_at_symbol},  // as everybody else: no placement
    {"ours_at_exits", attach_ours_at_exits},    // as C++ functions are timed
    {"bpftrace", attach_bpftrace},
    {"bcc", attach_bcc},
    {"libbpf_tools", attach_libbpf_tools},
};

}  // namespace

std::span<const Method> methods() { return kMethods; }

double measure_ns_per_call(const Target& target, int calls) {
  const double start_ns = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < calls; ++i) (void)target.function(i);
  return (read_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / calls;
}

}  // namespace gpuperf::bench
