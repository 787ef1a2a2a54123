// The C side of the Python stacks, through ctypes: calls back into Python from a frame of its own.

#include <stdint.h>

typedef uint64_t (*python_function)(uint64_t);

__attribute__((noipa)) uint64_t call_back(python_function function, uint64_t value) {
  return function(value) + 1;
}

// Two C frames in a row.
__attribute__((noipa)) uint64_t call_back_twice(python_function function, uint64_t value) {
  return call_back(function, value) + 1;
}
