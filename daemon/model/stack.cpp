#include "daemon/model/stack.h"

namespace gpuperf {

static_assert(static_cast<int>(StackEnd::kCut) == GPUPERF_STACK_CUT);
static_assert(static_cast<int>(StackEnd::kBroken) == GPUPERF_STACK_BROKEN);

std::string_view get_stack_end_name(StackEnd end) {
  switch (end) {
    case StackEnd::kComplete:
      return "complete";
    case StackEnd::kCut:
      return "cut";
    case StackEnd::kUnknown:
      return "unknown";
    case StackEnd::kUnreadable:
      return "unreadable";
    case StackEnd::kBroken:
      return "broken";
  }
  return "broken";  // cannot be: every enumerator is above
}

}  // namespace gpuperf
