#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/attach/attach_block.h"
#include "daemon/attach/held_thread.h"
#include "daemon/attach/libc_functions.h"
#include "daemon/attach/safe_point.h"
#include "daemon/base/fd.h"

namespace gpuperf {

// The injected library's file, and where in it a new thread begins.
struct LibraryFile {
  int fd = -1;           // not owned
  uint64_t version = 0;  // its build id's first bytes
  uint64_t stub_offset_bytes = 0;
};
Result<LibraryFile> read_library_file(int fd);

// The way of the library into a process: finds a thread at a safe point and has it make a
// connection, map the block and the stub, and start the library's thread.
//
// One thread of the process is held twice, for some 0.1 ms to look at its stack and for about 1 ms;
// the others run on. Thread: one.
class EntryInto {
 public:
  using Duration = std::chrono::steady_clock::duration;
  struct Setup {
    const ProcFiles& files;
    CodeFiles& code_files;
    const AttachTarget& target;
    const LibcFunctions& libc;
    const LibraryFile& library;
    const Fd& pidfd;
    uint32_t flags = 0;
    std::optional<AttachBlock> block;  // from an earlier time
  };
  struct Entered {
    Fd connection;
    uint64_t block_address = 0;
  };

  explicit EntryInto(const Setup& setup)
      : setup_(setup), safe_point_(setup.files, setup.code_files, setup.target) {}

  // FailedPrecondition: no thread at a safe point was found in time; the text counts why.
  // PermissionDenied: not allowed to trace it. Others: what failed; all is put back.
  Result<Entered> enter();
  uint32_t threads_tried() const { return tried_; }
  Duration held() const { return held_; }
  Duration longest_hold() const { return longest_; }

 private:
  std::vector<pid_t> list_waiting_threads() const;
  // Nothing: not this thread.
  Result<std::optional<Entered>> try_thread(pid_t tid);
  Result<bool> find_safe_point(HeldThread& thread);
  Result<StackImage> take_image(const HeldThread& thread) const;
  Result<Entered> make_calls(HeldThread& thread);
  Result<std::array<int32_t, 2>> make_connection(HeldThread& thread);
  Result<std::array<int32_t, 2>> pass_files(HeldThread& thread, int32_t socket,
                                            const Fd& connection, int block_fd);
  Status start(HeldThread& thread, uint64_t begin, uint64_t block);
  Status map_block(HeldThread& thread, int32_t fd, gpuperf_attach_block& block, uint64_t& address);
  Status map_stub(HeldThread& thread, int32_t fd, gpuperf_attach_block& block);
  void take_back(HeldThread& thread);
  Result<int64_t> system_call(HeldThread& thread, std::initializer_list<uint64_t> words) const;
  void fill(gpuperf_attach_block& block) const;
  std::string describe_objections() const;

  const Setup setup_;
  SafePoint safe_point_;
  std::map<std::string, uint32_t> objections_;
  uint32_t tried_ = 0;
  Duration held_{0};
  Duration longest_{0};
  // Made in the process so far, to be taken back where a later step fails.
  std::vector<int32_t> made_fds_;
  std::vector<std::pair<uint64_t, uint64_t>> made_maps_;
};

}  // namespace gpuperf
