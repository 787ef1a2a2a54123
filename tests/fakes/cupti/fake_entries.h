#pragma once

// The entries of the fake driver that launch hooks know (GPUPERF_HOOK_ENTRIES), each with the type
// that fits all: words in, a word out. Without cuda.h, which renames functions to their newer
// forms.

#include <cstddef>
#include <cstdint>

#include "bpf/hook_notes.h"

constexpr size_t kFakeArguments = 11;  // of the entry that has the most

using FakeEntry = uint32_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                               uint64_t, uint64_t, uint64_t, uint64_t);

// A call as it came into the driver. What an entry does not take is not told.
struct FakeEntryCall {
  uint32_t entry;  // enum gpuperf_hook_entry
  bool is_stack_aligned;
  uint64_t arguments[kFakeArguments];
};

struct FakeEntryRow {
  const char* name;
  uint32_t callback_id;  // CUPTI_DRIVER_TRACE_CBID_*
  size_t argument_count;
  FakeEntry function;
};
extern "C" const FakeEntryRow kFakeEntries[GPUPERF_HOOK_COUNT];

extern "C" {
// The calling thread's last call that was no runtime's.
FakeEntryCall fake_entry_last();
// What the calling thread's calls return from now on, and what they do before; null = nothing.
void fake_entry_prepare(uint32_t result, void (*inside)());
// fake_cuda.cpp: what an entry does for a runtime that asked for work. False: no runtime did.
bool fake_cuda_obey(uint32_t entry, uint32_t& result);
}
