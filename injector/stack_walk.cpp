#include "injector/stack_walk.h"

#include <algorithm>
#include <cstring>

#include "injector/own_memory.h"
#include "injector/own_rules.h"

namespace gpuperf::injector {
namespace {

// Words that seldom change, as code objects' first lines: each lies on a page of its own, and to
// read each would cost a system call. A walk takes them as they were the last time and then
// compares all of them at once: if one has changed, the walk begins anew and reads them.
class SteadyWords {
 public:
  void begin(long pid) {
    pid_ = pid;
    count_ = 0;
    ++walk_;
  }
  // False: it is not known, and the walk has to read it.
  bool take(uint64_t address, void* to, uint32_t size_bytes) {
    Word& word = find(address);
    if (word.address != address || word.size_bytes != size_bytes) return false;
    if (word.walk != walk_) {
      if (count_ == kTakenMax) return false;
      taken_[count_++] = &word;
      word.walk = walk_;
    }
    std::memcpy(to, &word.value, size_bytes);
    return true;
  }
  // What the walk has read.
  void keep(uint64_t address, const void* from, uint32_t size_bytes) {
    Word& word = find(address);
    if (word.walk == walk_) return;  // it may have been taken
    word = {.address = address, .value = 0, .size_bytes = size_bytes, .walk = walk_};
    std::memcpy(&word.value, from, size_bytes);
  }
  // Whether all that the walk has taken are as they were. If not, none are known any more.
  bool are_unchanged() {
    if (count_ == 0) return true;
    size_t bytes = 0;
    for (size_t i = 0; i < count_; ++i) {
      const Word& word = *taken_[i];
      now_[i] = 0;
      local_[i] = {&now_[i], word.size_bytes};
      remote_[i] = {reinterpret_cast<void*>(word.address), word.size_bytes};
      bytes += word.size_bytes;
    }
    bool are_same = copy_own(pid_, local_, count_, remote_, count_) == bytes;
    for (size_t i = 0; i < count_; ++i) are_same = are_same && now_[i] == taken_[i]->value;
    if (!are_same) {
      for (Word& word : words_) word = {};
    }
    return are_same;
  }

 private:
  static constexpr size_t kWords = 256;
  static constexpr size_t kTakenMax = GPUPERF_PYTHON_FRAMES + 4;

  struct Word {
    uint64_t address;  // 0 = none
    uint64_t value;
    uint32_t size_bytes;
    uint32_t walk;  // that took or read it last
  };

  Word& find(uint64_t address) { return words_[mix(0, address) >> 56]; }

  Word words_[kWords] = {};
  Word* taken_[kTakenMax];
  size_t count_ = 0;
  // Of are_unchanged: not on the stack of the thread, which may be small.
  uint64_t now_[kTakenMax];
  iovec local_[kTakenMax];
  iovec remote_[kTakenMax];
  uint32_t walk_ = 0;
  long pid_ = 0;
};

// Reads words from copies of their pages: the thread stands still meanwhile. Keeps what it read.
class WordReader {
 public:
  void begin(const WalkStart& start, WalkedStack& stack) {
    stack_ = &stack;
    stack.word_count = 0;
    small_count_ = 0;
    step_count_ = 0;
    is_full_ = false;
    pages_.begin();
    pages_.clear();
    pages_.read_ahead(start.sp, stack_pages_);
    steady_.begin(pages_.pid());
  }
  // Of the thread's stack, up to `sp`, walked from `start` on: as many are read ahead the next
  // time.
  void end_stack(const WalkStart& start, uint64_t sp) {
    const uint64_t pages = sp / kPageBytes - start.sp / kPageBytes + 1;
    stack_pages_ = pages < kAheadMax ? pages : kAheadMax;
  }

  // 1, 4 or 8 bytes, or 16: two words.
  bool read(uint64_t address, void* to, uint32_t size_bytes) {
    if (!pages_.read(address, to, size_bytes)) return false;
    note(address, to, size_bytes);
    return true;
  }
  // Of 8 bytes at most, which seldom change. See are_steady.
  bool read_steady(uint64_t address, void* to, uint32_t size_bytes) {
    if (!steady_.take(address, to, size_bytes)) {
      if (!read_own(pages_.pid(), address, to, size_bytes)) return false;
      steady_.keep(address, to, size_bytes);
    }
    note(address, to, size_bytes);
    return true;
  }
  // False: not all words were what read_steady said. The walk must begin anew.
  bool are_steady() { return steady_.are_unchanged(); }

