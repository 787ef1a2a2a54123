#pragma once

// The same in C++, compiled as the libraries of PyTorch are: optimised, with exceptions, cold parts
// apart from the body, and tail calls. An exception may pass through every one of them.

#include <cstdint>

namespace demo {

using Callback = uint64_t (*)(void* argument);

uint64_t leaf(uint64_t index);                       // index + 1
uint64_t call(Callback callback, void* argument);    // what it returns, + 1
uint64_t outer(Callback callback, void* argument);   // what `call` returns, + 1
uint64_t tail(Callback callback, void* argument);    // ends in a jump to `call`
uint64_t rescue(Callback callback, void* argument);  // catches what `call` throws and returns 0
uint64_t checked(uint64_t index);  // throws std::out_of_range where index % 10 == 3
uint64_t choose(uint64_t index);   // a jump table and several returns; index * (index % 8)

}  // namespace demo
