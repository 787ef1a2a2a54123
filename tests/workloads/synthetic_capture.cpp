#include "tests/workloads/synthetic_capture.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "injector/session_abi.h"

namespace gpuperf::testing {

namespace {

constexpr uint64_t kStartMonoNs = 5'000'000'000'000;
constexpr uint32_t kLinear = 0, kGemm = 1, kLaunch = 2, kCopyAsync = 3, kSynchronize = 4;

const char* const kHostileNames[] = {
    "</script><img src=x onerror=\"document.title='broken'\">",
    "]]><script>document.title='broken'</script>",
    "\"><svg onload=\"document.title='broken'\">",
    "' onmouseover='document.title=1",
    "not \xff\xfe utf-8 \xc3",
    "&lt;b&gt; &amp; ${document.title='broken'} `x` \\u003c \\",
    "a;b\nc\td\re",
    "\xe2\x80\xa8 line separators \xe2\x80\xa9 and \xef\xbf\xbf",
};

class Maker {
 public:
  explicit Maker(const SyntheticCapture& options) : options_(options) {}

  Capture make() {
    add_host();
    for (uint32_t stack = 0; stack < options_.stacks; ++stack) add_stack(stack);
    add_work();
    const CaptureWork& last = made_.work.back();
    made_.duration_ns = last.start_mono_ns + last.duration_ns - kStartMonoNs + 500'000;
    made_.matches.work = made_.matches.work_matched = made_.work.size();
    made_.matches.launches = {made_.launches.size()};
    std::sort(made_.calls.begin(), made_.calls.end(),
              [](const CaptureCall& left, const CaptureCall& right) {
                return left.start_mono_ns < right.start_mono_ns;
              });
    return std::move(made_);
  }

