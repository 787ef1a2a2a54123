#include "tests/unit/probe/samples/code_steps_sample.h"

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#define SAMPLE extern "C" __attribute__((noinline, visibility("default"))) int

namespace {

volatile int sink = 0;
int* volatile nowhere = nullptr;

struct Shape {
  virtual ~Shape() = default;
  virtual int measure(int scale) const = 0;
};
struct Square : Shape {
  int measure(int scale) const override { return scale * scale; }
};
struct Circle : Shape {
  int measure(int scale) const override { return 3 * scale; }
};
const Shape* volatile shapes[2];

__attribute__((noinline)) int twice(int value) {
  sink = sink + 1;
  return 2 * value;
}
__attribute__((noinline, cold)) int rarely(int value) {
  sink = sink + 2;
  return value - 1;
}
int (*volatile callback)(int) = twice;

}  // namespace

SAMPLE steps_leaf(int value) { return value > 3 ? value + 1 : value - 1; }

SAMPLE steps_tail(int value) {
  sink = sink + 1;
  return twice(value + 1);
}

SAMPLE steps_conditional_tail(int value) {
  if (value > 4) return twice(value);
  if (value < -1) return rarely(value);
  sink = value;
  return value;
}

SAMPLE steps_switch(int value) {
  switch (value) {
    case 0:
      return twice(7);
    case 1:
      sink = 4;
      break;
    case 2:
      return rarely(value);
    case 3:
      sink = 9;
      return steps_leaf(value);
    case 4:
      throw std::runtime_error("four");
    case 5:
      sink = sink + twice(2);
      [[fallthrough]];
    case 6:
      return sink;
    case 7:
      return twice(sink);
    default:
      return -1;
  }
  return sink * 3;
}

SAMPLE steps_throw(int value) {
  if (value % 5 == 3) throw std::out_of_range("three of five");
  return value;
}

SAMPLE steps_catch(int value) {
  try {
    const std::string text(static_cast<size_t>(40 + (value & 7)), 'x');
    return steps_throw(value) + static_cast<int>(text.size());
  } catch (const std::out_of_range& error) {
    if (value > 5) return rarely(value);
    sink = error.what()[0];
  }
  return steps_leaf(value);
}

SAMPLE steps_rethrow(int value) {
  const auto owned = std::make_unique<int>(value);
  try {
    return steps_throw(*owned);
  } catch (const std::exception&) {
    if (value < 5) throw;
    return twice(*owned);
  }
}

SAMPLE steps_virtual(int value) {
  static const Square square;
  static const Circle circle;
  shapes[0] = &square;
  shapes[1] = &circle;
  return shapes[value & 1]->measure(value);
}

SAMPLE steps_callback(int value) {
  if (value == 2) return 0;
  sink = value;
  return callback(value);
}

SAMPLE steps_recursion(int value) {
  if (value <= 0) return 1;
  return value + steps_recursion(value - 1) * steps_recursion(value - 3);
}

SAMPLE steps_loop(int value) {
  int sum = 0;
  while (value-- > 0) {
    sum += value % 3 == 0 ? sink : value;
    if (__builtin_expect(sum > 40, 0)) {
      if (nowhere != nullptr) abort();
      return rarely(sum);
    }
  }
  return sum;
}

SAMPLE steps_global_first(int value) {
  if (sink < 0) return rarely(value);
  const std::string text = std::to_string(value);
  return static_cast<int>(text.size());
}

const StepsCase kStepsCases[12] = {
    {"steps_leaf", steps_leaf},
    {"steps_tail", steps_tail},
    {"steps_conditional_tail", steps_conditional_tail},
    {"steps_switch", steps_switch},
    {"steps_throw", steps_throw},
    {"steps_catch", steps_catch},
    {"steps_rethrow", steps_rethrow},
    {"steps_virtual", steps_virtual},
    {"steps_callback", steps_callback},
    {"steps_recursion", steps_recursion},
    {"steps_loop", steps_loop},
    {"steps_global_first", steps_global_first},
};
