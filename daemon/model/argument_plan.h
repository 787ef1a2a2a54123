#pragma once

// What to keep of a function's arguments, and how to show it.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpf/records.h"
#include "daemon/model/step_role.h"

namespace gpuperf {

// How a kept value reads as text.
enum class ArgumentFormat {
  kUnsigned,
  kSigned,  // sign-extended from its size
  kFloat,   // IEEE 754 of its size: only ones that lie in memory, SSE registers are not seen
  kBool,
  kHex,             // pointers and handles
  kString,          // blob: text up to its zero
  kArray,           // blob: `count` elements of `element` format and size
  kCode,            // a signed number most of whose values have names: `codes`
  kKernelHandle,    // CUfunction or CUkernel: its name where the call that made it was seen
  kKernelFunction,  // address of the kernel's host function: its symbol
  kHidden,          // not shown: kept for the totals alone
};

struct CodeName {
  int64_t code;
  std::string_view name;
};

// The value or blob of one capture of the plan.
struct ArgumentField {
  // Empty: shown together with the field before, as "(x, y, z)".
  std::string name;
  ArgumentFormat format = ArgumentFormat::kHex;
  gpuperf_capture capture{};
  std::span<const CodeName> codes;  // names of single values, of kCode and kHex; static
  ArgumentFormat element = ArgumentFormat::kSigned;  // kArray
  uint8_t element_bytes = 8;                         // kArray
  uint8_t count = 0;                                 // kArray; 0 = as many as were read
};

// What wants to know each single call of a function, beside its statistics.
enum class CallReport : uint8_t { kNone, kMemory, kNccl, kStep };

// Fields in the order they are shown; the position of a value among the fields is its number in
// `rules` (which holds everything of the contract but the captures). At most GPUPERF_VALUES fields,
// GPUPERF_BLOBS of them blobs. A value; shared once built.
struct ArgumentPlan {
  std::vector<ArgumentField> fields;
  gpuperf_plan rules{};
  // Types of a GEMM whose name says them (cublasDgemm): its shapes are kept with types 0.
  std::optional<std::array<uint16_t, 4>> shape_types;
  CallReport report = CallReport::kNone;  // who wants to know each single call
  StepRole step_role = StepRole::kNone;   // of kStep: why
};
bool operator==(const ArgumentPlan& a, const ArgumentPlan& b);

// The same plan, or none in both.
bool is_same_plan(const std::shared_ptr<const ArgumentPlan>& a,
                  const std::shared_ptr<const ArgumentPlan>& b);

// Types of A, B, C and of the computation of a shape that was kept with `kept`.
std::array<uint16_t, 4> get_shape_types(const ArgumentPlan* plan,
                                        const std::array<uint16_t, 4>& kept);

// Whether its calls are operators of an inference engine: counted at their entry, which says what
// they are.
inline bool is_operator(const ArgumentPlan* plan) {
  return plan != nullptr && plan->step_role == StepRole::kOperator;
}

// The number that was kept of a field that is no blob, as its type has it.
int64_t get_number(const ArgumentField& field, uint64_t kept);

// The contract's form of a plan.
gpuperf_plan to_contract(const ArgumentPlan& plan);

// One argument of a call, as text.
struct ArgumentText {
  std::string name;
  std::string value;
  bool operator==(const ArgumentText&) const = default;
};

// What the kernel kept of a slow call's arguments.
struct CallValues {
  std::array<uint64_t, GPUPERF_VALUES> values{};
  uint16_t unread = 0;             // bit per value
  std::vector<std::string> blobs;  // bytes read at return, in the order of the plan's blob fields
  bool operator==(const CallValues&) const = default;
};

// Names for pointers in arguments; both may answer nothing.
struct ArgumentNames {
  std::function<std::optional<std::string>(uint64_t handle)> find_kernel;   // kKernelHandle
  std::function<std::optional<std::string>(uint64_t address)> find_symbol;  // kKernelFunction
};

// One text per field that has a name and is shown; without a plan, "arg0" to "arg5" in hexadecimal.
// What could not be read says so. Text from the workload is bounded (a "…" stands where it was
// cut), and made printable by whoever shows it.
std::vector<ArgumentText> render_arguments(const ArgumentPlan* plan, const CallValues& values,
                                           const ArgumentNames& names);

}  // namespace gpuperf
