#include "daemon/cell_store.h"

#include <bpf/bpf.h>

#include <cerrno>
#include <vector>

namespace gpuperf {
namespace {

// gpuperf_process_key of bpf/maps.bpf.h, which C++ cannot include.
struct ProcessMapKey {
  uint64_t process_start_boot_ns = 0;
  uint32_t pid = 0;
  uint32_t pad = 0;
};

using IndexRows = std::vector<std::pair<gpuperf_cell_key, gpuperf_cell_owner>>;

// The whole index in one system call; it is far smaller than the cells.
Result<IndexRows> read_index(int map_fd, uint32_t max_entries) {
  std::vector<gpuperf_cell_key> keys(max_entries);
  std::vector<gpuperf_cell_owner> owners(max_entries);
  uint32_t position = 0;
  uint32_t count = max_entries;
  LIBBPF_OPTS(bpf_map_batch_opts, options);
  const int error = bpf_map_lookup_batch(map_fd, nullptr, &position, keys.data(), owners.data(),
                                         &count, &options);
  // ENOENT says that the end was reached.
  if (error != 0 && errno != ENOENT) return errno_status(errno, "BPF map cell_index: read");
  IndexRows rows;
  rows.reserve(count);
  for (uint32_t i = 0; i < count; ++i) rows.emplace_back(keys[i], owners[i]);
  return rows;
}

}  // namespace

CellStore make_cell_store(const Programs& programs) {
  const int index = programs.map_fd("cell_index");
  const int free_cells = programs.map_fd("free_cells");
  const int processes = programs.map_fd("processes");
  return {
      .cells = programs.cells(),
      .overflow_cells = programs.sizes().functions,
      .losses = programs.losses(),
      .read_index = [index, count = programs.sizes().cells] { return read_index(index, count); },
      .release =
          [index, free_cells](const gpuperf_cell_key& key, uint32_t cell) {
            // Both succeed: the key was just read, and the stack has a place for every cell.
            (void)bpf_map_delete_elem(index, &key);
            (void)bpf_map_update_elem(free_cells, nullptr, &cell, BPF_ANY);
          },
      .forget_process =
          [processes](const ProcessKey& process) {
            const ProcessMapKey key{process.start_boot_ns, process.pid};
            (void)bpf_map_delete_elem(processes, &key);  // ENOENT is as good
          },
  };
}

}  // namespace gpuperf
