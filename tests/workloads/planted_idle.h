#pragma once

#include <istream>
#include <string>

// "CAUSE MS TIMES [LONGEST_MS]": so often calls planted_step, which launches a millisecond of work,
// waits for it, and then keeps the thread from launching for MS, by the cause: spin, fault, call,
// blocked_call, sleep, lock, read; once, in the middle, for LONGEST_MS.
// Answers with {"planted_ns": N}: how long that took all in all.
std::string plant_idle(std::istream& line);
