// The driver's entries take what their hooks hand on: see injector/hook_code.h.

#define __CUDA_API_VERSION_INTERNAL  // cuda.h declares every form of a function, under its own name
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "bpf/hook_notes.h"

namespace {

template <typename Argument>
constexpr bool kIsWord = (std::is_integral_v<Argument> || std::is_enum_v<Argument> ||
                          std::is_pointer_v<Argument>)&&sizeof(Argument) <= sizeof(uint64_t);

// How many arguments; -1 = not all are words.
template <typename... Arguments>
constexpr int count_words(CUresult (*)(Arguments...)) {
  return (kIsWord<Arguments> && ...) ? int{sizeof...(Arguments)} : -1;
}

TEST(EntrySignaturesTest, TakeAsManyWordsAsTheListSays) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define GPUPERF_CHECK(name, arguments) \
  static_assert(count_words(decltype(&::name){}) == (arguments), #name);
  GPUPERF_HOOK_ENTRIES(GPUPERF_CHECK)
#undef GPUPERF_CHECK
#pragma GCC diagnostic pop
}

}  // namespace
