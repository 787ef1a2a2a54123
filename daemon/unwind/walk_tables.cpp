#include "daemon/unwind/walk_tables.h"

#include <bpf/bpf.h>

#include <memory>

#include "daemon/probe/attach/loader_watch.h"

namespace gpuperf {

void forget_sent_stack(const Programs& programs, uint64_t raw_id) {
  (void)bpf_map_delete_elem(programs.map_fd("sent_stacks"), &raw_id);  // ENOENT is as good
}

WalkTables make_walk_tables(const Programs& programs) {
  const int spaces = programs.map_fd("address_spaces");
  const int rules = programs.map_fd("unwind_rules");
  return {
      .set_space =
          [spaces](uint32_t pid, const gpuperf_address_space& space) {
            return bpf_map_update_elem(spaces, &pid, &space, BPF_ANY) == 0;
          },
      .erase_space =
          [spaces](uint32_t pid) {
            (void)bpf_map_delete_elem(spaces, &pid);  // ENOENT is as good
          },
      .set_rule =
          [rules](const gpuperf_unwind_key& key, const gpuperf_unwind_rule& rule) {
            return bpf_map_update_elem(rules, &key, &rule, BPF_ANY) == 0;
          },
      .erase_rule =
          [rules](const gpuperf_unwind_key& key) {
            (void)bpf_map_delete_elem(rules, &key);  // ENOENT is as good
          },
      .read_code_changes =
          [changes = programs.map_fd("code_changes")](uint32_t pid) {
            uint32_t count = 0;
            return bpf_map_lookup_elem(changes, &pid, &count) == 0 ? count : 0;
          },
      .watch_loader =
          [loaders = std::make_shared<LoaderWatch>(programs)](int fd, const FileIdentity& identity,
                                                              uint64_t offset_bytes) {
            return loaders->watch(fd, identity, offset_bytes);
          },
  };
}

}  // namespace gpuperf