  // The words read since the last call, not kept yet.
  StackWord* step() { return step_; }
  uint32_t step_count() const { return step_count_; }
  void end_step() { step_count_ = 0; }
  void keep_step() {
    for (uint32_t i = 0; i < step_count_; ++i) keep(step_[i]);
    step_count_ = 0;
  }
  void keep(const StackWord& word) {
    if (stack_->word_count + small_count_ == WalkedStack::kWordsMax) {
      is_full_ = true;
    } else if (word.size_bytes == sizeof(uint64_t)) {
      stack_->words[stack_->word_count++] = word;
    } else {
      stack_->words[WalkedStack::kWordsMax - ++small_count_] = word;
    }
  }
  // Smaller words come last: they are not addresses, and nothing is found through them.
  void end() {
    StackWord* const from = stack_->words + WalkedStack::kWordsMax - small_count_;
    std::copy_n(from, small_count_, stack_->words + stack_->word_count);
    stack_->word_count += small_count_;
    small_count_ = 0;
  }
  // More words than can be kept: the same stack cannot be recognized again.
  bool is_full() const { return is_full_; }

 private:
  static constexpr size_t kPages = 8;
  static constexpr size_t kAheadMax = 4;
  static constexpr uint64_t kPageBytes = OwnPages<kPages>::kPageBytes;
  static constexpr uint32_t kStepWords = 16;  // a step reads at most 7 times

  void note(uint64_t address, const void* from, uint32_t size_bytes) {
    const uint32_t word_bytes = size_bytes > 8 ? 8 : size_bytes;
    for (uint32_t at = 0; at < size_bytes; at += word_bytes) {
      uint64_t value = 0;
      std::memcpy(&value, static_cast<const std::byte*>(from) + at, word_bytes);
      if (step_count_ < kStepWords) step_[step_count_++] = {address + at, word_bytes, value};
    }
  }

  WalkedStack* stack_;
  OwnPages<kPages> pages_;
  SteadyWords steady_;
  StackWord step_[kStepWords];
  uint32_t step_count_;
  uint32_t small_count_;
  size_t stack_pages_ = 1;
  bool is_full_;
};

int unwind_read(void* memory, uint64_t address, void* to, uint32_t size_bytes) {
  return static_cast<WordReader*>(memory)->read(address, to, size_bytes) ? 0 : -1;
}

int python_read(void* memory, uint64_t address, void* to, uint32_t size_bytes) {
  return unwind_read(memory, address, to, size_bytes);
}

int python_read_first_line(void* memory, uint64_t address, uint32_t* first_line) {
  auto* const reader = static_cast<WordReader*>(memory);
  return reader->read_steady(address, first_line, sizeof(*first_line)) ? 0 : -1;
}

#include "bpf/python_frames.h"
#include "bpf/unwind.h"

WordReader g_reader;

// Whether all the thread's frames belong to one interpreter. To find others' states takes a search
// during which the thread must stand still for longer than its own hook may take.
bool has_one_interpreter(const OwnPython& python) {
  const gpuperf_python_layout& layout = python.layout;
  uint64_t interpreter = 0, next = 0;
  const bool is_read =
      g_reader.read_steady(python.runtime + layout.runtime_interpreters_head, &interpreter,
                           sizeof(interpreter)) &&
      interpreter != 0 &&
      g_reader.read_steady(interpreter + layout.interpreter_next, &next, sizeof(next));
  g_reader.end_step();
  return is_read && next == 0;
}

bool walk_python_once(const WalkStart& start, const OwnPython& python, WalkedStack& stack) {
  // The interpreter's own frames in between, at most one or two for each, count as steps.
  constexpr size_t kStepsMax = 3 * GPUPERF_PYTHON_FRAMES;
  if (!has_one_interpreter(python)) return false;
  python_walk walk = {};
  const bool has_begun =
      python_begin_walk(&g_reader, &python.layout, start.python_thread, &walk) == 0;
  g_reader.keep_step();
  if (!has_begun) return false;
  for (size_t i = 0; i < kStepsMax; ++i) {
    gpuperf_python_frame frame = {};
    const python_step step = python_step_walk(&g_reader, &python.layout, &walk, &frame);
    g_reader.keep_step();
    if (step == PYTHON_STEP_NEXT) continue;
    if (step == PYTHON_STEP_END) return true;
    if (step == PYTHON_STEP_UNREADABLE) return false;
    if (stack.head.python_count == GPUPERF_PYTHON_FRAMES) break;
    stack.python[stack.head.python_count++] = frame;
  }
  stack.head.python_is_cut = 1;
  return true;
}

bool walk_python(const WalkStart& start, const OwnPython& python, WalkedStack& stack) {
  const bool is_walked = walk_python_once(start, python, stack);
  if (g_reader.are_steady()) return is_walked;
  g_reader.begin(start, stack);
  stack.head = {};
  return walk_python_once(start, python, stack);
}

// Walks by the frames' rules and tracks where bp came from, which may not need to be known.
class NativeWalk {
 public:
  NativeWalk(const WalkStart& start, WalkedStack& stack)
      : stack_(stack), frame_{start.pc, start.sp, start.bp, 0} {}

