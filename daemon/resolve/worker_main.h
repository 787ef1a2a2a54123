#pragma once

#include <span>

namespace gpuperf {

// To be called first of all by main(): where a WorkerPool executed this process it becomes the
// worker and ends here. `words`: the command line.
void run_if_worker(std::span<char* const> words);

}  // namespace gpuperf
