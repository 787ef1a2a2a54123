#include "daemon/unwind/python_walk.h"

#include <optional>
#include <span>

#include "bpf/records.h"

namespace {

// What python_frames.h asks for; `memory` is a ReadMemory.
inline int python_read(void* memory, uint64_t address, void* to, uint32_t size_bytes) {
  const auto& read = *static_cast<const gpuperf::ReadMemory*>(memory);
  return read(address, std::span(static_cast<std::byte*>(to), size_bytes)) ? 0 : -1;
}

inline int python_read_first_line(void* memory, uint64_t address, uint32_t* first_line) {
  return python_read(memory, address, first_line, sizeof *first_line);
}

}  // namespace

#include "bpf/python_frames.h"

namespace gpuperf {
namespace {

// PyThreadState; nullopt = the thread runs no Python.
std::optional<uint64_t> find_thread(const PythonRuntime& python, uint64_t thread_pointer,
                                    void* memory) {
  python_search search{};
  if (python_begin_search(memory, &python.layout, python.address, &search) != 0)
    return std::nullopt;
  for (size_t i = 0; i < kMaxPythonThreads; ++i) {
    switch (python_step_search(memory, &python.layout, thread_pointer, &search)) {
      case PYTHON_STEP_FOUND:
        return search.thread;
      case PYTHON_STEP_NEXT:
        break;
      case PYTHON_STEP_END:
      case PYTHON_STEP_UNREADABLE:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<PythonFrame> walk_python(const PythonRuntime& python, uint64_t thread_pointer,
                                     const ReadMemory& read) {
  // The interpreter's own frames between them, one or two for each at most, count as steps.
  constexpr size_t kMaxSteps = 3 * GPUPERF_PYTHON_FRAMES;
  ReadMemory reader = read;
  std::vector<PythonFrame> frames;
  const std::optional<uint64_t> thread = find_thread(python, thread_pointer, &reader);
  python_walk walk{};
  if (!thread || python_begin_walk(&reader, &python.layout, *thread, &walk) != 0) return frames;
  for (size_t i = 0; i < kMaxSteps && frames.size() < GPUPERF_PYTHON_FRAMES; ++i) {
    gpuperf_python_frame frame{};
    const python_step step = python_step_walk(&reader, &python.layout, &walk, &frame);
    if (step == PYTHON_STEP_NEXT) continue;
    if (step != PYTHON_STEP_FOUND) break;
    frames.push_back({.code = frame.code,
                      .entry_sp = frame.entry_sp,
                      .instruction_bytes = frame.instruction_bytes,
                      .first_line = frame.first_line});
  }
  return frames;
}

}  // namespace gpuperf