  // Up to where the walk came.
  uint64_t sp() const { return frame_.sp; }

  bool walk() {
    for (;;) {
      if (stack_.head.frame_count == GPUPERF_STACK_FRAMES) {
        stack_.head.end = GPUPERF_STACK_CUT;
        return true;
      }
      add_frame();
      const gpuperf_unwind_rule rule = find_own_rule(frame_.pc, frame_.is_exact != 0);
      if (rule.kind == GPUPERF_UNWIND_UNKNOWN) return false;
      if (uses_bp(rule)) keep_bp();
      const int end = unwind_step(&g_reader, &rule, &frame_);
      keep_words(rule);
      if (end == GPUPERF_STACK_UNREADABLE) return false;
      if (end == UNWIND_GOES_ON) continue;
      stack_.head.end = static_cast<uint8_t>(end);
      return true;
    }
  }

 private:
  static bool uses_bp(const gpuperf_unwind_rule& rule) {
    return rule.kind == GPUPERF_UNWIND_BP || rule.kind == GPUPERF_UNWIND_BP_MEMORY ||
           rule.kind == GPUPERF_UNWIND_GUESS || rule.bp_at == GPUPERF_UNWIND_BP_AT_BP;
  }

  void add_frame() {
    const uint32_t at = stack_.head.frame_count++;
    stack_.frames[at] = {frame_.pc, frame_.sp};
    if (frame_.is_exact != 0) stack_.head.exact_frames[at / 64] |= uint64_t{1} << (at % 64);
  }

  // Where the next frame lies depends on bp, and so on the word that bp was read from.
  void keep_bp() {
    if (is_start_bp_) stack_.starts_by_bp = true;
    if (has_bp_word_) g_reader.keep(bp_word_);
    has_bp_word_ = is_start_bp_ = false;
  }

  // Keeps all that the step read, except the caller's bp, which is mostly used for something else.
  void keep_words(const gpuperf_unwind_rule& rule) {
    const uint32_t first_kept = rule.kind == GPUPERF_UNWIND_BP_MEMORY ? 1 : 0;
    for (uint32_t i = 0; i < g_reader.step_count(); ++i) {
      const StackWord& word = g_reader.step()[i];
      const bool is_return = word.address == frame_.sp - 8;
      if (is_return || i < first_kept || rule.kind == GPUPERF_UNWIND_SIGNAL) {
        g_reader.keep(word);
        if (rule.kind == GPUPERF_UNWIND_SIGNAL) has_bp_word_ = is_start_bp_ = false;
      } else {
        bp_word_ = word;
        has_bp_word_ = true;
        is_start_bp_ = false;
      }
    }
    g_reader.end_step();
  }

  WalkedStack& stack_;
  unwind_frame frame_;
  StackWord bp_word_ = {};
  bool has_bp_word_ = false;  // bp is what this word says
  bool is_start_bp_ = true;   // bp is what it was at the start
};

uint64_t name_stack(const WalkedStack& stack) {
  uint64_t id = mix(stack.head.end, stack.head.python_is_cut);
  for (uint32_t i = 0; i < stack.head.frame_count; ++i) id = mix(id, stack.frames[i].pc);
  for (const __u64 exact : stack.head.exact_frames) id = mix(id, exact);
  for (uint32_t i = 0; i < stack.head.python_count; ++i) {
    const gpuperf_python_frame& frame = stack.python[i];
    // Where an evaluation ends tells between which native frames it stands.
    id = mix(mix(id, frame.code ^ (frame.entry_sp != 0 ? uint64_t{1} << 63 : 0)),
             uint64_t{frame.first_line} << 32 | frame.instruction_bytes);
  }
  return id;
}

}  // namespace

bool walk_own_stack(const WalkStart& start, const OwnPython* python, WalkedStack& stack) {
  stack.head = {};
  stack.starts_by_bp = false;
  g_reader.begin(start, stack);
  // Python's words first: they differ where stacks are otherwise alike.
  bool is_whole =
      python == nullptr || start.python_thread == 0 || walk_python(start, *python, stack);
  if (is_whole) {
    NativeWalk walk(start, stack);
    is_whole = walk.walk();
    g_reader.end_stack(start, walk.sp());
  }
  g_reader.end();
  if (!is_whole || g_reader.is_full()) return false;
  stack.head.stack_id = name_stack(stack);
  return true;
}

}  // namespace gpuperf::injector
