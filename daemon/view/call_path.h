#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/capture.h"

namespace gpuperf {

// What a path of a launch is made of.
struct PathOptions {
  bool with_process = false;  // "comm (pid)" first
  bool with_thread = false;   // "comm (tid)" behind it
  bool with_lines = false;    // "forward (model.py:42)": the line that called, not only the file
  bool with_operations =
      true;  // probed calls around the launch, where the stack does not show them
  bool with_interpreter = false;  // the interpreter's machine code between frames of Python
};

// The frames of a launch as every view shows them, outermost first: its stack, from which what
// the CUDA libraries call among themselves is left out, and the interpreter's machine code where
// there are frames of Python, then the API call ("cudaLaunchKernel").
// A stack that does not begin at the thread's first frame begins with "[cut]", "[unknown]" and the
// like; without a stack it is "[no stack]" and the operations. Names hold no ';' and no newline.
//
// Where a probed call is a frame of the stack, that frame is it: a GEMM's shape is added there
// ("cublasGemmEx m=1 n=1024 k=3072"). One that is not found there becomes a frame of its own, just
// before the next inner one that is, or before the API call.
std::vector<std::string> make_path(const Capture& capture, const CaptureLaunch& launch,
                                   const PathOptions& options);

// The last element of a piece of GPU work: "[GPU_Kernel]name", "[GPU0_Kernel]name" where the
// capture has several devices; "[GPU_Memcpy]host_to_device", "[GPU_Memset]set", "[GPU_Graph]7".
// The number is the device's; its index in the capture where two have the same number.
std::string make_gpu_frame(const Capture& capture, const CaptureWork& work);

// What a frame of a path is, for colours and for choosing what explains a change.
enum class FrameKind : uint8_t {
  kMark,      // a process, a thread, "[no stack]" and the like
  kPython,    // a function of a Python program
  kNative,    // machine code
  kCuda,      // of a CUDA library: an API call, a probed call, a frame in its file
  kKernel,    // on a GPU, and a graph as a whole
  kTransfer,  // on a GPU: a copy, a set
};

// Paths of a capture, equal ones and equal frames kept once: what views of millions of launches
// are made from. The frames of a path are indexes of texts; of two frames with one text the first
// says what kind both are.
//
// Thread: one. Borrows the capture. Grows with what is distinct, not with what is asked.
class PathTable {
 public:
  PathTable(const Capture& capture, const PathOptions& options)
      : capture_(capture), options_(options) {}

  // Which path it is, an index for get_frames(): that of make_path().
  uint32_t find_path(const CaptureLaunch& launch);
  // Of work that no launch is known of: its process, if asked for, and "[no launch]".
  uint32_t find_path_without_launch(const CaptureWork& work);
  // Of a probed call inside `outer`, a path, or kNoIndex where it is the outermost one of its
  // thread: its own stack where one was taken, then the function.
  uint32_t find_call_path(const CaptureCall& call, uint32_t outer);
  // The path `outer` and a call of the API without a stack of its own.
  uint32_t find_inner_path(uint32_t outer, uint32_t function);

  // As much of `inner` as leads to a call of the function, with it; kNoIndex = it is not in there.
  uint32_t find_outer_path(uint32_t inner, uint32_t function);

  // Of a thread that was found in this stack; its innermost frames may be of a CUDA library.
  uint32_t find_stack_path(uint32_t thread, uint32_t stack);
  // The frames that both paths begin with; a path of none where they begin differently.
  uint32_t find_common_path(uint32_t one, uint32_t other);

  // A path of one mark.
  uint32_t find_mark_path(const std::string& mark);

  const std::vector<uint32_t>& get_frames(uint32_t path) const { return paths_[path]; }
  const std::string& get_text(uint32_t frame) const { return texts_[frame]; }
  FrameKind get_kind(uint32_t frame) const { return kinds_[frame]; }
  size_t count_frames() const { return texts_.size(); }
  // The frame of make_gpu_frame().
  uint32_t find_gpu_frame(const CaptureWork& work);
  // "[GPU_Stall]long_scoreboard".
  uint32_t find_stall_frame(uint32_t stall);

 private:
  // What tells paths apart: indexes into the capture, and an outer path.
  using PathKey = std::array<uint32_t, 6>;
  using WorkKey = std::array<uint32_t, 4>;

  uint32_t add_path(const PathKey& key, std::vector<uint32_t> frames);
  uint32_t add_frame(std::string text, FrameKind kind);
  uint32_t add_stack_frame(uint32_t frame);
  void add_marks(uint32_t process, uint32_t thread, std::vector<uint32_t>& path);
  void add_stack(uint32_t stack, std::vector<const StackFrame*>& shown,
                 std::vector<uint32_t>& path);
  void add_operations(uint32_t innermost, uint32_t api, size_t begin,
                      const std::vector<const StackFrame*>& shown, std::vector<uint32_t>& path);
  void add_function(uint32_t function, const std::array<uint64_t, 4>& shape,
                    std::vector<uint32_t>& path);

  const Capture& capture_;
  const PathOptions options_;
  std::vector<std::string> texts_;
  std::vector<FrameKind> kinds_;
  std::vector<std::vector<uint32_t>> paths_;
  std::vector<uint32_t> stack_frames_;  // by index in the capture: text, or kNoIndex so far
  absl::flat_hash_map<std::string, uint32_t> frame_ids_;
  absl::flat_hash_map<PathKey, uint32_t> path_ids_;
  absl::flat_hash_map<WorkKey, uint32_t> work_frames_;
};

}  // namespace gpuperf
