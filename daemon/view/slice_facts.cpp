#include "daemon/view/slice_facts.h"

#include <fmt/format.h>

#include "daemon/view/frame_text.h"
#include "daemon/view/rows.h"

namespace gpuperf {
namespace {

constexpr size_t kMaxTextBytes = 1'000;  // a damaged chain could grow with every row

}  // namespace

std::vector<std::string> make_operation_texts(const Capture& capture) {
  std::vector<std::string> texts(capture.operations.size());
  for (uint32_t i = 0; i < texts.size(); ++i) {
    const CaptureOperation& operation = capture.operations[i];
    if (operation.parent < i) texts[i] = texts[operation.parent] + " > ";
    const CaptureFunction* function = find_row(capture.functions, operation.function);
    texts[i] += function == nullptr ? "unknown call" : function->name;
    texts[i] += make_shape_text(operation.shape);
    if (texts[i].size() > kMaxTextBytes) texts[i].resize(kMaxTextBytes);
  }
  return texts;
}

std::vector<std::string> make_shape_texts(const Capture& capture) {
  std::vector<std::string> texts;
  texts.reserve(capture.shapes.size());
  for (const CaptureShape& shape : capture.shapes) {
    texts.push_back(fmt::format("grid {}x{}x{} block {}x{}x{} shared {} registers {}",
                                shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                                shape.block[1], shape.block[2], shape.shared_memory_bytes,
                                shape.registers_per_thread));
  }
  return texts;
}

double get_gigabytes_per_second(const CaptureWork& work) {
  if (work.duration_ns == 0) return 0;
  return static_cast<double>(work.bytes) / static_cast<double>(work.duration_ns);
}

}  // namespace gpuperf
