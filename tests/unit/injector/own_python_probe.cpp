// Loaded by a real Python (own_python_probe.py).

#include "injector/own_python.h"

extern "C" __attribute__((visibility("default"))) const gpuperf::injector::OwnPython*
find_python() {
  return gpuperf::injector::find_own_python();
}
