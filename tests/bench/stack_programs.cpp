#include "tests/bench/stack_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include "daemon/collect/decode_calls.h"
#include "daemon/probe/attach/kernel_abi.h"
#include "daemon/unwind/process_memory.h"
#include "daemon/unwind/python_runtime.h"
#include "daemon/unwind/stack_walk.h"

extern "C" {
extern const char stack_cost_bpf_begin[], stack_cost_bpf_end[];
}

namespace gpuperf::bench {
namespace {

constexpr int kLearnAttempts = 200;
constexpr auto kCopyInterval = std::chrono::milliseconds(1);  // above that of bpf/stack.bpf.c

}  // namespace

StackPrograms::StackPrograms() = default;

StackPrograms::~StackPrograms() {
  ring_buffer__free(rings_);
  bpf_object__close(object_);
}

Result<std::unique_ptr<StackPrograms>> StackPrograms::load(Keeps keeps) {
  auto programs = std::unique_ptr<StackPrograms>(new StackPrograms());
  LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "stack_cost");
  programs->object_ = bpf_object__open_mem(
      stack_cost_bpf_begin, static_cast<size_t>(stack_cost_bpf_end - stack_cost_bpf_begin),
      &options);
  if (programs->object_ == nullptr) return errno_status(errno, "open the BPF programs");
  RETURN_IF_ERROR(programs->set_constant(".rodata.walk", keeps == Keeps::kNothing));
  RETURN_IF_ERROR(programs->set_constant(".rodata.rules", keeps != Keeps::kAll));
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, programs->object_) {
    // Not those that come with stack.bpf.c.
    if (!std::string_view(bpf_program__name(program)).starts_with("take_")) {
      (void)bpf_program__set_autoload(program, false);
      continue;
    }
    (void)bpf_program__set_expected_attach_type(program,
                                                static_cast<bpf_attach_type>(kAttachUprobeMulti));
  }
  if (const int error = bpf_object__load(programs->object_); error != 0) {
    return errno_status(-error, "load the BPF programs");
  }
  programs->rings_ =
      ring_buffer__new(programs->map_fd("stack_ring"), on_stack, programs.get(), nullptr);
  if (programs->rings_ == nullptr ||
      ring_buffer__add(programs->rings_, programs->map_fd("stack_copy_ring"), on_stack,
                       programs.get()) != 0 ||
      ring_buffer__add(programs->rings_, programs->map_fd("bench_copies"), on_copy,
                       programs.get()) != 0) {
    return errno_status(errno, "open the rings");
  }
  programs->spaces_ =
      std::make_unique<AddressSpaces>(AddressSpaces::Options{.tables = programs->make_tables()},
                                      programs->files_, programs->clock_);
  return programs;
}

Status StackPrograms::set_constant(const char* section, bool value) {
  const uint32_t number = value ? 1 : 0;
  bpf_map* const constants = bpf_object__find_map_by_name(object_, section);
  if (constants == nullptr || bpf_map__set_initial_value(constants, &number, sizeof number) != 0) {
    return absl::InternalError(std::string("the BPF programs have no ") + section +
                               " of the size known");
  }
  return absl::OkStatus();
}

int StackPrograms::map_fd(const char* name) const {
  return bpf_object__find_map_fd_by_name(object_, name);
}

WalkTables StackPrograms::make_tables() const {
  const int spaces = map_fd("address_spaces");
  const int rules = map_fd("unwind_rules");
  return {.set_space =
              [spaces](uint32_t pid, const gpuperf_address_space& space) {
                return bpf_map_update_elem(spaces, &pid, &space, BPF_ANY) == 0;
              },
          .erase_space = [spaces](uint32_t pid) { (void)bpf_map_delete_elem(spaces, &pid); },
          .set_rule =
              [rules](const gpuperf_unwind_key& key, const gpuperf_unwind_rule& rule) {
                return bpf_map_update_elem(rules, &key, &rule, BPF_ANY) == 0;
              },
          .erase_rule =
              [rules](const gpuperf_unwind_key& key) { (void)bpf_map_delete_elem(rules, &key); }};
}

Result<Detach> StackPrograms::attach(const char* program, std::span<const StackLibrary> libraries) {
  const bpf_program* const found = bpf_object__find_program_by_name(object_, program);
  std::vector<int> links;
  const auto close_all = [](const std::vector<int>& fds) {
    for (const int fd : fds) close(fd);
  };
  for (const StackLibrary& library : libraries) {
    const UprobeMultiLinkAttr attr{
        .prog_fd = static_cast<uint32_t>(bpf_program__fd(found)),
        .attach_type = kAttachUprobeMulti,
        .path = reinterpret_cast<uint64_t>(library.path.c_str()),
        .offsets = reinterpret_cast<uint64_t>(&library.target_offset_bytes),
        .cnt = 1};
    const long link = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);
    if (link < 0) {
      const int error = errno;
      close_all(links);
      return errno_status(error, library.path + ": attach " + program);
    }
    links.push_back(static_cast<int>(link));
  }
  return Detach([links, close_all] { close_all(links); });
}

