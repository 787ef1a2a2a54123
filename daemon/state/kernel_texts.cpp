#include "daemon/state/kernel_texts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/demangle.h"

namespace gpuperf {
namespace {

bool opens(char c) { return c == '<' || c == '(' || c == '{' || c == '['; }
bool closes(char c) { return c == '>' || c == ')' || c == '}' || c == ']'; }

// Without its parameters: the last group of parentheses that is no part of anything else. A name
// such as "(anonymous namespace)::f" keeps its own, because more follows.
std::string_view cut_parameters(std::string_view name) {
  if (name.ends_with(" const")) name.remove_suffix(6);
  if (!name.ends_with(')')) return name;
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (closes(name[i])) ++depth;
    if (opens(name[i]) && --depth == 0) return i == 0 ? name : name.substr(0, i);
  }
  return name;  // not balanced: "operator<" and the like
}

// Without what stands before the name: a return type, which only templates have.
std::string_view cut_return_type(std::string_view name) {
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    if (closes(name[i])) ++depth;
    if (opens(name[i])) --depth;
    if (depth == 0 && name[i] == ' ') return name.substr(i + 1);
  }
  return name;
}

// Every qualified name in it without its qualifiers.
std::string cut_qualifiers(std::string_view name) {
  std::string brief;
  std::vector<size_t> begins = {0};  // of the qualified name at hand, at each depth
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == ':' && i + 1 < name.size() && name[i + 1] == ':') {
      brief.resize(std::min(brief.size(), begins.back()));
      ++i;
      continue;
    }
    if (c == ' ' && i + 1 < name.size() && name[i + 1] == '>') continue;  // "> >" is ">>"
    brief += c;
    if (opens(c)) {
      begins.push_back(brief.size());
    } else if (closes(c) && begins.size() > 1) {
      begins.pop_back();
    } else if (c == ' ' || c == ',' || c == '*' || c == '&') {
      begins.back() = brief.size();
    }
  }
  return brief;
}

void cut_to(std::string& text, size_t bytes) {
  if (text.size() <= bytes) return;
  size_t end = bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  text += "…";
}

}  // namespace

std::string shorten_kernel_name(std::string_view demangled) {
  std::string brief = cut_qualifiers(cut_return_type(cut_parameters(demangled)));
  if (brief.empty()) brief = demangled;
  cut_to(brief, kMaxBriefBytes);
  return brief;
}

const KernelTextPtr& KernelTexts::get_other() {
  static const KernelTextPtr kOther = std::make_shared<const KernelText>(
      KernelText{.serial = 0, .full = "other", .brief = "other"});
  return kOther;
}

size_t KernelTexts::get_bytes(const std::string& mangled, const KernelText& text) {
  constexpr size_t kEntryBytes = 160;  // the two objects and the table's own
  return mangled.size() + text.full.size() + text.brief.size() + kEntryBytes;
}

KernelTextPtr KernelTexts::get(const std::string& mangled, bool is_cut, uint32_t uid) {
  loop_thread_.check();
  const auto found = texts_.find(mangled);
  if (found != texts_.end()) return found->second.text;
  // Before it costs anything; what the demangled name is longer is added to it.
  const size_t first_bytes = std::max(get_bytes(mangled, {}), min_bytes_);
  if (!find_room({.uid = uid}, first_bytes)) {
    drops_.add(DropCause::kKernelNamesFull);
    return get_other();
  }
  KernelText text{.serial = next_serial_++, .full = demangle(mangled), .brief = {}};
  if (is_cut) text.full += "…";
  text.brief = shorten_kernel_name(text.full);
  cut_to(text.full, kMaxFullBytes);
  const size_t bytes = std::max(get_bytes(mangled, text), first_bytes);
  shares_.add({.uid = uid}, bytes - first_bytes);
  const Entry entry{std::make_shared<const KernelText>(std::move(text)), uid, bytes};
  return texts_.emplace(mangled, entry).first->second.text;
}

// And takes it.
bool KernelTexts::find_room(Shares::Holder holder, size_t bytes) {
  const auto take = [&] {
    return texts_.size() < max_names_ && shares_.take(holder, bytes) == Shares::Verdict::kTaken;
  };
  if (take()) return true;
  if (!std::exchange(may_sweep_, false)) return false;
  sweep();
  return take();
}

void KernelTexts::sweep() {
  // Whoever holds one besides is the loop, or a snapshot: then it is no mistake to keep it.
  std::erase_if(texts_, [this](const auto& entry) {
    if (entry.second.text.use_count() > 1) return false;
    shares_.give_back({.uid = entry.second.uid}, entry.second.bytes);
    return true;
  });
}

}  // namespace gpuperf
