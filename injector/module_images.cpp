#include "injector/module_images.h"

#include <atomic>

namespace gpuperf::injector {
namespace {

std::atomic<uint64_t> g_addresses[kModuleImages];
std::atomic<uint64_t> g_count = 0;

}  // namespace

void note_module_image(Word address) {
  g_addresses[g_count.fetch_add(1) % kModuleImages].store(address);
}

uint64_t count_module_images() { return g_count.load(); }

uint64_t get_module_image(uint64_t index) { return g_addresses[index % kModuleImages].load(); }

}  // namespace gpuperf::injector
