#include "daemon/resolve/kernel_symbols.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <string_view>

namespace gpuperf {
namespace {

constexpr int64_t kReadAgainNs = 60'000'000'000;
constexpr std::string_view kKernel = "[kernel]";
// A return address further into a function is another's: the largest functions of the kernel
// have some 30 KB.
constexpr uint64_t kMaxFunctionBytes = 1 << 17;

// "ffffffff81000000 T _text" or "ffffffffc0001000 t nv_open\t[nvidia]".
struct Line {
  uint64_t address = 0;
  char type = 0;
  std::string_view name;
  std::string_view module = kKernel;
};

bool parse_line(std::string_view text, Line& line) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), line.address, 16);
  const auto type_at = static_cast<size_t>(parsed.ptr - text.data()) + 1;
  if (parsed.ec != std::errc() || type_at + 2 > text.size()) return false;
  line.type = text[type_at];
  line.name = text.substr(type_at + 2);
  if (const size_t tab = line.name.find('\t'); tab != std::string_view::npos) {
    line.module = line.name.substr(tab + 1);
    line.name = line.name.substr(0, tab);
  }
  return !line.name.empty() && line.name.size() <= std::numeric_limits<uint16_t>::max();
}

}  // namespace

void KernelSymbols::read() {
  entries_.clear();
  names_.clear();
  modules_.assign(1, std::string(kKernel));
  std::map<std::string, uint16_t, std::less<>> module_ids{{std::string(kKernel), uint16_t{0}}};
  std::ifstream file(path_);
  for (std::string text; std::getline(file, text);) {
    Line line;
    if (!parse_line(text, line) || line.address == 0) continue;
    if (std::string_view("tTwW").find(line.type) == std::string_view::npos) continue;
    auto module = module_ids.find(line.module);
    if (module == module_ids.end()) {
      module = module_ids.emplace(line.module, static_cast<uint16_t>(modules_.size())).first;
      modules_.emplace_back(line.module);
    }
    entries_.push_back({.address = line.address,
                        .name_offset = static_cast<uint32_t>(names_.size()),
                        .name_length = static_cast<uint16_t>(line.name.size()),
                        .module = module->second});
    names_ += line.name;
  }
  std::ranges::stable_sort(entries_, {}, &Entry::address);
  entries_.shrink_to_fit();
  names_.shrink_to_fit();
}

StackFrame KernelSymbols::find_frame(const CodeAddress& code) const {
  StackFrame frame{.address = code.address, .kind = StackFrameKind::kKernel};
  const auto after =
      std::ranges::upper_bound(entries_, get_looked_up_address(code), {}, &Entry::address);
  if (after == entries_.begin()) return frame;
  const Entry& entry = *std::prev(after);
  if (code.address - entry.address > kMaxFunctionBytes) return frame;
  frame.symbol = names_.substr(entry.name_offset, entry.name_length);
  frame.module = modules_[entry.module];
  frame.offset_bytes = code.address - entry.address;
  return frame;
}

std::vector<StackFrame> KernelSymbols::find_frames(std::span<const CodeAddress> addresses,
                                                   int64_t now_mono_ns) {
  std::vector<StackFrame> frames;
  const auto find_all = [&] {
    frames.clear();
    for (const CodeAddress& code : addresses) frames.push_back(find_frame(code));
    return std::ranges::none_of(frames,
                                [](const StackFrame& frame) { return frame.symbol.empty(); });
  };
  if (read_mono_ns_ != 0 && (find_all() || now_mono_ns - read_mono_ns_ < kReadAgainNs)) {
    return frames;
  }
  read();
  read_mono_ns_ = now_mono_ns;
  (void)find_all();
  return frames;
}

}  // namespace gpuperf