int StackPrograms::on_stack(void* programs, void* bytes, size_t size_bytes) {
  auto& self = *static_cast<StackPrograms*>(programs);
  auto record = decode_record({static_cast<const std::byte*>(bytes), size_bytes});
  if (!record.ok() || !std::holds_alternative<RawStack>(*record)) return 0;
  auto& stack = std::get<RawStack>(*record);
  ++self.sent_count_;
  if (!stack.copy || stack.copy->part == 0) self.stacks_.push_back(std::move(stack));
  return 0;
}

int StackPrograms::on_copy(void* programs, void* bytes, size_t size_bytes) {
  constexpr size_t kLargestBytes = sizeof(bench_copy) + size_t{64} * 1024;
  auto& self = *static_cast<StackPrograms*>(programs);
  const auto& copy = *static_cast<const bench_copy*>(bytes);
  if (!self.keeps_copy_ || size_bytes != kLargestBytes || copy.is_read == 0) return 0;
  const auto* const begin = static_cast<const std::byte*>(bytes) + sizeof copy;
  self.last_copy_ =
      RawStack{.frames = {{.pc = copy.pc, .sp = copy.sp, .is_exact = true}},
               .bp = copy.bp,
               .copy = StackCopy{.memory = {{.address = copy.sp,
                                             .bytes = {begin, begin + kLargestBytes - sizeof copy},
                                             .is_present = std::vector<bool>(17, true)}}}};
  return 0;
}

// What the daemon does with a stack that the kernel could not walk to its end.
void StackPrograms::teach(RawStack& stack) {
  spaces_->note_walk(stack);
  const uint32_t number = spaces_->find_number(stack);
  if (!stack.copy || stack.frames.empty()) return;
  (void)walk_stack(
      stack.frames, stack.bp,
      [&](uint64_t pc, bool is_exact) {
        return spaces_->find_rule(stack.process, number, pc, is_exact);
      },
      make_copy_reader(*stack.copy), stack.copy->returns);
}

Result<std::optional<RawStack>> StackPrograms::learn(const StackWorkload& workload) {
  drain();
  const uint32_t pid = workload.process.pid;
  if (!spaces_->is_known(pid) && !spaces_->prepare(pid)) {
    return absl::NotFoundError(workload.name + ": no such process");
  }
  for (const AddressSpaces::FoundPython& python : spaces_->take_found_pythons()) {
    spaces_->set_python(python,
                        load_python_runtime(python.file, python.bias, make_direct_reader(pid)));
  }
  for (int attempt = 0; attempt < kLearnAttempts; ++attempt) {
    stacks_.clear();
    const uint64_t losses = count_losses();
    (void)workload.run_ns(workload.stacks);
    (void)ring_buffer__consume(rings_);
    const auto unknown = [](const RawStack& stack) {
      return stack.copy || stack.end == StackEnd::kUnknown;
    };
    if (stacks_.empty() && count_losses() == losses) return std::optional<RawStack>();
    if (!stacks_.empty() && std::ranges::none_of(stacks_, unknown)) {
      return std::optional(std::move(stacks_[0]));
    }
    for (RawStack& stack : stacks_) teach(stack);
    std::this_thread::sleep_for(kCopyInterval);
  }
  return absl::UnavailableError(workload.name + ": its stack is not walked to its end");
}

std::optional<RawStack> StackPrograms::take_copy(const StackWorkload& workload) {
  drain();
  last_copy_.reset();
  keeps_copy_ = true;
  (void)workload.run_ns(1);
  drain();
  keeps_copy_ = false;
  return std::exchange(last_copy_, std::nullopt);
}

void StackPrograms::drain() {
  (void)ring_buffer__consume(rings_);
  stacks_.clear();
}

uint64_t StackPrograms::count_losses() const {
  uint64_t sum = 0;
  for (uint32_t loss = 0; loss < GPUPERF_LOSS_COUNT; ++loss) {
    uint64_t count = 0;
    if (bpf_map_lookup_elem(map_fd("losses"), &loss, &count) == 0) sum += count;
  }
  return sum;
}

bench_taken StackPrograms::read_taken() const {
  bench_taken taken{};
  const uint32_t key = 0;
  (void)bpf_map_lookup_elem(map_fd("bench_taken"), &key, &taken);  // an array: always there
  return taken;
}

size_t StackPrograms::walk(const RawStack& copy, const ProcessKey& process) {
  std::vector<NativeFrame> frames = copy.frames;
  (void)walk_stack(
      frames, copy.bp,
      [&](uint64_t pc, bool is_exact) { return spaces_->find_rule(process, 0, pc, is_exact); },
      make_copy_reader(*copy.copy), {});
  return frames.size();
}

}  // namespace gpuperf::bench
