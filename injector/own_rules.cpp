#include "injector/own_rules.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cerrno>

#include "bpf/frame_rules.h"
#include "injector/own_memory.h"

namespace {

// Of the tables that recent rules were made from. A new stack needs several rules, and their tables
// have pages in common.
constexpr size_t kTablePages = 32;
using TablePages = gpuperf::injector::OwnPages<kTablePages>;

// A module's mapped range: damaged tables cannot lead outside it.
struct Module {
  uint64_t begin;
  uint64_t end;
  TablePages* pages;  // null = another thread uses them
};

}  // namespace

// Required by frame_cursor.h; `memory` is a Module.
static inline int frame_read(void* memory, __u64 address, void* to, __u32 size_bytes) {
  const auto& module = *static_cast<const Module*>(memory);
  if (address < module.begin || address > module.end || module.end - address < size_bytes) {
    return -1;
  }
  const bool is_read = module.pages == nullptr
                           ? gpuperf::injector::read_own(address, to, size_bytes)
                           : module.pages->read(address, to, size_bytes);
  return is_read ? 0 : -1;
}

namespace gpuperf::injector {
namespace {

using FindObject = int (*)(void* address, dl_find_object* result);

constexpr gpuperf_unwind_rule kNoRule = {};

// A key is | generation (16 bits) | pc (47) | is_exact (1) |. Generations begin at 1.
constexpr int kGenerationShift = 48;
constexpr uint64_t kGenerations = 0xffff;
constexpr uint64_t kPcEnd = uint64_t{1} << 47;
constexpr uint64_t kNoKey = 0;
constexpr uint64_t kBusyKey = 1;  // of no generation: its rule is being written

// A filled entry keeps its rule as long as its generation lasts.
struct Entry {
  std::atomic<uint64_t> key;
  std::atomic<uint64_t> rule;
};

// The table as mapped: all-zero entries have no key.
struct Table {
  static constexpr uint32_t kEntries = 1 << 16;
  static constexpr uint32_t kProbes = 8;

  Entry& at(uint64_t key, uint32_t probe) {
    const uint64_t mixed = key * 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio: Fibonacci hashing
    return entries[((mixed >> 48) + probe) % kEntries];
  }
  Entry entries[kEntries];
};

std::atomic<FindObject> g_find_object = nullptr;
std::atomic<Table*> g_table = nullptr;
std::atomic<uint64_t> g_forgotten = 0;  // how many times

uint64_t get_generation(uint64_t forgotten) { return forgotten % kGenerations + 1; }

Table* get_table() {
  Table* table = g_table.load(std::memory_order_acquire);
  if (table != nullptr) [[likely]]
    return table;
  void* memory =
      mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* mapped = static_cast<Table*>(memory);
  if (g_table.compare_exchange_strong(table, mapped, std::memory_order_acq_rel)) return mapped;
  (void)munmap(memory, sizeof(Table));  // another thread was first
  return table;
}

// Lends the copied pages to one thread at a time, emptied if they are of an older generation.
class PagesInUse {
 public:
  explicit PagesInUse(uint64_t generation) : is_mine_(!is_used_.exchange(true)) {
    if (!is_mine_) return;
    pages_.begin();
    if (generation_ == generation) return;
    pages_.clear();
    generation_ = generation;
  }
  ~PagesInUse() {
    if (is_mine_) is_used_ = false;
  }
  PagesInUse(const PagesInUse&) = delete;
  PagesInUse& operator=(const PagesInUse&) = delete;
  TablePages* get() { return is_mine_ ? &pages_ : nullptr; }

 private:
  static inline std::atomic<bool> is_used_ = false;
  static inline TablePages pages_;
  static inline uint64_t generation_ = 0;

