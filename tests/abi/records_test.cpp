// The layout of bpf/records.h as the BPF compiler saw it (its BTF) against what this compiler sees.

#include <bpf/btf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/records.h"

extern "C" {
extern const char gpuperf_bpf_plain_begin[], gpuperf_bpf_plain_end[];
extern const char gpuperf_bpf_session_begin[], gpuperf_bpf_session_end[];
extern const char gpuperf_bpf_session_ctx_begin[], gpuperf_bpf_session_ctx_end[];
}

namespace {

struct Field {
  std::string name;
  size_t offset_bytes;
  size_t size_bytes;
  bool operator==(const Field&) const = default;
};
void PrintTo(const Field& field, std::ostream* out) {
  *out << field.name << " at " << field.offset_bytes << " of " << field.size_bytes << " bytes";
}

struct Layout {
  const char* name;
  size_t size_bytes;
  std::vector<Field> fields;
};

#define FIELD(type, field) \
  Field { #field, offsetof(type, field), sizeof(type::field) }

// Every struct of the contract with every field: a field missing here fails the comparison.
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> rows = {
      {"gpuperf_function",
       sizeof(gpuperf_function),
       {FIELD(gpuperf_function, slow_threshold_ns), FIELD(gpuperf_function, flags),
        FIELD(gpuperf_function, benign_status), FIELD(gpuperf_function, outside_ns),
        FIELD(gpuperf_function, adaptive_threshold_ns)}},
      {"gpuperf_error_count",
       sizeof(gpuperf_error_count),
       {FIELD(gpuperf_error_count, status_tag), FIELD(gpuperf_error_count, count)}},
      {"gpuperf_cell",
       sizeof(gpuperf_cell),
       {FIELD(gpuperf_cell, calls), FIELD(gpuperf_cell, abandoned), FIELD(gpuperf_cell, total_ns),
        FIELD(gpuperf_cell, self_ns), FIELD(gpuperf_cell, inverted_min_ns),
        FIELD(gpuperf_cell, max_ns), FIELD(gpuperf_cell, slow_calls), FIELD(gpuperf_cell, untimed),
        FIELD(gpuperf_cell, errors), FIELD(gpuperf_cell, other_errors), FIELD(gpuperf_cell, flops),
        FIELD(gpuperf_cell, bytes), FIELD(gpuperf_cell, buckets), FIELD(gpuperf_cell, worst_ns)}},
      {"gpuperf_cell_key",
       sizeof(gpuperf_cell_key),
       {FIELD(gpuperf_cell_key, process_start_boot_ns), FIELD(gpuperf_cell_key, pid),
        FIELD(gpuperf_cell_key, function_id)}},
      {"gpuperf_cell_owner",
       sizeof(gpuperf_cell_owner),
       {FIELD(gpuperf_cell_owner, cell), FIELD(gpuperf_cell_owner, pad),
        FIELD(gpuperf_cell_owner, comm)}},
      {"gpuperf_record",
       sizeof(gpuperf_record),
       {FIELD(gpuperf_record, kind), FIELD(gpuperf_record, length_bytes)}},
      {"gpuperf_slow_call",
       sizeof(gpuperf_slow_call),
       {FIELD(gpuperf_slow_call, header),
        FIELD(gpuperf_slow_call, start_mono_ns),
        FIELD(gpuperf_slow_call, duration_ns),
        FIELD(gpuperf_slow_call, threshold_ns),
        FIELD(gpuperf_slow_call, process_start_boot_ns),
        FIELD(gpuperf_slow_call, pid),
        FIELD(gpuperf_slow_call, tid),
        FIELD(gpuperf_slow_call, function_id),
        FIELD(gpuperf_slow_call, has_values),
        FIELD(gpuperf_slow_call, blob_count),
        FIELD(gpuperf_slow_call, values_unread),
        FIELD(gpuperf_slow_call, blob_bytes),
        FIELD(gpuperf_slow_call, has_return_value),
        FIELD(gpuperf_slow_call, values),
        FIELD(gpuperf_slow_call, return_value),
        FIELD(gpuperf_slow_call, comm),
        FIELD(gpuperf_slow_call, stack_id),
        FIELD(gpuperf_slow_call, blobs),
        FIELD(gpuperf_slow_call, outer),
        FIELD(gpuperf_slow_call, outer_count),
        FIELD(gpuperf_slow_call, adaptive),
        FIELD(gpuperf_slow_call, has_split),
        FIELD(gpuperf_slow_call, worst),
        FIELD(gpuperf_slow_call, pad_split),
        FIELD(gpuperf_slow_call, split),
        FIELD(gpuperf_slow_call, children),
        FIELD(gpuperf_slow_call, waits)}},
      {"gpuperf_capture",
       sizeof(gpuperf_capture),
       {FIELD(gpuperf_capture, source), FIELD(gpuperf_capture, loads),
        FIELD(gpuperf_capture, shift_bits), FIELD(gpuperf_capture, size_bytes),
        FIELD(gpuperf_capture, blob), FIELD(gpuperf_capture, pad),
        FIELD(gpuperf_capture, offset_bytes)}},
      {"gpuperf_plan",
       sizeof(gpuperf_plan),
       {FIELD(gpuperf_plan, capture_count), FIELD(gpuperf_plan, byte_factors),
        FIELD(gpuperf_plan, byte_type), FIELD(gpuperf_plan, byte_kind),
        FIELD(gpuperf_plan, byte_slot), FIELD(gpuperf_plan, shape_dimensions),
        FIELD(gpuperf_plan, name_handle), FIELD(gpuperf_plan, name_text),
        FIELD(gpuperf_plan, shape_swap), FIELD(gpuperf_plan, name_source), FIELD(gpuperf_plan, pad),
        FIELD(gpuperf_plan, element_bytes), FIELD(gpuperf_plan, captures)}},
      {"gpuperf_process_info", sizeof(gpuperf_process_info), {FIELD(gpuperf_process_info, cgroup)}},
      {"gpuperf_shape_key",
       sizeof(gpuperf_shape_key),
       {FIELD(gpuperf_shape_key, cell), FIELD(gpuperf_shape_key, pad),
        FIELD(gpuperf_shape_key, dimensions), FIELD(gpuperf_shape_key, types)}},
      {"gpuperf_shape_totals",
       sizeof(gpuperf_shape_totals),
       {FIELD(gpuperf_shape_totals, calls), FIELD(gpuperf_shape_totals, total_ns)}},
      {"gpuperf_in_flight",
       sizeof(gpuperf_in_flight),
       {FIELD(gpuperf_in_flight, process_start_boot_ns), FIELD(gpuperf_in_flight, start_mono_ns),
        FIELD(gpuperf_in_flight, cookie), FIELD(gpuperf_in_flight, pid),
        FIELD(gpuperf_in_flight, tid), FIELD(gpuperf_in_flight, depth),
        FIELD(gpuperf_in_flight, pad), FIELD(gpuperf_in_flight, comm)}},
      {"gpuperf_handle_name",
       sizeof(gpuperf_handle_name),
       {FIELD(gpuperf_handle_name, header), FIELD(gpuperf_handle_name, process_start_boot_ns),
        FIELD(gpuperf_handle_name, pid), FIELD(gpuperf_handle_name, name_bytes),
        FIELD(gpuperf_handle_name, handle), FIELD(gpuperf_handle_name, source_handle),
        FIELD(gpuperf_handle_name, name)}},
      {"gpuperf_time_split",
       sizeof(gpuperf_time_split),
       {FIELD(gpuperf_time_split, runnable_ns), FIELD(gpuperf_time_split, throttled_ns),
        FIELD(gpuperf_time_split, waits_ns), FIELD(gpuperf_time_split, ticks),
        FIELD(gpuperf_time_split, preemptions), FIELD(gpuperf_time_split, migrations),
        FIELD(gpuperf_time_split, minor_faults), FIELD(gpuperf_time_split, major_faults),
        FIELD(gpuperf_time_split, pad)}},
      {"gpuperf_child",
       sizeof(gpuperf_child),
       {FIELD(gpuperf_child, function_id), FIELD(gpuperf_child, calls),
        FIELD(gpuperf_child, total_ns)}},
      {"gpuperf_wait",
       sizeof(gpuperf_wait),
       {FIELD(gpuperf_wait, start_mono_ns), FIELD(gpuperf_wait, duration_ns),
        FIELD(gpuperf_wait, syscall), FIELD(gpuperf_wait, kind), FIELD(gpuperf_wait, file_mode),
        FIELD(gpuperf_wait, waker_tid), FIELD(gpuperf_wait, waker_pid),
        FIELD(gpuperf_wait, waker_is_kernel), FIELD(gpuperf_wait, waker_start_boot_ns),
        FIELD(gpuperf_wait, waker_comm), FIELD(gpuperf_wait, file_name),
        FIELD(gpuperf_wait, kernel_stack), FIELD(gpuperf_wait, waker_stack_id)}},
      {"gpuperf_slow_in_flight",
       sizeof(gpuperf_slow_in_flight),
       {FIELD(gpuperf_slow_in_flight, call), FIELD(gpuperf_slow_in_flight, entry_sp),
        FIELD(gpuperf_slow_in_flight, entry_bp), FIELD(gpuperf_slow_in_flight, thread_pointer),
        FIELD(gpuperf_slow_in_flight, state), FIELD(gpuperf_slow_in_flight, return_count),
        FIELD(gpuperf_slow_in_flight, returns)}},
      {"gpuperf_replaced_return",
       sizeof(gpuperf_replaced_return),
       {FIELD(gpuperf_replaced_return, sp), FIELD(gpuperf_replaced_return, address)}},
      {"gpuperf_process_key",
       sizeof(gpuperf_process_key),
       {FIELD(gpuperf_process_key, process_start_boot_ns), FIELD(gpuperf_process_key, pid),
        FIELD(gpuperf_process_key, pad)}},
      {"gpuperf_unwind_rule",
       sizeof(gpuperf_unwind_rule),
       {FIELD(gpuperf_unwind_rule, kind), FIELD(gpuperf_unwind_rule, bp_at),
        FIELD(gpuperf_unwind_rule, bp_offset_bytes), FIELD(gpuperf_unwind_rule, cfa_offset_bytes)}},
      {"gpuperf_unwind_key",
       sizeof(gpuperf_unwind_key),
       {FIELD(gpuperf_unwind_key, pc), FIELD(gpuperf_unwind_key, space),
        FIELD(gpuperf_unwind_key, is_exact)}},
      {"gpuperf_python_layout",
       sizeof(gpuperf_python_layout),
       {FIELD(gpuperf_python_layout, version),
        FIELD(gpuperf_python_layout, form),
        FIELD(gpuperf_python_layout, code_tag_mask),
        FIELD(gpuperf_python_layout, first_c_owner),
        FIELD(gpuperf_python_layout, instruction_is_pointer),
        FIELD(gpuperf_python_layout, instruction_unit_bytes),
        FIELD(gpuperf_python_layout, is_free_threaded),
        FIELD(gpuperf_python_layout, runtime_interpreters_head),
        FIELD(gpuperf_python_layout, interpreter_next),
        FIELD(gpuperf_python_layout, interpreter_threads_head),
        FIELD(gpuperf_python_layout, thread_next),
        FIELD(gpuperf_python_layout, thread_id),
        FIELD(gpuperf_python_layout, thread_frame),
        FIELD(gpuperf_python_layout, cframe_current_frame),
        FIELD(gpuperf_python_layout, cframe_previous),
        FIELD(gpuperf_python_layout, frame_previous),
        FIELD(gpuperf_python_layout, frame_code),
        FIELD(gpuperf_python_layout, frame_instruction),
        FIELD(gpuperf_python_layout, frame_owner),
        FIELD(gpuperf_python_layout, code_instructions),
        FIELD(gpuperf_python_layout, code_first_line),
        FIELD(gpuperf_python_layout, code_filename),
        FIELD(gpuperf_python_layout, code_name),
        FIELD(gpuperf_python_layout, code_qualified_name),
        FIELD(gpuperf_python_layout, code_lines),
        FIELD(gpuperf_python_layout, text_length),
        FIELD(gpuperf_python_layout, text_state),
        FIELD(gpuperf_python_layout, text_ascii),
        FIELD(gpuperf_python_layout, text_compact),
        FIELD(gpuperf_python_layout, bytes_length),
        FIELD(gpuperf_python_layout, bytes_data)}},
      {"gpuperf_address_space",
       sizeof(gpuperf_address_space),
       {FIELD(gpuperf_address_space, start_stack), FIELD(gpuperf_address_space, code_pages),
        FIELD(gpuperf_address_space, python_runtime), FIELD(gpuperf_address_space, space),
        FIELD(gpuperf_address_space, code_changes), FIELD(gpuperf_address_space, python)}},
      {"gpuperf_native_frame",
       sizeof(gpuperf_native_frame),
       {FIELD(gpuperf_native_frame, pc), FIELD(gpuperf_native_frame, sp)}},
      {"gpuperf_python_frame",
       sizeof(gpuperf_python_frame),
       {FIELD(gpuperf_python_frame, code), FIELD(gpuperf_python_frame, entry_sp),
        FIELD(gpuperf_python_frame, instruction_bytes), FIELD(gpuperf_python_frame, first_line)}},
      {"gpuperf_stack",
       sizeof(gpuperf_stack),
       {FIELD(gpuperf_stack, kind), FIELD(gpuperf_stack, length_bytes),
        FIELD(gpuperf_stack, stack_id), FIELD(gpuperf_stack, process_start_boot_ns),
        FIELD(gpuperf_stack, pid), FIELD(gpuperf_stack, tid), FIELD(gpuperf_stack, space),
        FIELD(gpuperf_stack, frame_count), FIELD(gpuperf_stack, end),
        FIELD(gpuperf_stack, python_is_cut), FIELD(gpuperf_stack, python_count),
        FIELD(gpuperf_stack, code_changes), FIELD(gpuperf_stack, bp),
        FIELD(gpuperf_stack, exact_frames), FIELD(gpuperf_stack, frames),
        FIELD(gpuperf_stack, python)}},
      {"gpuperf_stack_copy",
       sizeof(gpuperf_stack_copy),
       {FIELD(gpuperf_stack_copy, stack), FIELD(gpuperf_stack_copy, address),
        FIELD(gpuperf_stack_copy, part), FIELD(gpuperf_stack_copy, return_count),
        FIELD(gpuperf_stack_copy, copy_bytes), FIELD(gpuperf_stack_copy, present_pages),
        FIELD(gpuperf_stack_copy, returns), FIELD(gpuperf_stack_copy, copy)}},
      {"gpuperf_trace_order",
       sizeof(gpuperf_trace_order),
       {FIELD(gpuperf_trace_order, flags), FIELD(gpuperf_trace_order, scoped_count),
        FIELD(gpuperf_trace_order, stack_interval_ns), FIELD(gpuperf_trace_order, min_call_ns),
        FIELD(gpuperf_trace_order, long_call_ns)}},
      {"gpuperf_launch",
       sizeof(gpuperf_launch),
       {FIELD(gpuperf_launch, header), FIELD(gpuperf_launch, mono_ns),
        FIELD(gpuperf_launch, site_id), FIELD(gpuperf_launch, process_start_boot_ns),
        FIELD(gpuperf_launch, pid), FIELD(gpuperf_launch, tid), FIELD(gpuperf_launch, function_id),
        FIELD(gpuperf_launch, is_captured), FIELD(gpuperf_launch, exec)}},
      {"gpuperf_graph",
       sizeof(gpuperf_graph),
       {FIELD(gpuperf_graph, header), FIELD(gpuperf_graph, mono_ns),
        FIELD(gpuperf_graph, process_start_boot_ns), FIELD(gpuperf_graph, pid),
        FIELD(gpuperf_graph, tid), FIELD(gpuperf_graph, call), FIELD(gpuperf_graph, is_followed),
        FIELD(gpuperf_graph, handle), FIELD(gpuperf_graph, source)}},
      {"gpuperf_site",
       sizeof(gpuperf_site),
       {FIELD(gpuperf_site, header), FIELD(gpuperf_site, site_id), FIELD(gpuperf_site, stack_id),
        FIELD(gpuperf_site, shape), FIELD(gpuperf_site, functions),
        FIELD(gpuperf_site, function_count), FIELD(gpuperf_site, shape_at)}},
      {"gpuperf_traced_call",
       sizeof(gpuperf_traced_call),
       {FIELD(gpuperf_traced_call, header), FIELD(gpuperf_traced_call, start_mono_ns),
        FIELD(gpuperf_traced_call, duration_ns), FIELD(gpuperf_traced_call, off_cpu_ns),
        FIELD(gpuperf_traced_call, stack_id), FIELD(gpuperf_traced_call, process_start_boot_ns),
        FIELD(gpuperf_traced_call, pid), FIELD(gpuperf_traced_call, tid),
        FIELD(gpuperf_traced_call, function_id), FIELD(gpuperf_traced_call, depth)}},
      {"gpuperf_child_process",
       sizeof(gpuperf_child_process),
       {FIELD(gpuperf_child_process, header), FIELD(gpuperf_child_process, parent_start_boot_ns),
        FIELD(gpuperf_child_process, child_start_boot_ns), FIELD(gpuperf_child_process, parent_pid),
        FIELD(gpuperf_child_process, child_pid)}},
      {"gpuperf_process_exit",
       sizeof(gpuperf_process_exit),
       {FIELD(gpuperf_process_exit, header), FIELD(gpuperf_process_exit, process_start_boot_ns),
        FIELD(gpuperf_process_exit, pid), FIELD(gpuperf_process_exit, pad)}},
  };
  return rows;
}

struct Object {
  const char* name;
  const char* begin;
  const char* end;
};

class RecordsTest : public testing::TestWithParam<Object> {
 protected:
  void SetUp() override {
    // libbpf parses BTF from a file; a memory file is one.
    const Object& object = GetParam();
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    const auto length = static_cast<size_t>(object.end - object.begin);
    ASSERT_EQ(std::fwrite(object.begin, 1, length, file), length);
    ASSERT_EQ(std::fflush(file), 0);
    const std::string path = "/proc/self/fd/" + std::to_string(fileno(file));
    btf_.reset(btf__parse_elf(path.c_str(), nullptr));
    (void)std::fclose(file);
    ASSERT_NE(btf_, nullptr);
  }

