// Any bytes as the name of a function: demangled, and searched for what somebody would call it.

#include "daemon/base/demangle.h"
#include "daemon/probe/elf/cpp_name.h"
#include "tests/fuzz/fuzz_target.h"

namespace gpuperf::fuzz {

std::string find_fault(std::string_view bytes) {
  constexpr size_t kMaxNameBytes = size_t{16} << 20;
  const std::string name = demangle(bytes);
  if (name.size() > kMaxNameBytes) return "a name that expands beyond reason";
  const std::string brief(find_cpp_name(name));
  (void)find_mangled_piece(fold_cpp_name(brief));
  (void)demangle(cut_mangled_parameters(bytes));
  return "";
}

}  // namespace gpuperf::fuzz
