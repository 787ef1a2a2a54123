#include "daemon/probe/attach/programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <utility>

#include "daemon/base/proc_text.h"
#include "daemon/base/process_status.h"
#include "daemon/model/api_names.h"
#include "daemon/model/status_names.h"
#include "daemon/probe/attach/kernel_abi.h"
#include "daemon/probe/attach/load_log.h"

extern "C" {
extern const char gpuperf_bpf_plain_begin[], gpuperf_bpf_plain_end[];
extern const char gpuperf_bpf_session_begin[], gpuperf_bpf_session_end[];
extern const char gpuperf_bpf_session_ctx_begin[], gpuperf_bpf_session_ctx_end[];
}

namespace gpuperf {
namespace {

constexpr std::pair<Mechanism, std::string_view> kMechanismNames[] = {
    {Mechanism::kSession, "session"}, {Mechanism::kMulti, "multi"}, {Mechanism::kPerf, "perf"}};

// Of process.bpf.c and stack.bpf.c.
constexpr const char* kProcessHooks[] = {"process_exit", "inherit_address_space", "inherit_trace"};
// Of process.bpf.c: what tells of a process's end while its memory is there. Since Linux 6.16 the
// tracepoints do; before, functions that a kernel may not let be traced.
constexpr const char* kPrepareExec = "sched_prepare_exec";
struct EndFunction {
  const char* program;
  const char* function;
};
constexpr EndFunction kEndFunctions[] = {{"before_exit", "exit_mm_release"},
                                         {"before_exec", "exec_mm_release"}};
// Of call_state.bpf.c and ticks.bpf.c.
constexpr const char* kThreadHooks[] = {"follow_switch", "follow_waking", "follow_tick"};

// Of response.bpf.c.
constexpr const char* kRequestHooks[] = {"read_request", "write_response", "close_connection"};

// What a probe of that timing runs, as the attacher attaches it.
std::vector<std::string_view> list_programs(Mechanism mechanism, Timing timing) {
  switch (timing) {
    case Timing::kNone:
      return {"probe_count"};
    case Timing::kExits:
      return {"probe_entry_to_exit", "probe_exit"};
    case Timing::kReturn:
      if (mechanism == Mechanism::kSession) return {"probe_session"};
      return {"probe_entry", "probe_return"};
  }
  return {};  // only reached with a value outside the enum
}

std::span<const std::byte> bytes_between(const char* begin, const char* end) {
  return std::as_bytes(std::span(begin, end));
}

// The forms to try for a mechanism, most likely first.
std::vector<std::span<const std::byte>> get_forms(Mechanism mechanism) {
  if (mechanism != Mechanism::kSession) {
    return {bytes_between(gpuperf_bpf_plain_begin, gpuperf_bpf_plain_end)};
  }
  return {bytes_between(gpuperf_bpf_session_begin, gpuperf_bpf_session_end),
          bytes_between(gpuperf_bpf_session_ctx_begin, gpuperf_bpf_session_ctx_end)};
}

// Whether the kernel lets a program be put on this function of its own: some have no way to.
bool can_trace(const char* function) {
  const int id = libbpf_find_vmlinux_btf_id(function, BPF_TRACE_FENTRY);
  if (id <= 0) return false;
  const bpf_insn nothing[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                              {.code = BPF_JMP | BPF_EXIT}};
  LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_FENTRY,
              .attach_btf_id = static_cast<uint32_t>(id));
  const Fd loaded(bpf_prog_load(BPF_PROG_TYPE_TRACING, "gpuperf_try", "GPL", nothing,
                                std::size(nothing), &options));
  if (!loaded.valid()) return false;
  return Fd(bpf_raw_tracepoint_open(nullptr, loaded.get())).valid();
}

// Linux 6.16 has moved the tracepoint of a thread's end before the release of its memory, and given
// it an argument more.
bool has_memory_at_exit() {
  constexpr size_t kArguments = 3;  // the first is of no use
  btf* const kernel = btf__load_vmlinux_btf();
  const int id = kernel == nullptr ? -1
                                   : btf__find_by_name_kind(kernel, "btf_trace_sched_process_exit",
                                                            BTF_KIND_TYPEDEF);
  size_t arguments = 0;
  if (id > 0) {
    const btf_type* pointer =
        btf__type_by_id(kernel, btf__type_by_id(kernel, static_cast<uint32_t>(id))->type);
    arguments = btf_vlen(btf__type_by_id(kernel, pointer->type));
  }
  btf__free(kernel);
  return arguments == kArguments;
}

}  // namespace

std::string_view get_mechanism_name(Mechanism mechanism) {
  return kMechanismNames[static_cast<size_t>(mechanism)].second;
}