  struct FreeBtf {
    void operator()(btf* value) const { btf__free(value); }
  };
  std::unique_ptr<btf, FreeBtf> btf_;
};

TEST_P(RecordsTest, HaveTheSameLayoutOnBothSides) {
  size_t compared = 0;
  for (const Layout& layout : layouts()) {
    const int id = btf__find_by_name_kind(btf_.get(), layout.name, BTF_KIND_STRUCT);
    ASSERT_GT(id, 0) << layout.name << " is not in the BTF of " << GetParam().name;
    const btf_type* type = btf__type_by_id(btf_.get(), static_cast<__u32>(id));
    std::vector<Field> fields;
    for (__u32 i = 0; i < btf_vlen(type); ++i) {
      const btf_member& member = btf_members(type)[i];
      fields.push_back({btf__name_by_offset(btf_.get(), member.name_off),
                        btf_member_bit_offset(type, i) / 8,
                        static_cast<size_t>(btf__resolve_size(btf_.get(), member.type))});
    }
    EXPECT_EQ(type->size, layout.size_bytes) << layout.name;
    EXPECT_EQ(fields, layout.fields) << layout.name;
    ++compared;
  }
  EXPECT_EQ(compared, layouts().size());
}

TEST_P(RecordsTest, TableCoversEveryStructOfTheContract) {
  for (__u32 id = 1; id < btf__type_cnt(btf_.get()); ++id) {
    const btf_type* type = btf__type_by_id(btf_.get(), id);
    if (btf_kind(type) != BTF_KIND_STRUCT) continue;
    const std::string_view name = btf__name_by_offset(btf_.get(), type->name_off);
    // These never leave the kernel: maps.bpf.h.
    if (name == "gpuperf_frame" || name == "gpuperf_thread" || name == "gpuperf_ghost" ||
        name == "gpuperf_off_cpu" || name == "gpuperf_sent_site" || name == "gpuperf_capturing" ||
        name.starts_with("gpuperf_known_rule") || name.starts_with("gpuperf_walk"))
      continue;
    if (!name.starts_with("gpuperf_")) continue;
    EXPECT_TRUE(std::any_of(layouts().begin(), layouts().end(),
                            [&](const Layout& layout) { return name == layout.name; }))
        << name << " has no row in this test";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Objects, RecordsTest,
    testing::Values(Object{"plain", gpuperf_bpf_plain_begin, gpuperf_bpf_plain_end},
                    Object{"session", gpuperf_bpf_session_begin, gpuperf_bpf_session_end},
                    Object{"session_ctx", gpuperf_bpf_session_ctx_begin,
                           gpuperf_bpf_session_ctx_end}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
