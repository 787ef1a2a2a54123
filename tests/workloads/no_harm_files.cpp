// Libraries that come and go while they are called.

#include <dlfcn.h>

#include "no_harm.h"

namespace workload {
namespace {

using Leaf = uint64_t (*)(uint64_t index);

// Opens the library, whose harm_leaf is index + 1, or index + 2 in its second version.
Leaf open_leaf(const Case& the_case, void*& library) {
  library = dlopen(the_case.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fprintf(stderr, "no_harm: %s\n", dlerror());
  Case::expect(library != nullptr, "the library opens");
  const Leaf leaf = reinterpret_cast<Leaf>(dlsym(library, "harm_leaf"));
  Case::expect(leaf != nullptr, "the library has harm_leaf");
  return leaf;
}

// Opens, calls and closes the library, again and again. Each time it is mapped anew.
void run_dlclose(Case& the_case) {
  for (uint64_t i = 0; i < the_case.times; ++i) {
    void* library = nullptr;
    const Leaf leaf = open_leaf(the_case, library);
    Case::expect(leaf(1) == 2, "leaf(1) is 2");
    Case::expect(dlclose(library) == 0, "the library closes");
  }
  the_case.count("leaf", the_case.times);
}

// Calls on for `times` milliseconds, whatever happens to the file meanwhile.
void run_keep_calling(Case& the_case) {
  void* library = nullptr;
  const Leaf leaf = open_leaf(the_case, library);
  const uint64_t step = leaf(0);
  Case::expect(step == 1 || step == 2, "leaf(0) is 1 or 2");
  const uint64_t end_ns = now_mono_ns() + the_case.times * 1'000'000;
  uint64_t calls = 1;
  for (; now_mono_ns() < end_ns; ++calls) {
    Case::expect(leaf(calls) == calls + step, "leaf adds what it added before");
  }
  the_case.count("leaf", calls);
}

constexpr CaseRow kCases[] = {
    {"dlclose", true, false, run_dlclose},
    {"keep_calling", true, false, run_keep_calling},
};

}  // namespace

std::span<const CaseRow> file_cases() { return kCases; }

}  // namespace workload
