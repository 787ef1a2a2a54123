/* Calls count_fast twice and ends: as little as a process with a probed call can be, to start thousands of. */

#include "count_target.h"

int main(void) { return count_fast(count_fast(0, 0), 0) == 2 ? 0 : 1; }