  const bool is_mine_;
};

bool find_known(Table& table, uint64_t key, gpuperf_unwind_rule& rule) {
  for (uint32_t probe = 0; probe < Table::kProbes; ++probe) {
    Entry& entry = table.at(key, probe);
    if (entry.key.load(std::memory_order_acquire) != key) continue;
    const uint64_t found = entry.rule.load(std::memory_order_acquire);
    // Another key by now: the entry was taken for a later generation.
    if (entry.key.load(std::memory_order_relaxed) != key) return false;
    rule = std::bit_cast<gpuperf_unwind_rule>(found);
    return true;
  }
  return false;
}

void keep(Table& table, uint64_t key, const gpuperf_unwind_rule& rule) {
  for (uint32_t probe = 0; probe < Table::kProbes; ++probe) {
    Entry& entry = table.at(key, probe);
    uint64_t before = entry.key.load(std::memory_order_relaxed);
    if (before == key) return;
    if (before == kBusyKey || before >> kGenerationShift == key >> kGenerationShift) continue;
    if (!entry.key.compare_exchange_strong(before, kBusyKey, std::memory_order_relaxed)) continue;
    entry.rule.store(std::bit_cast<uint64_t>(rule), std::memory_order_release);
    entry.key.store(key, std::memory_order_release);
    return;
  }
}

// False: what is there cannot be read now, so do not keep the rule.
bool make_rule(uint64_t code_address, uint64_t generation, gpuperf_unwind_rule& rule) {
  rule = kNoRule;
  const FindObject find_object = g_find_object.load(std::memory_order_relaxed);
  if (find_object == nullptr) return false;
  dl_find_object object;
  // Code in no loaded file is not kept: a module may be mapped in its place.
  if (find_object(reinterpret_cast<void*>(code_address), &object) != 0) return false;
  if (object.dlfo_eh_frame == nullptr) return true;
  PagesInUse pages(generation);
  Module module = {reinterpret_cast<uint64_t>(object.dlfo_map_start),
                   reinterpret_cast<uint64_t>(object.dlfo_map_end), pages.get()};
  const auto table = reinterpret_cast<uint64_t>(object.dlfo_eh_frame);
  __u64 entry = 0;
  frame_result result = frame_find_entry(&module, table, module.end - table, code_address, &entry);
  if (result == FRAME_OK) result = frame_read_rule(&module, entry, code_address, &rule);
  if (result == FRAME_NONE) rule = frame_guess_rule();
  return result != FRAME_UNREADABLE;
}

}  // namespace

bool can_find_own_rules() {
  if (g_find_object.load(std::memory_order_relaxed) != nullptr) return true;
  // By name: a reference to it would keep the library from loading on an older glibc.
  void* const found = dlsym(RTLD_DEFAULT, "_dl_find_object");
  uint8_t byte = 0;
  if (found == nullptr || !read_own(reinterpret_cast<uint64_t>(found), &byte, sizeof byte)) {
    return false;
  }
  g_find_object.store(reinterpret_cast<FindObject>(found), std::memory_order_relaxed);
  return true;
}

gpuperf_unwind_rule find_own_rule(uint64_t pc, bool is_exact) {
  if (pc >= kPcEnd) return kNoRule;  // a kernel address
  const int before = errno;
  // Read before the rule is made: a rule of code unmapped meanwhile belongs to the past generation.
  const uint64_t generation = get_generation(g_forgotten.load(std::memory_order_acquire));
  const uint64_t key = generation << kGenerationShift | pc << 1 | (is_exact ? 1 : 0);
  Table* const table = get_table();
  gpuperf_unwind_rule rule;
  if (table == nullptr || !find_known(*table, key, rule)) {
    // For a return address, look up the call before it: the next function may begin at the address.
    const bool is_kept = make_rule(is_exact ? pc : pc - 1, generation, rule);
    if (is_kept && table != nullptr) keep(*table, key, rule);
  }
  errno = before;
  return rule;
}

void forget_own_rules() {
  const uint64_t forgotten = g_forgotten.load(std::memory_order_relaxed) + 1;
  Table* const table = g_table.load(std::memory_order_acquire);
  // The number is reused: what was kept under it must not be.
  if (forgotten % kGenerations == 0 && table != nullptr) {
    for (Entry& entry : table->entries) {
      if (entry.key.load(std::memory_order_relaxed) >> kGenerationShift ==
          get_generation(forgotten))
        entry.key.store(kNoKey, std::memory_order_relaxed);
    }
  }
  g_forgotten.store(forgotten, std::memory_order_release);
}

}  // namespace gpuperf::injector
