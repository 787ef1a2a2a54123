// Lies to the daemon through the notes of the injected library for as long as it runs:
//   lying_notes SEED

#include <cstdint>
#include <cstdlib>

extern "C" void tell_lies(uint32_t seed, int count);

int main(int argc, char** argv) {
  const auto seed = static_cast<uint32_t>(argc > 1 ? atoi(argv[1]) : 1);
  for (;;) tell_lies(seed, 1000);
}
