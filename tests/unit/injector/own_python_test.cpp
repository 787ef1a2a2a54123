#include "injector/own_python.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "bpf/python_layouts.h"
#include "tests/unit/unwind/python_offsets.h"

namespace gpuperf::injector {
namespace {

bool is_same(const gpuperf_python_layout& a, const gpuperf_python_layout& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

gpuperf_python_layout make_unknown(uint16_t version) {
  gpuperf_python_layout layout = {};
  layout.version = version;
  return layout;
}

// Whether a process of its own finds what it should: a Python found is found for good.
template <typename Check>
bool holds_in_a_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A library that exports what a CPython does, loaded for nobody else.
struct FakePython {
  void* library;
  uint64_t* runtime;
  unsigned long* version;  // null: as before 3.11
};

FakePython load_fake(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return {library, static_cast<uint64_t*>(dlsym(library, "_PyRuntime")),
          static_cast<unsigned long*>(dlsym(library, "Py_Version"))};
}

bool finds(const FakePython& fake, const gpuperf_python_layout& layout) {
  const OwnPython* const found = find_own_python();
  return found != nullptr && found->runtime == reinterpret_cast<uint64_t>(fake.runtime) &&
         is_same(found->layout, layout) &&
         reinterpret_cast<void*>(found->find_thread) ==
             dlsym(fake.library, "PyGILState_GetThisThreadState") &&
         find_own_python() == found;
}

bool finds_version(uint32_t version_hex, const gpuperf_python_layout& layout) {
  return holds_in_a_child([&] {
    const FakePython fake = load_fake(FAKE_PYTHON_311);
    *fake.version = version_hex;
    return finds(fake, layout);
  });
}

TEST(OwnPythonTest, FindsNoneWhereThereIsNone) { EXPECT_EQ(find_own_python(), nullptr); }

TEST(OwnPythonTest, FindsOneThatComesLaterAndIsLoadedForNobodyElse) {
  EXPECT_TRUE(holds_in_a_child([] {
    if (find_own_python() != nullptr) return false;
    const FakePython fake = load_fake(FAKE_PYTHON_311);
    *fake.version = 0x030b02f0;
    return finds(fake, *find_python_layout(0x030b));
  }));
}

TEST(OwnPythonTest, KnowsEachVersionThatSaysWhichItIs) {
  EXPECT_TRUE(finds_version(0x030b02f0, *find_python_layout(0x030b)));
  EXPECT_TRUE(finds_version(0x030c0af0, *find_python_layout(0x030c)));
}

TEST(OwnPythonTest, KnowsOlderVersionsByWhatTheyExport) {
  EXPECT_TRUE(holds_in_a_child(
      [] { return finds(load_fake(FAKE_PYTHON_38), *find_python_layout(0x0308)); }));
  EXPECT_TRUE(holds_in_a_child(
      [] { return finds(load_fake(FAKE_PYTHON_39), *find_python_layout(0x0309)); }));
  EXPECT_TRUE(holds_in_a_child(
      [] { return finds(load_fake(FAKE_PYTHON_310), *find_python_layout(0x030a)); }));
}

TEST(OwnPythonTest, TakesTheLayoutThatARuntimeDescribes) {
  const PythonDebugOffsets offsets = make_python_313_offsets();
  EXPECT_TRUE(holds_in_a_child([&] {
    const FakePython fake = load_fake(FAKE_PYTHON_311);
    *fake.version = 0x030d05f0;
    std::copy(offsets.begin(), offsets.end(), fake.runtime);
    return finds(fake, *decode_python_debug_offsets(offsets));
  }));
}

TEST(OwnPythonTest, TellsAPythonWithoutAKnownLayoutFromNone) {
  EXPECT_TRUE(finds_version(0x030d05f0, make_unknown(0x030d)));  // describes nothing
  EXPECT_TRUE(finds_version(0x031000f0, make_unknown(0x0310)));
  EXPECT_TRUE(finds_version(0x030700f0, make_unknown(0x0307)));
  EXPECT_TRUE(finds_version(0, make_unknown(0)));
  EXPECT_TRUE(holds_in_a_child([] { return finds(load_fake(FAKE_PYTHON_37), make_unknown(0)); }));
}

TEST(OwnPythonTest, FindsTheRuntimeAndTheThreadOfARealPython) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a library with AddressSanitizer cannot be loaded into the system's Python";
#endif
  const std::string script = std::string(OWN_PYTHON_SCRIPT) + " " + OWN_PYTHON_PROBE + " " +
                             std::to_string(sizeof(gpuperf_python_layout));
  FILE* const pipe = popen(("/usr/bin/python3 " + script).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char text[1024] = {};
  const size_t length = fread(text, 1, sizeof text - 1, pipe);
  ASSERT_EQ(pclose(pipe), 0);

  std::istringstream words(std::string(text, length));
  std::string runtime, expected_runtime, thread, expected_thread, layout_hex;
  unsigned version = 0;
  words >> runtime >> expected_runtime >> thread >> expected_thread >> version >> layout_hex;
  EXPECT_EQ(runtime, expected_runtime);
  EXPECT_EQ(thread, expected_thread);
  gpuperf_python_layout layout = {};
  ASSERT_EQ(layout_hex.size(), 2 * sizeof layout);
  for (size_t i = 0; i < sizeof layout; ++i) {
    reinterpret_cast<uint8_t*>(&layout)[i] =
        static_cast<uint8_t>(std::stoi(layout_hex.substr(2 * i, 2), nullptr, 16));
  }
  EXPECT_EQ(layout.version, version);
  if (const auto known = find_python_layout(static_cast<uint16_t>(version))) {
    EXPECT_TRUE(is_same(layout, *known));
  } else {
    EXPECT_EQ(layout.form, GPUPERF_PYTHON_CURRENT_FRAME);
  }
}

}  // namespace
}  // namespace gpuperf::injector