std::optional<Mechanism> find_mechanism(std::string_view name) {
  for (const auto& [mechanism, known] : kMechanismNames) {
    if (known == name) return mechanism;
  }
  return std::nullopt;
}

Result<std::unique_ptr<Programs>> Programs::load(Mechanism mechanism, const Sizes& sizes) {
  libbpf_set_print(keep_load_message);
  Status status;
  for (const auto form : get_forms(mechanism)) {
    auto programs = std::unique_ptr<Programs>(new Programs(mechanism, sizes));
    status = programs->load_form(form);
    if (status.ok()) return programs;
    // The other form would fail, too, and may give a reason that leads nowhere.
    if (absl::IsPermissionDenied(status)) return status;
  }
  return status;
}

Status Programs::load_form(std::span<const std::byte> object) {
  begin_load_log();
  LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "gpuperf");
  object_ = bpf_object__open_mem(object.data(), object.size(), &options);
  if (object_ == nullptr) return explain_load_failure(errno);

  const std::pair<const char*, uint32_t> entries[] = {
      {"functions", sizes_.functions},    {"plans", sizes_.functions},
      {"cell_index", sizes_.cells},       {"cells", sizes_.functions + sizes_.cells},
      {"free_cells", sizes_.cells},       {"processes", sizes_.cells},
      {"hooked_processes", sizes_.cells},
  };
  for (const auto& [name, count] : entries) {
    if (const int error =
            bpf_map__set_max_entries(bpf_object__find_map_by_name(object_, name), count);
        error != 0) {
      return errno_status(-error, std::string("BPF map ") + name + ": set size");
    }
  }
  const uint32_t multi = mechanism_ == Mechanism::kPerf ? 0 : kAttachUprobeMulti;
  for (const char* name : {"probe_count", "probe_entry_to_exit", "probe_exit", "probe_entry",
                           "probe_return", "note_code_change", "take_note"}) {
    if (bpf_program* found = program(name)) {
      bpf_program__set_expected_attach_type(found, static_cast<bpf_attach_type>(multi));
    }
  }
  if (bpf_program* session = program("probe_session")) {
    bpf_program__set_expected_attach_type(session,
                                          static_cast<bpf_attach_type>(kAttachUprobeSession));
  }
  for (const char* name : kThreadHooks) {
    (void)bpf_program__set_autoload(program(name), sizes_.follow_threads);  // not loaded yet
  }
  for (const char* name : kRequestHooks) {
    (void)bpf_program__set_autoload(program(name), sizes_.follow_requests);  // not loaded yet
  }
  if (is_trial()) {
    leave_out_what_is_not_tried();
  } else {
    choose_end_hooks();
  }
  begin_load_log();  // what was asked of the kernel's types until here is no failure
  if (const int error = bpf_object__load(object_); error != 0) return explain_load_failure(-error);

  if (!is_trial()) RETURN_IF_ERROR(attach_hooks(kProcessHooks));
  if (!is_trial()) RETURN_IF_ERROR(attach_hooks(end_hooks_));
  if (sizes_.follow_threads) RETURN_IF_ERROR(attach_hooks(kThreadHooks));
  if (sizes_.follow_requests) RETURN_IF_ERROR(attach_hooks(kRequestHooks));
  ASSIGN_OR_RETURN(cells_, MappedArray::reserve(map_fd("cells"), "cells", sizeof(gpuperf_cell),
                                                sizes_.functions + sizes_.cells));
  ASSIGN_OR_RETURN(functions_, MappedArray::map(map_fd("functions"), "functions",
                                                sizeof(gpuperf_function), sizes_.functions));
  ASSIGN_OR_RETURN(
      plans_, MappedArray::map(map_fd("plans"), "plans", sizeof(gpuperf_plan), sizes_.functions));
  ASSIGN_OR_RETURN(hooked_functions_,
                   MappedArray::map(map_fd("hooked_functions"), "hooked_functions",
                                    sizeof(uint64_t), GPUPERF_HOOK_COUNT));
  ASSIGN_OR_RETURN(lanes_,
                   MappedArray::map(map_fd("lanes"), "lanes", sizeof(uint64_t), GPUPERF_LANES));
  ASSIGN_OR_RETURN(
      losses_, MappedArray::map(map_fd("losses"), "losses", sizeof(uint64_t), GPUPERF_LOSS_COUNT));
  ASSIGN_OR_RETURN(trace_everyone_, MappedArray::map(map_fd("trace_everyone"), "trace_everyone",
                                                     sizeof(gpuperf_trace_order), 1));
  return fill_free_cells();
}

void Programs::leave_out_what_is_not_tried() {
  std::vector<std::string_view> tried;
  for (const Timing timing : sizes_.trial) {
    for (const std::string_view name : list_programs(mechanism_, timing)) tried.push_back(name);
  }
  bpf_program* each = nullptr;
  bpf_object__for_each_program(each, object_) {
    const bool is_tried = std::ranges::find(tried, bpf_program__name(each)) != tried.end();
    (void)bpf_program__set_autoload(each, is_tried);  // not loaded yet
  }
}