 private:
  std::string name(std::string plain) {
    if (!options_.is_hostile) return plain;
    const size_t index = hostile_++ % (std::size(kHostileNames) + 2);
    if (index < std::size(kHostileNames)) return kHostileNames[index] + plain;
    if (index == std::size(kHostileNames)) return plain + std::string("\0<zero>\0", 8);
    return plain + std::string(10'000, '<');
  }

  void add_host() {
    made_.id = 7;
    made_.name = name("example");
    made_.trigger = "request";
    made_.host = name("trainer-1");
    made_.version = "0.1.0";
    made_.start_unix_ns = 1'795'334'400'000'000'000;
    made_.start_mono_ns = kStartMonoNs;
    made_.processes = {
        {.process = {4711, 1}, .owner = {.comm = name("python3")}, .is_injected = true}};
    made_.threads = {{.process = 0, .tid = 4711, .comm = name("python3")},
                     {.process = 0, .tid = 4712, .comm = name("pt_autograd_0")}};
    made_.functions = {{"libtorch", "linear"},
                       {"cublas", "cublasGemmEx"},
                       {"cuda", "cudaLaunchKernel"},
                       {"cuda", "cudaMemcpyAsync"},
                       {"cuda", "cudaStreamSynchronize"}};
    for (const char* kernel :
         {"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
          "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
          "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, "
          "3ul>)",
          "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, "
          "true, false>(float*, float const*, int, int, int)",
          "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4> >(flash::"
          "Flash_fwd_params)",
          "triton_poi_fused_gelu_0"}) {
      made_.kernels.push_back({name(kernel), kernel});
    }
    made_.devices = {{.uuid = {1}, .number = 0}};
    made_.streams = {{.process = 0, .device = 0, .context = 1, .stream = 7},
                     {.process = 0, .device = 0, .context = 1, .stream = 13}};
    made_.operations = {{.function = kLinear},
                        {.parent = 0, .function = kGemm, .shape = {1024, 4096, 4096, 1}}};
  }

  uint32_t add_frame(StackFrame frame) {
    made_.frames.push_back(std::move(frame));
    return static_cast<uint32_t>(made_.frames.size() - 1);
  }
  uint32_t add_python(std::string symbol, std::string file, uint32_t line) {
    return add_frame({.symbol = name(std::move(symbol)),
                      .file = "/app/" + file,
                      .line = line,
                      .kind = StackFrameKind::kPython});
  }
  uint32_t add_native(std::string symbol, std::string module) {
    return add_frame({.symbol = name(std::move(symbol)), .module = "/usr/lib/" + module});
  }

  // Frames of outer modules are shared: each stack is a leaf of a tree of modules.
  void add_stack(uint32_t index) {
    if (common_.empty()) {
      common_ = {add_native("_start", "python3"), add_python("<module>", "train.py", 88),
                 add_python("main", "train.py", 71), add_python("train_step", "train.py", 42)};
      tail_ = {
          add_native("at::_ops::linear::call(at::Tensor const&, at::Tensor const&, "
                     "std::optional<at::Tensor> const&)",
                     "libtorch_cpu.so"),
          add_native("at::native::linear(at::Tensor const&, at::Tensor const&)", "libtorch_cpu.so"),
          add_native("cublasGemmEx", "libcublas.so.12"), add_native("", "libcublasLt.so.12")};
      made_.frames.back().offset_bytes = 0x1c0;
    }
    std::vector<uint32_t> frames = common_;
    uint32_t rest = index;
    size_t level = 0;
    const size_t depth = 8 + index * 7919 % std::max<size_t>(options_.deepest - 8, 1);
    while (frames.size() + tail_.size() < depth || rest > 0) {
      const uint32_t branch = rest % 8;
      rest /= 8;
      frames.push_back(find_module(frames.back(), branch, level++));
    }
    frames.push_back(find_module(frames.back(), index % 16 + 8, 0));
    frames.insert(frames.end(), tail_.begin(), tail_.end());
    made_.stacks.push_back({.frames = std::move(frames)});
  }

  // The frame of a module below another; equal ones are one.
  uint32_t find_module(uint32_t outer, uint32_t branch, size_t level) {
    const std::pair<uint32_t, uint32_t> key = {outer, branch};
    if (const auto known = modules_.find(key); known != modules_.end()) return known->second;
    const std::string layer = "layer_" + std::to_string(branch);
    const uint32_t frame = level % 2 == 0 ? add_python("forward", layer + ".py", 10 + branch)
                                          : add_python("_call_impl", "module.py", 1562);
    modules_.emplace(key, frame);
    return frame;
  }

  void add_work() {
    const size_t per_step = std::max<size_t>(options_.work / 100, 1);
    uint64_t host_ns = kStartMonoNs + 200'000;
    uint64_t gpu_ns = 0;
    for (size_t index = 0; index < options_.work; ++index) {
      const auto stack = static_cast<uint32_t>(index % options_.stacks);
      add_launch(stack, index, host_ns, gpu_ns);
      host_ns += 9'000 + index * 7919 % 3'000;
      if (index % per_step == per_step - 1) {
        add_wait(host_ns, std::max(gpu_ns, host_ns + 20'000));
        host_ns = std::max(gpu_ns, host_ns + 20'000) + 300'000;
      }
    }
  }

  void add_launch(uint32_t stack, size_t index, uint64_t host_ns, uint64_t& gpu_ns) {
    const bool is_copy = index % 40 == 39;
    const auto launch = static_cast<uint32_t>(made_.launches.size());
    made_.launches.push_back({.start_mono_ns = host_ns + 3'000,
                              .duration_ns = 4'000,
                              .thread = 0,
                              .function = is_copy ? kCopyAsync : kLaunch,
                              .stack = stack,
                              .operation = is_copy ? kNoIndex : 1,
                              .correlation_id = launch + 1});
    if (!is_copy) {
      made_.calls.push_back(
          {.start_mono_ns = host_ns, .duration_ns = 8'000, .thread = 0, .function = kLinear});
    }
    uint64_t duration_ns = 4'000 + stack * 104729 % 12'000;
    if (options_.is_slower && stack % 16 + 8 == 11) duration_ns *= 3;
    const uint64_t start_ns = std::max(gpu_ns, host_ns + 6'500);
    made_.work.push_back(
        {.start_mono_ns = start_ns,
         .duration_ns = duration_ns,
         .bytes = is_copy ? 65'536u : 0u,
         .kind = is_copy ? WorkKind::kCopy : WorkKind::kKernel,
         .direction = is_copy ? uint8_t{GPUPERF_MEMCPY_HOST_TO_DEVICE} : uint8_t{0},
         .kernel = is_copy ? kNoIndex : stack % 5,
         .stream = is_copy ? 1u : 0u,
         .launch = launch});
    gpu_ns = start_ns + duration_ns + 800;
  }

  void add_wait(uint64_t from_ns, uint64_t to_ns) {
    made_.calls.push_back({.start_mono_ns = from_ns,
                           .duration_ns = to_ns - from_ns,
                           .off_cpu_ns = (to_ns - from_ns) / 2,
                           .thread = 0,
                           .function = kSynchronize});
    made_.waits.push_back({.start_mono_ns = from_ns,
                           .duration_ns = to_ns - from_ns,
                           .thread = 0,
                           .stream = 0,
                           .type = GPUPERF_SYNC_STREAM});
  }

  const SyntheticCapture options_;
  Capture made_;
  std::vector<uint32_t> common_;  // frames that every stack begins with
  std::vector<uint32_t> tail_;    // and ends with
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> modules_;
  size_t hostile_ = 0;
};

}  // namespace

Capture make_synthetic_capture(const SyntheticCapture& options) { return Maker(options).make(); }

}  // namespace gpuperf::testing
