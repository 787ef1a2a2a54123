#include "daemon/rpc/snapshot_pages.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace gpuperf {
namespace {

constexpr uint32_t kDefaultLimit = 1'000;  // as the proto says
constexpr uint32_t kMaxLimit = 10'000;
// A snapshot shares unchanged rows with the next; a wholly different one with 8192 rows is 8 MB.
constexpr size_t kPinned = 4;
// Programs take milliseconds between pages; this leaves time for a person with a gRPC shell.
constexpr int64_t kMaxAgeNs = 60'000'000'000;

struct Token {
  uint64_t serial = 0;
  uint64_t offset = 0;
  uint64_t check = 0;
};
static_assert(sizeof(Token) == 24);

Status bad_token(std::string_view why) {
  return absl::InvalidArgumentError("page.page_token: " + std::string(why) +
                                    "; start again without a token");
}

uint64_t draw_secret() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

SnapshotPages::SnapshotPages(const SnapshotBoard& board, const Clock& clock)
    : board_(board), clock_(clock), secret_(draw_secret()) {}

uint32_t SnapshotPages::get_limit(const v1::Page& page) {
  return page.limit() == 0 ? kDefaultLimit : std::min(page.limit(), kMaxLimit);
}

Result<SnapshotPages::Place> SnapshotPages::find_place(const v1::Page& page,
                                                       std::string_view request_key) {
  const MutexLock lock(mutex_);
  forget_old_pins();
  if (page.page_token().empty()) return Place{.snapshot = board_.get(), .offset = 0};
  std::string bytes;
  Token token;
  if (!absl::WebSafeBase64Unescape(page.page_token(), &bytes) || bytes.size() != sizeof token) {
    return bad_token("not a token of this daemon");
  }
  std::memcpy(&token, bytes.data(), sizeof token);
  if (token.check != compute_check(token.serial, token.offset, request_key)) {
    return bad_token("made by another run of the daemon, or for another method, filter or order");
  }
  const auto pin = std::ranges::find(pins_, token.serial, &Pin::serial);
  if (pin == pins_.end()) {
    return bad_token("expired: its list is kept for a minute, and less while others page too");
  }
  pin->last_use_mono_ns = clock_.mono_ns();
  return Place{.snapshot = pin->snapshot, .offset = token.offset};
}

std::string SnapshotPages::make_token(const Place& place, uint64_t next_offset,
                                      std::string_view request_key) {
  const MutexLock lock(mutex_);
  auto pin = std::ranges::find(pins_, place.snapshot, &Pin::snapshot);
  if (pin == pins_.end()) {
    if (pins_.size() == kPinned)
      pins_.erase(std::ranges::min_element(pins_, {}, &Pin::last_use_mono_ns));
    pins_.push_back({.serial = next_serial_++, .last_use_mono_ns = 0, .snapshot = place.snapshot});
    pin = std::prev(pins_.end());
  }
  pin->last_use_mono_ns = clock_.mono_ns();
  const Token token{.serial = pin->serial,
                    .offset = next_offset,
                    .check = compute_check(pin->serial, next_offset, request_key)};
  return absl::WebSafeBase64Escape({reinterpret_cast<const char*>(&token), sizeof token});
}

// FNV-1a. Guards against mistakes, not against forgery: any offset is harmless.
uint64_t SnapshotPages::compute_check(uint64_t serial, uint64_t offset,
                                      std::string_view request_key) const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::string_view bytes) {
    for (const char byte : bytes) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
  };
  for (const uint64_t number : {secret_, serial, offset}) {
    add({reinterpret_cast<const char*>(&number), sizeof number});
  }
  add(request_key);
  return hash;
}

void SnapshotPages::forget_old_pins() {
  const int64_t oldest_mono_ns = clock_.mono_ns() - kMaxAgeNs;
  std::erase_if(pins_, [&](const Pin& pin) { return pin.last_use_mono_ns < oldest_mono_ns; });
}

}  // namespace gpuperf
