#include "injector/cubin_sender.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "injector/module_images.h"
#include "injector/own_memory.h"

namespace gpuperf::injector {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
// What a program passes on for a fat binary that was linked into it, and the fat binary itself:
// fatbinary_section.h of the CUDA toolkit.
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatBinaryMagic = 0xba55ed50;
constexpr uint64_t kFatBinaryBytesMax = uint64_t{1} << 30;
constexpr uint16_t kEntryIsElf = 2;
// Reading the head of an entry costs as much as copying so many bytes.
constexpr size_t kEntryCostBytes = 4096;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  uint64_t fat_binary;
};

// Not in a public header; seen with nvcc 13.0 and in CUDA 11's and 12's binaries.
struct FatBinary {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t entries_bytes;  // after the header
};
struct FatEntry {
  uint16_t kind;  // 1 = PTX, 2 = ELF
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // after the header
};

template <typename Struct>
bool read(uint64_t address, Struct& to) {
  return read_own(address, &to, sizeof(to));
}

// 0 = it is no cubin. What the driver loads ends with one of its two tables.
uint64_t find_image_bytes(const Elf64_Ehdr& head) {
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_machine != kMachineCuda || head.e_shoff > GPUPERF_CUBIN_BYTES_MAX * uint64_t{64} ||
      head.e_phoff > GPUPERF_CUBIN_BYTES_MAX * uint64_t{64}) {
    return 0;
  }
  return std::max(head.e_shoff + uint64_t{head.e_shnum} * head.e_shentsize,
                  head.e_phoff + uint64_t{head.e_phnum} * head.e_phentsize);
}

}  // namespace

void CubinSender::start_connection() {
  wanted_count_ = told_ = last_ = 0;
  size_bytes_ = sent_bytes_ = 0;
  is_searching_ = false;
}

CubinSender::Wanted* CubinSender::find(uint64_t crc) {
  if (last_ < wanted_count_ && wanted_[last_].crc == crc) return &wanted_[last_];
  for (size_t i = 0; i < wanted_count_; ++i) {
    if (wanted_[i].crc != crc) continue;
    last_ = i;
    return &wanted_[i];
  }
  return nullptr;
}

bool CubinSender::want(uint64_t crc) {
  if (find(crc) != nullptr) return true;
  if (wanted_count_ == kWantedMax) return false;
  last_ = wanted_count_++;
  wanted_[last_] = {.crc = crc, .is_told = false};
  return true;
}

void CubinSender::put(gpuperf_cubin_state state, uint64_t crc, const uint8_t* piece,
                      uint32_t piece_bytes, uint64_t now_ms) {
  alignas(8) uint8_t bytes[sizeof(gpuperf_session_cubin) + kPieceBytes];
  const uint32_t padded_bytes = (piece_bytes + 7) / 8 * 8;
  gpuperf_session_cubin record = {};
  const size_t length_bytes = sizeof(record) + padded_bytes;
  record.record = {GPUPERF_SESSION_CUBIN, static_cast<uint16_t>(length_bytes),
                   static_cast<uint32_t>(state)};
  record.cubin_crc = crc;
  if (state == GPUPERF_CUBIN_FOUND) {
    record.size_bytes = size_bytes_;
    record.offset_bytes = sent_bytes_;
  }
  record.piece_bytes = piece_bytes;
  std::memcpy(bytes, &record, sizeof(record));
  if (piece_bytes > 0) std::memcpy(bytes + sizeof(record), piece, piece_bytes);
  std::memset(bytes + sizeof(record) + piece_bytes, 0, padded_bytes - piece_bytes);
  batch_.make_room(length_bytes, now_ms);
  batch_.add_entry(bytes, length_bytes);
}

// False: the connection has no more room now.
bool CubinSender::send_pieces(uint64_t now_ms) {
  while (sent_bytes_ < size_bytes_) {
    if (!batch_.has_room_for(2 * GPUPERF_MESSAGE_BYTES_MAX)) return false;
    const auto piece_bytes =
        static_cast<uint32_t>(std::min<size_t>(size_bytes_ - sent_bytes_, kPieceBytes));
    put(GPUPERF_CUBIN_FOUND, crc_, copy_ + sent_bytes_, piece_bytes, now_ms);
    sent_bytes_ += piece_bytes;
  }
  return true;
}

