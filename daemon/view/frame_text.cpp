#include "daemon/view/frame_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "daemon/base/file_name.h"
#include "daemon/base/wildcard.h"
#include "daemon/model/display_text.h"

#include <fmt/format.h>

namespace gpuperf {

namespace {

bool is_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

// The source, as " (model.py)" or " (model.py:42)".
std::string make_source_text(const StackFrame& frame, bool with_lines) {
  if (frame.file.empty()) return "";
  const std::string_view file = get_file_name(frame.file);
  if (!with_lines || frame.line == 0) return fmt::format(" ({})", file);
  return fmt::format(" ({}:{})", file, frame.line);
}

// Where in `symbol` its parameters begin; what stands behind is no name.
size_t find_parameters(std::string_view symbol) {
  static constexpr std::string_view kAnonymous = "(anonymous namespace)";
  size_t at = 0;
  while ((at = symbol.find('(', at)) != std::string_view::npos) {
    if (!symbol.substr(at).starts_with(kAnonymous)) return at;
    at += kAnonymous.size();
  }
  return symbol.size();
}

// Whether a name may end here: "_v2" and such tell versions of one function apart.
bool ends_name(std::string_view rest) {
  if (rest.empty() || !is_word(rest[0])) return true;
  return rest.size() > 2 && rest.starts_with("_v") && std::isdigit(rest[2]) != 0;
}

}  // namespace

std::string to_path_text(std::string_view name) {
  std::string text = to_valid_utf8(name);
  for (char& letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == ';') letter = ':';
    if (byte < 0x20 || byte == 0x7f) letter = ' ';
  }
  return text;
}

std::string make_frame_text(const StackFrame& frame, bool with_lines) {
  if (frame.kind == StackFrameKind::kPython) {
    const std::string_view name =
        frame.symbol.empty() ? "[python]" : std::string_view(frame.symbol);
    return to_path_text(std::string(name) + make_source_text(frame, with_lines));
  }
  std::string text = frame.symbol;
  if (text.empty() && !frame.module.empty()) {
    text = fmt::format("[{}+0x{:x}]", get_file_name(frame.module), frame.offset_bytes);
  } else if (text.empty()) {
    text = fmt::format("[0x{:x}]", frame.address);
  }
  if (with_lines) text += make_source_text(frame, true);
  return to_path_text(text);
}

bool is_cuda_runtime(const StackFrame& frame) {
  const std::string_view file = get_file_name(frame.module);
  return file.starts_with("libcudart") || file.starts_with("libcuda.so");
}

FrameKind get_frame_kind(const StackFrame& frame) {
  static constexpr auto kLibraries = std::to_array<std::string_view>(
      {"libcuda.so", "libcudart", "libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver",
       "libcusparse", "libcutensor", "libnccl", "libnvrtc", "libnvJitLink", "libnvshmem",
       "libnvinfer", "libnvjpeg"});
  if (frame.kind == StackFrameKind::kPython) return FrameKind::kPython;
  const std::string_view file = get_file_name(frame.module);
  for (const std::string_view library : kLibraries) {
    if (file.starts_with(library)) return FrameKind::kCuda;
  }
  return FrameKind::kNative;
}

FrameKind get_function_kind(const CaptureFunction& function) {
  const std::string_view category = function.category;
  return category == "libtorch" || category == "custom" ? FrameKind::kNative : FrameKind::kCuda;
}

bool is_of_a_package(const StackFrame& frame) {
  static constexpr auto kMarks = std::to_array<std::string_view>(
      {"/site-packages/", "/dist-packages/", "/lib/python", "<frozen "});
  return std::ranges::any_of(kMarks, [&frame](std::string_view mark) {
    return frame.file.find(mark) != std::string::npos;
  });
}

bool is_of_framework(const StackFrame& frame) {
  static constexpr auto kParts = std::to_array<std::string_view>(
      {"/torch/", "/torchgen/", "/functorch/", "/triton/", "/_distutils_hack/"});
  if (!is_of_a_package(frame)) return false;
  const std::string_view file = frame.file;
  for (const std::string_view packages : {"/site-packages", "/dist-packages"}) {
    const size_t at = file.find(packages);
    if (at == std::string_view::npos) continue;
    const std::string_view inside = file.substr(at + packages.size());
    return std::ranges::any_of(
        kParts, [inside](std::string_view part) { return inside.starts_with(part); });
  }
  return true;
}

bool is_of_module(const StackFrame& frame, std::string_view module) {
  std::string_view file = frame.file;
  if (module.find('/') != std::string_view::npos) return matches_wildcard(module, file);
  if (!module.ends_with(".py") && file.ends_with(".py")) file.remove_suffix(3);
  std::string path = "/" + std::string(file) + "/";
  std::string parts = std::string(module);
  if (!module.ends_with(".py")) std::ranges::replace(parts, '.', '/');
  return matches_wildcard("*/" + parts + "/*", path);
}

bool is_of_interpreter(const StackFrame& frame) {
  if (frame.kind == StackFrameKind::kPython) return false;
  const std::string_view file = get_file_name(frame.module);
  return file == "python" || file.starts_with("python3") || file.starts_with("libpython3");
}

std::string make_shape_text(const std::array<uint64_t, 4>& shape) {
  if (shape == std::array<uint64_t, 4>{}) return "";
  std::string text = fmt::format(" m={} n={} k={}", shape[0], shape[1], shape[2]);
  if (shape[3] > 1) text += fmt::format(" batch={}", shape[3]);
  return text;
}

bool is_frame_of(const StackFrame& frame, std::string_view function_name) {
  if (frame.kind == StackFrameKind::kPython || function_name.empty()) return false;
  const std::string_view symbol =
      std::string_view(frame.symbol).substr(0, find_parameters(frame.symbol));
  for (size_t at = symbol.find(function_name); at != std::string_view::npos;
       at = symbol.find(function_name, at + 1)) {
    const bool begins = at == 0 || symbol[at - 1] == ' ' || symbol.substr(0, at).ends_with("::");
    if (begins && ends_name(symbol.substr(at + function_name.size()))) return true;
  }
  return false;
}

}  // namespace gpuperf
