#pragma once

// Functions that are run instruction by instruction: each is left in its own way, by its argument.

struct StepsCase {
  const char* name;  // of the symbol
  int (*run)(int);
};

extern const StepsCase kStepsCases[12];