Status Programs::attach_hooks(std::span<const char* const> names) {
  for (const char* name : names) {
    bpf_link* link = bpf_program__attach(program(name));
    if (link == nullptr)
      return errno_status(errno, std::string("BPF program ") + name + ": attach");
    hook_links_.push_back(link);
  }
  return absl::OkStatus();
}

void Programs::choose_end_hooks() {
  const bool is_needed = !has_memory_at_exit();
  for (const EndFunction& end : kEndFunctions) {
    const bool is_used = is_needed && can_trace(end.function);
    (void)bpf_program__set_autoload(program(end.program), is_used);  // not loaded yet
    if (is_used) end_hooks_.push_back(end.program);
    if (is_used || !is_needed) continue;
    if (!unseen_ends_.empty()) unseen_ends_ += ", ";
    unseen_ends_ += end.function;
  }
  const bool has_prepare = libbpf_find_vmlinux_btf_id(kPrepareExec, BPF_TRACE_RAW_TP) > 0;
  (void)bpf_program__set_autoload(program("prepare_exec"), has_prepare);  // not loaded yet
  if (has_prepare) end_hooks_.push_back("prepare_exec");
}

Status Programs::fill_free_cells() {
  const int fd = map_fd("free_cells");
  // A stack: the lowest index is pushed last and used first, so that few pages are touched.
  for (uint32_t cell = sizes_.functions + sizes_.cells; cell-- > sizes_.functions;) {
    if (bpf_map_update_elem(fd, nullptr, &cell, BPF_ANY) != 0) {
      return errno_status(errno, "BPF map free_cells: fill");
    }
  }
  const uint32_t key = 0;
  const gpuperf_cell_room room{.max = get_users_cells(sizes_.cells), .used = 0};
  if (bpf_map_update_elem(map_fd("cell_room"), &key, &room, BPF_ANY) != 0) {
    return errno_status(errno, "BPF map cell_room: set");
  }
  return absl::OkStatus();
}

Programs::~Programs() {
  for (bpf_link* link : hook_links_) (void)bpf_link__destroy(link);
  if (object_ != nullptr) bpf_object__close(object_);
}

bpf_program* Programs::program(const char* name) const {
  return bpf_object__find_program_by_name(object_, name);
}

int Programs::program_fd(const char* name) const { return bpf_program__fd(program(name)); }

uint64_t Programs::read_map_bytes() const {
  constexpr size_t kMaxInfoBytes = 4'096;
  uint64_t sum_bytes = 0;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object_) {
    const auto info =
        read_bounded_text("/proc/self/fdinfo/" + std::to_string(bpf_map__fd(map)), kMaxInfoBytes);
    if (!info.ok()) continue;  // not created: one that this mechanism does without
    const std::string_view text = find_status_field(info->text, "memlock");
    uint64_t bytes = 0;
    (void)std::from_chars(text.data(), text.data() + text.size(), bytes);
    sum_bytes += bytes;
  }
  return sum_bytes;
}

int Programs::map_fd(const char* name) const {
  return bpf_object__find_map_fd_by_name(object_, name);
}

// What a call of the function says about turns: bpf/turn.bpf.h. Of copies and graph launches the
// runtime's functions alone: they call the driver's.
uint32_t get_turn_flags(const Function& function) {
  const std::string_view symbol = function.symbol;
  const auto begins = [symbol](std::string_view prefix) { return symbol.starts_with(prefix); };
  uint32_t flags = 0;
  if (begins("cuLaunch") || begins("cudaLaunch") || begins("cudaGraphLaunch") ||
      begins("cudaMemcpy") || begins("cudaMemset")) {
    flags |= GPUPERF_FN_TURN_WORK;
  }
  const ArgumentPlan* plan = function.arguments.get();
  if (plan == nullptr) return flags;
  if (plan->rules.shape_dimensions == 3) flags |= GPUPERF_FN_TURN_WORK | GPUPERF_FN_MATRIX_PRODUCT;
  if (plan->step_role == StepRole::kResultCopy) {
    flags |= GPUPERF_FN_TURN_WORK | GPUPERF_FN_RESULT_COPY;
  }
  if (plan->step_role == StepRole::kResultWait) flags |= GPUPERF_FN_RESULT_WAIT;
  return flags;
}