void CubinSender::begin_search() {
  is_searching_ = true;
  searched_for_ = wanted_count_;
  next_image_ = count_module_images();
  first_image_ = next_image_ - std::min<uint64_t>(next_image_, kModuleImages);
  entry_ = entries_end_ = 0;
  has_compressed_ = has_too_large_ = false;
}

// What was looked for and is not there.
void CubinSender::end_search(uint64_t now_ms) {
  is_searching_ = false;
  for (size_t i = 0; i < searched_for_; ++i) {
    if (wanted_[i].is_told) continue;
    wanted_[i].is_told = true;
    ++told_;
    put(has_compressed_  ? GPUPERF_CUBIN_COMPRESSED
        : has_too_large_ ? GPUPERF_CUBIN_TOO_LARGE
                         : GPUPERF_CUBIN_UNSEEN,
        wanted_[i].crc, nullptr, 0, now_ms);
  }
}

void CubinSender::enter_image(uint64_t address) {
  Wrapper wrapper = {};
  if (!read(address, wrapper)) return;
  if (wrapper.magic == kWrapperMagic) address = wrapper.fat_binary;
  FatBinary fat = {};
  if (!read(address, fat)) return;
  if (fat.magic != kFatBinaryMagic) return look_at_image(address);
  if (fat.entries_bytes > kFatBinaryBytesMax) return;
  entry_ = address + fat.header_bytes;
  entries_end_ = entry_ + fat.entries_bytes;
}

void CubinSender::look_at_entry() {
  FatEntry entry = {};
  const uint64_t left_bytes = entries_end_ - entry_;
  if (left_bytes < sizeof(entry) || !read(entry_, entry) || entry.header_bytes < sizeof(entry) ||
      entry.header_bytes > left_bytes || entry.payload_bytes > left_bytes - entry.header_bytes) {
    entry_ = entries_end_;
    return;
  }
  const uint64_t payload = entry_ + entry.header_bytes;
  entry_ = payload + entry.payload_bytes;
  if (entry.kind != kEntryIsElf) return;
  uint32_t magic = 0;
  if (!read(payload, magic)) return;
  if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) return look_at_image(payload);
  has_compressed_ = true;
}

void CubinSender::look_at_image(uint64_t address) {
  Elf64_Ehdr head = {};
  if (!read(address, head)) return;
  const uint64_t image_bytes = find_image_bytes(head);
  if (image_bytes == 0) return;
  if (image_bytes > GPUPERF_CUBIN_BYTES_MAX) {
    has_too_large_ = true;
    return;
  }
  budget_bytes_ -= std::min<size_t>(budget_bytes_, image_bytes);
  if (!read_own(address, copy_, image_bytes)) return;
  CUpti_GetCubinCrcParams params = {};
  params.size = CUpti_GetCubinCrcParamsSize;
  params.cubinSize = image_bytes;
  params.cubin = copy_;
  if (api_.cuptiGetCubinCrc(&params) != CUPTI_SUCCESS) return;
  Wanted* const wanted = find(params.cubinCrc);
  if (wanted == nullptr || wanted->is_told) return;
  wanted->is_told = true;
  ++told_;
  crc_ = params.cubinCrc;
  size_bytes_ = static_cast<uint32_t>(image_bytes);
  sent_bytes_ = 0;
}

// Until an image was found (true), there are no more, or the budget is used up.
bool CubinSender::search(uint64_t now_ms) {
  if (!is_searching_) begin_search();
  size_bytes_ = sent_bytes_ = 0;
  while (budget_bytes_ > 0) {
    budget_bytes_ -= std::min(budget_bytes_, kEntryCostBytes);
    if (entry_ != entries_end_) {
      look_at_entry();
    } else if (next_image_ > first_image_) {
      enter_image(get_module_image(--next_image_));
    } else {
      end_search(now_ms);
      return false;
    }
    if (size_bytes_ > 0) return true;
  }
  return false;
}

void CubinSender::tend(uint64_t now_ms) {
  if (!has_work() || api_.cuptiGetCubinCrc == nullptr) return;
  if (copy_ == nullptr) copy_ = static_cast<uint8_t*>(map_zeroes(GPUPERF_CUBIN_BYTES_MAX));
  if (copy_ == nullptr) return;
  budget_bytes_ = kBytesAtOnce;
  do {
    if (!send_pieces(now_ms)) return;
  } while (told_ < wanted_count_ && search(now_ms));
  if (has_work()) return;
  (void)munmap(copy_, GPUPERF_CUBIN_BYTES_MAX);
  copy_ = nullptr;
}

}  // namespace gpuperf::injector
