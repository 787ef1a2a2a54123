#include "daemon/collect/cell_store.h"

#include <bpf/bpf.h>

#include <cerrno>
#include <vector>

namespace gpuperf {
namespace {

// The whole map in one system call.
template <typename Key, typename Value>
Result<std::vector<std::pair<Key, Value>>> read_map(int map_fd, const char* name,
                                                    uint32_t max_entries) {
  std::vector<Key> keys(max_entries);
  std::vector<Value> values(max_entries);
  uint32_t position = 0;
  uint32_t count = max_entries;
  LIBBPF_OPTS(bpf_map_batch_opts, options);
  const int error = bpf_map_lookup_batch(map_fd, nullptr, &position, keys.data(), values.data(),
                                         &count, &options);
  // ENOENT says that the end was reached.
  if (error != 0 && errno != ENOENT) {
    std::string what = "BPF map ";
    what += name;
    return errno_status(errno, what + ": read");
  }
  std::vector<std::pair<Key, Value>> rows;
  rows.reserve(count);
  for (uint32_t i = 0; i < count; ++i) rows.emplace_back(keys[i], values[i]);
  return rows;
}

constexpr uint32_t kMaxShapes = 8192;  // of the map in bpf/maps.bpf.h
constexpr uint32_t kMaxUsers = 1024;   // likewise

// Best effort throughout: the next read does it again.
void count_users(int by_user, int room, uint32_t max_cells, const CellsByUser& cells) {
  gpuperf_cell_room total{.max = get_users_cells(max_cells), .used = 0};
  const auto known = read_map<uint32_t, uint32_t>(by_user, "cells_by_user", kMaxUsers);
  if (known.ok()) {
    for (const auto& [uid, count] : *known) {
      if (!cells.contains(uid)) (void)bpf_map_delete_elem(by_user, &uid);
    }
  }
  for (const auto& [uid, count] : cells) {
    total.used += count;
    (void)bpf_map_update_elem(by_user, &uid, &count, BPF_ANY);
  }
  const uint32_t key = 0;
  (void)bpf_map_update_elem(room, &key, &total, BPF_ANY);
}

}  // namespace

CellStore make_cell_store(Programs& programs) {
  const int index = programs.map_fd("cell_index");
  const int free_cells = programs.map_fd("free_cells");
  const int processes = programs.map_fd("processes");
  const int shapes = programs.map_fd("shapes");
  return {
      .cells = programs.cells(),
      .map_cell = [&programs](uint32_t cell) { return programs.map_cell(cell); },
      .overflow_cells = programs.sizes().functions,
      .losses = programs.losses(),
      .read_index =
          [index, count = programs.sizes().cells] {
            return read_map<gpuperf_cell_key, gpuperf_cell_owner>(index, "cell_index", count);
          },
      .max_users = kMaxUsers,
      .max_shapes = kMaxShapes,
      .count_users =
          [by_user = programs.map_fd("cells_by_user"), room = programs.map_fd("cell_room"),
           max_cells = programs.sizes().cells](const CellsByUser& cells) {
            count_users(by_user, room, max_cells, cells);
          },
      .release =
          [index, free_cells](const gpuperf_cell_key& key, uint32_t cell) {
            // Both succeed: the key was just read, and the stack has a place for every cell.
            (void)bpf_map_delete_elem(index, &key);
            (void)bpf_map_update_elem(free_cells, nullptr, &cell, BPF_ANY);
          },
      .read_shapes =
          [shapes] {
            return read_map<gpuperf_shape_key, gpuperf_shape_totals>(shapes, "shapes", kMaxShapes);
          },
      .release_shape =
          [shapes](const gpuperf_shape_key& key) {
            (void)bpf_map_delete_elem(shapes, &key);  // ENOENT is as good
          },
      .read_process_info =
          [processes](const ProcessKey& process) -> std::optional<gpuperf_process_info> {
        const gpuperf_process_key key{process.start_boot_ns, process.pid, 0};
        gpuperf_process_info info{};
        if (bpf_map_lookup_elem(processes, &key, &info) != 0) return std::nullopt;
        return info;
      },
      .forget_process =
          [processes](const ProcessKey& process) {
            const gpuperf_process_key key{process.start_boot_ns, process.pid, 0};
            (void)bpf_map_delete_elem(processes, &key);  // ENOENT is as good
          },
  };
}

}  // namespace gpuperf