void Programs::set_function(const Function& function, bool stacks) {
  gpuperf_function& row = functions_.as<gpuperf_function>()[function.id];
  const std::vector<int32_t> benign = get_benign_codes(function.status);
  row.benign_status[0] = benign.empty() ? 0 : benign[0];
  row.benign_status[1] = benign.size() < 2 ? 0 : benign[1];
  // The plan before the flag that says it is there.
  if (function.arguments) {
    plans_.as<gpuperf_plan>()[function.id] = to_contract(*function.arguments);
  }
  row.slow_threshold_ns = function.slow_threshold_ns;
  uint32_t graph_call = get_graph_call(function.symbol);
  // At the return of calls with a plan the kernel side does not know their first two arguments.
  if (function.arguments && graph_call != GPUPERF_GRAPH_LAUNCHED) graph_call = GPUPERF_GRAPH_NONE;
  const uint32_t flags =
      (function.status == StatusKind::kNone ? 0 : GPUPERF_FN_STATUS) |
      (stacks ? GPUPERF_FN_STACK : 0) | (function.arguments ? GPUPERF_FN_PLAN : 0) |
      (follows_threads() ? GPUPERF_FN_SPLIT : 0) |
      (is_launch_entry(function.symbol) ? GPUPERF_FN_LAUNCH : 0) |
      (function.arguments && function.arguments->report != CallReport::kNone ? GPUPERF_FN_REPORT
                                                                             : 0) |
      (is_operator(function.arguments.get()) ? GPUPERF_FN_OPERATOR : 0) | get_turn_flags(function) |
      graph_call << GPUPERF_FN_GRAPH_SHIFT;
  std::atomic_ref(row.flags).store(flags, std::memory_order_release);
}

void Programs::set_outside_cost(uint32_t function_id, uint32_t outside_ns) {
  std::atomic_ref(functions_.as<gpuperf_function>()[function_id].outside_ns).store(outside_ns);
}

void Programs::set_call_cost(uint32_t function_id, uint64_t cost_ns, uint32_t alarm_mask) {
  gpuperf_function& row = functions_.as<gpuperf_function>()[function_id];
  std::atomic_ref(row.call_cost_ns)
      .store(static_cast<uint32_t>(std::min<uint64_t>(cost_ns, UINT32_MAX)));
  std::atomic_ref(row.alarm_mask).store(alarm_mask);
}

void Programs::set_adaptive_threshold(uint32_t function_id, uint64_t threshold_ns) {
  std::atomic_ref(functions_.as<gpuperf_function>()[function_id].adaptive_threshold_ns)
      .store(threshold_ns);
}

void Programs::set_hooked_function(size_t entry, std::optional<uint32_t> function_id) {
  std::atomic_ref(hooked_functions_.as<uint64_t>()[entry])
      .store(function_id ? *function_id + 1 : 0);
}

void Programs::set_trace(const gpuperf_trace_order& order) {
  gpuperf_trace_order& everyone = trace_everyone_.as<gpuperf_trace_order>()[0];
  std::atomic_ref(everyone.stack_interval_ns).store(order.stack_interval_ns);
  std::atomic_ref(everyone.min_call_ns).store(order.min_call_ns);
  std::atomic_ref(everyone.long_call_ns).store(order.long_call_ns);
  std::atomic_ref(everyone.flags).store(order.flags);
}

bool Programs::set_trace_of(std::span<const uint32_t> pids, const gpuperf_trace_order& order) {
  bool all = true;
  for (const uint32_t pid : pids) {
    all = bpf_map_update_elem(map_fd("trace_processes"), &pid, &order, BPF_ANY) == 0 && all;
  }
  std::atomic_ref(trace_everyone_.as<gpuperf_trace_order>()[0].scoped_count).store(1);
  return all;
}

bool Programs::set_request_session(uint32_t session, bool serves) const {
  const int fd = map_fd("request_sessions");
  if (!serves) return bpf_map_delete_elem(fd, &session) == 0;
  const uint32_t value = 1;
  return bpf_map_update_elem(fd, &session, &value, BPF_ANY) == 0;
}

void Programs::clear_trace_of_all() {
  std::atomic_ref(trace_everyone_.as<gpuperf_trace_order>()[0].scoped_count).store(0);
  const int fd = map_fd("trace_processes");
  uint32_t pid = 0;
  while (bpf_map_get_next_key(fd, nullptr, &pid) == 0) {
    if (bpf_map_delete_elem(fd, &pid) != 0 && errno != ENOENT) return;
  }
}

Status Programs::set_tensor_layout(uint32_t number, const gpuperf_tensor_layout& layout) const {
  const uint32_t index = number - 1;
  if (bpf_map_update_elem(map_fd("tensor_layouts"), &index, &layout, BPF_ANY) == 0) {
    return absl::OkStatus();
  }
  return errno_status(errno, "layout of tensors not told to the kernel");
}

void Programs::set_lane(uint32_t lane, uint32_t word) {
  std::atomic_ref(lanes_.as<uint64_t>()[lane]).store(word, std::memory_order_release);
}

}  // namespace gpuperf
