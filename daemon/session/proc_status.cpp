#include "daemon/session/proc_status.h"

#include <algorithm>
#include <charconv>

#include "daemon/base/proc_text.h"

namespace gpuperf {
namespace {

// Some 1.5 KiB, more where the masks of CPUs and memory nodes are long.
constexpr size_t kMaxStatusBytes = size_t{64} << 10;

}  // namespace

Result<InnerId> read_inner_id(std::string_view folder, uint32_t id) {
  ASSIGN_OR_RETURN(const BoundedText status,
                   read_bounded_text(get_proc_path(folder, id, "status"), kMaxStatusBytes));
  return parse_inner_id(status.text, id);
}

// "NSpid:\t1234\t1\n": outermost first. A name of the process cannot hold a line break there.
InnerId parse_inner_id(std::string_view status, uint32_t id) {
  constexpr std::string_view kKey = "\nNSpid:";
  InnerId inner{.id = id};
  const size_t at = status.find(kKey);
  if (at == std::string_view::npos) return inner;
  status.remove_prefix(at + kKey.size());
  status = status.substr(0, status.find('\n'));
  const size_t last = status.rfind('\t');
  if (last == std::string_view::npos) return inner;
  (void)std::from_chars(status.data() + last + 1, status.data() + status.size(), inner.id);
  inner.is_namespace_ours = std::ranges::count(status, '\t') <= 1;
  return inner;
}

}  // namespace gpuperf
