#include "daemon/resolve/stack_table.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace gpuperf {
namespace {

constexpr size_t kFirstPrune = 1024;

// FNV-1a, 64 bits: the same everywhere and for ever, which std::hash is not.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
    add_byte(0);
  }
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(number >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void add_byte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

size_t count_bytes(const Stack& stack) {
  size_t bytes = sizeof stack;
  for (const StackFrame& frame : stack.frames) {
    bytes +=
        sizeof frame + frame.symbol.capacity() + frame.module.capacity() + frame.file.capacity();
  }
  return bytes;
}

}  // namespace

uint64_t make_stack_id(const std::vector<StackFrame>& frames, StackEnd end) {
  Hash hash;
  hash.add(static_cast<uint64_t>(end));
  for (const StackFrame& frame : frames) {
    hash.add(static_cast<uint64_t>(frame.kind) << 1 | (frame.is_inlined ? 1 : 0));
    hash.add(frame.symbol);
    hash.add(frame.module);
    hash.add(frame.file);
    hash.add(frame.line);
    hash.add(frame.offset_bytes);
    if (frame.symbol.empty() && frame.module.empty()) hash.add(frame.address);
  }
  // SQLite's integers, which it is kept under, are signed, and 0 says that there is none.
  return std::max<uint64_t>(hash.value() & INT64_MAX, 1);
}

StackTable::StackTable(size_t raw_bytes, std::chrono::nanoseconds keep_gone,
                       OnForgotten on_forgotten)
    : keep_gone_(keep_gone), raw_(raw_bytes, std::move(on_forgotten)), prune_at_(kFirstPrune) {}

// One object for each process and place it is loaded at: addresses differ between those.
StackPtr StackTable::intern(std::vector<StackFrame> frames, StackEnd end) {
  const uint64_t id = make_stack_id(frames, end);
  Hash hash;
  for (const StackFrame& frame : frames) hash.add(frame.address);
  std::weak_ptr<const Stack>& known = stacks_[{id, hash.value()}];
  if (StackPtr stack = known.lock()) return stack;
  auto stack =
      std::make_shared<const Stack>(Stack{.id = id, .end = end, .frames = std::move(frames)});
  known = stack;
  if (stacks_.size() >= prune_at_) prune();
  return stack;
}

void StackTable::prune() {
  std::erase_if(stacks_, [](const auto& entry) { return entry.second.expired(); });
  prune_at_ = std::max(kFirstPrune, 2 * stacks_.size());
}

void StackTable::set(uint64_t raw_id, const ProcessKey& process, const StackPtr& stack) {
  (void)raw_.put(raw_id, {.stack = stack, .process = process}, sizeof(Raw) + count_bytes(*stack));
}

StackPtr StackTable::find(uint64_t raw_id) {
  const Raw* const raw = raw_.find(raw_id);
  return raw != nullptr ? raw->stack : nullptr;
}

void StackTable::forget_gone(const std::function<bool(const ProcessKey&)>& is_running,
                             int64_t now_mono_ns) {
  std::map<ProcessKey, std::optional<int64_t>> processes;  // nothing: it runs
  raw_.erase_if([&](uint64_t, const Raw& raw) {
    const auto [entry, is_new] = processes.try_emplace(raw.process);
    if (is_new) {
      const auto known = gone_mono_ns_.find(raw.process);
      if (known != gone_mono_ns_.end()) {
        entry->second = known->second;
      } else if (!is_running(raw.process)) {
        entry->second = now_mono_ns;
      }
    }
    return entry->second && std::chrono::nanoseconds(now_mono_ns - *entry->second) >= keep_gone_;
  });
  gone_mono_ns_.clear();
  for (const auto& [process, since_mono_ns] : processes) {
    if (since_mono_ns) gone_mono_ns_.emplace(process, *since_mono_ns);
  }
}

}  // namespace gpuperf
