// Lies to the daemon through the notes of the injected library for as long as it runs, and by what
// lies in its memory when it executes itself anew, which it does again and again:
//   lying_notes SEED

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" void tell_lies(uint32_t seed, int count);

int main(int argc, char** argv) {
  const auto seed = static_cast<uint32_t>(argc > 1 ? atoi(argv[1]) : 1);
  tell_lies(seed, 1000);
  (void)execl("/proc/self/exe", argv[0], std::to_string(seed + 100).c_str(), nullptr);
  return 1;
}
