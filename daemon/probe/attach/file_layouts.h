#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/model/tensor_layout.h"
#include "daemon/probe/attach/programs.h"

namespace gpuperf {

// Which layout the tensors have that functions of a file work on: the file's own, or that of the
// libggml-base.so it lies beside.
//
// Thread: one, the only one that adds to `layouts`, which must outlive it, as must `programs`.
// Bounds: an entry for each file whose functions are operators, by its caller's count;
// kMaxLayoutsOfUser for the files of each user other than root.
class FileLayouts {
 public:
  static constexpr size_t kMaxLayoutsOfUser = 3;
  // Where a file lies: as processes see it, for containers may have the same.
  using Folder = std::pair<uint64_t, std::string>;  // device, 0 = an overlay; path
  struct Layout {
    uint32_t number = 0;  // in TensorLayouts; 0 = not known
    std::string fault;    // then, why; empty = no accessors
  };

  FileLayouts(TensorLayouts& layouts, const Programs& programs)
      : layouts_(layouts), programs_(programs) {}
  FileLayouts(const FileLayouts&) = delete;
  FileLayouts& operator=(const FileLayouts&) = delete;

  // Looks what the file itself says, once, and tells the kernel side. Gives the other files in its
  // folder if theirs may have changed by that.
  std::vector<int> learn(int file_id, const Folder& folder, int fd, uint32_t owner_uid);
  void forget(const std::set<int>& file_ids);
  Layout find(int file_id) const;

 private:
  struct File {
    Folder folder;
    Layout own;
  };
  Layout read(int fd, uint32_t owner_uid);

  TensorLayouts& layouts_;
  const Programs& programs_;
  std::map<int, File> files_;
  std::map<uint32_t, size_t> added_;  // layouts, by the owner of the file that had each first
};

}  // namespace gpuperf
