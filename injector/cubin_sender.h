#pragma once

// Sends the images of the modules that samples name, so that the daemon can tell source lines.
//
// The samples name a module by CUPTI's CRC of its image. The images themselves are looked for where
// the process had them when it loaded its modules (module_images.h). They may have gone since, so
// each is copied first, in a way that cannot fault, and only a copy with the CRC is sent. Within
// fat binaries only images that are not compressed are found.
//
// Thread: under the collector's lock, on the injector's thread. Nothing is read and no memory is
// taken unless samples came. Bounds: kWantedMax modules, one copy of GPUPERF_CUBIN_BYTES_MAX while
// there is something to look for, kBytesAtOnce read in one call of tend().

#include <cstddef>
#include <cstdint>

#include "injector/batch.h"
#include "injector/cupti_api.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class CubinSender {
 public:
  static constexpr size_t kWantedMax = 1024;

  CubinSender(const CuptiApi& api, Batch& batch) : api_(api), batch_(batch) {}

  // A new connection begins: everything is to be sent again that samples name from now on.
  void start_connection();
  // Samples name this module. False = there are too many modules.
  bool want(uint64_t crc);
  bool has_work() const { return told_ < wanted_count_ || sent_bytes_ < size_bytes_; }
  // Looks and sends, as far as the connection has room. Of CUPTI it calls cuptiGetCubinCrc alone,
  // which takes no lock and has no state.
  void tend(uint64_t now_ms);

 private:
  static constexpr size_t kBytesAtOnce = 8 << 20;  // copied in 1 to 2 ms
  static constexpr size_t kPieceBytes = 8 << 10;

  struct Wanted {
    uint64_t crc;
    bool is_told;
  };

  void begin_search();
  bool search(uint64_t now_ms);
  void enter_image(uint64_t address);
  void look_at_entry();
  void look_at_image(uint64_t address);
  void end_search(uint64_t now_ms);
  bool send_pieces(uint64_t now_ms);
  void put(gpuperf_cubin_state state, uint64_t crc, const uint8_t* piece, uint32_t piece_bytes,
           uint64_t now_ms);
  Wanted* find(uint64_t crc);

  const CuptiApi& api_;
  Batch& batch_;
  Wanted wanted_[kWantedMax] = {};
  size_t wanted_count_ = 0;
  size_t told_ = 0;  // of them
  size_t last_ = 0;  // samples of one module come together
  // The search at hand, from the image that was loaded last to the first one.
  bool is_searching_ = false;
  size_t searched_for_ = 0;  // so many of wanted_
  uint64_t next_image_ = 0;  // one more than its number
  uint64_t first_image_ = 0;
  uint64_t entry_ = 0, entries_end_ = 0;  // addresses in a fat binary; equal = none is left
  size_t budget_bytes_ = 0;
  bool has_compressed_ = false, has_too_large_ = false;
  // The image that is being sent: a copy.
  uint8_t* copy_ = nullptr;  // null while there is nothing to look for
  uint64_t crc_ = 0;
  uint32_t size_bytes_ = 0;
  uint32_t sent_bytes_ = 0;
};

}  // namespace gpuperf::injector
