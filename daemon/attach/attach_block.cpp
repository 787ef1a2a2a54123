#include "daemon/attach/attach_block.h"

#include <iterator>

#include "daemon/base/file_name.h"
#include "daemon/unwind/process_memory.h"

namespace gpuperf {
namespace {

bool is_in_injector(const AttachTarget& target, uint64_t address) {
  const MemoryMap* const map = find_map(target.maps, address);
  return map != nullptr && map->can_execute && !map->can_write && map->file.inode != 0 &&
         get_file_name(map->path).starts_with("libgpuperf_injector.so");
}

}  // namespace

bool check_block(const AttachTarget& target, gpuperf_attach_block& block) {
  block.path[std::size(block.path) - 1] = '\0';
  block.entry_name[std::size(block.entry_name) - 1] = '\0';
  block.text[std::size(block.text) - 1] = '\0';
  if (block.magic != GPUPERF_ATTACH_MAGIC || block.version != GPUPERF_ATTACH_VERSION) return false;
  if (block.state < GPUPERF_ATTACH_BEGINNING || block.state > GPUPERF_ATTACH_FAILED) return false;
  if (block.entry != 0 && !is_in_injector(target, block.entry)) return false;
  return block.stub == 0 || is_in_injector(target, block.stub);
}

std::optional<AttachBlock> read_block(const AttachTarget& target) {
  const MemoryMap* const map = target.find_block();
  if (map == nullptr) return std::nullopt;
  const auto copy =
      read_value<gpuperf_attach_block>(make_direct_reader(target.pid), map->start_address);
  if (!copy) return std::nullopt;
  AttachBlock block{.address = map->start_address, .copy = *copy};
  if (!check_block(target, block.copy)) return std::nullopt;
  return block;
}

}  // namespace gpuperf
