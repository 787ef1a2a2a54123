#include "daemon/state/busy_intervals.h"

#include <algorithm>

namespace gpuperf {
namespace {

constexpr size_t kMostReserved = 256;  // 2 KiB

// The first piece that ends at `start` or later. Records come nearly in order: it is among the last
// few, most often.
template <typename Bucket>
auto find_first(Bucket& bucket, uint32_t start) {
  constexpr ptrdiff_t kNear = 4;
  auto first = bucket.end();
  for (ptrdiff_t i = 0; i < kNear; ++i) {
    if (first == bucket.begin() || std::prev(first)->end < start) return first;
    --first;
  }
  return std::ranges::lower_bound(bucket.begin(), first, start, {},
                                  [](const auto& piece) { return piece.end; });
}

}  // namespace

BusyIntervals::BusyIntervals(const BusyIntervals& other)
    : budget_(other.budget_), ring_(other.ring_), first_(other.first_), busy_ns_(other.busy_ns_) {
  for (const Bucket& bucket : ring_) budget_->pieces += bucket.size();
}

uint64_t BusyIntervals::add(uint64_t start_ns, uint64_t end_ns) {
  if (end_ns <= start_ns) return 0;
  const uint64_t last = (end_ns - 1) >> kBucketBits;
  if (ring_.empty()) {
    ring_.resize(kBuckets);
    // Nothing was closed before there was anything: a first interval counts whole.
    const uint64_t first = last < kBuckets ? 0 : last - kBuckets + 1;
    first_ = std::max(first_, std::min(first, start_ns >> kBucketBits));
  }
  const uint64_t open_ns = first_ << kBucketBits;
  uint64_t late_ns = 0;
  if (start_ns < open_ns) {
    late_ns = std::min(end_ns, open_ns) - start_ns;
    start_ns = open_ns;
    if (end_ns <= start_ns) return late_ns;
  }
  if (last >= first_ + kBuckets) {
    const uint64_t first = last - kBuckets + 1;
    close_until(first, start_ns, end_ns);
    start_ns = std::max(start_ns, first << kBucketBits);
  }
  for (uint64_t number = start_ns >> kBucketBits; number <= last; ++number) {
    add_piece(number, start_ns, end_ns);
  }
  while (budget_->pieces > budget_->max_pieces && first_ < last) close(get_bucket(first_++));
  return late_ns;
}

void BusyIntervals::rest() {
  if (ring_.empty()) return;
  uint64_t end = first_ + kBuckets;
  while (end > first_ && get_bucket(end - 1).empty()) --end;
  first_ = end;
  for (const Bucket& bucket : ring_) budget_->pieces -= bucket.size();
  ring_ = std::vector<Bucket>();
}

// Adds the part of the interval within one bucket that is open.
void BusyIntervals::add_piece(uint64_t number, uint64_t start_ns, uint64_t end_ns) {
  const uint64_t begin_ns = number << kBucketBits;
  const uint64_t from_ns = std::max(start_ns, begin_ns);
  const uint64_t to_ns = std::min(end_ns, begin_ns + kBucketNs);
  if (from_ns >= to_ns) return;
  Bucket& bucket = get_bucket(number);
  // About as many as in the bucket before: grown one by one, they would be moved eight times.
  if (bucket.capacity() == 0 && number > first_) {
    bucket.reserve(std::min(get_bucket(number - 1).size(), kMostReserved));
  }
  insert(bucket, {.start = static_cast<uint32_t>(from_ns - begin_ns),
                  .end = static_cast<uint32_t>(to_ns - begin_ns)});
}

void BusyIntervals::insert(Bucket& bucket, Piece piece) {
  // Most come in order.
  if (bucket.empty() || bucket.back().end < piece.start) {
    bucket.push_back(piece);
    ++budget_->pieces;
    busy_ns_ += piece.end - piece.start;
    return;
  }
  const auto first = find_first(bucket, piece.start);
  auto end = first;  // behind the last that it touches: seldom more than one
  while (end != bucket.end() && end->start <= piece.end) ++end;
  if (first == end) {
    bucket.insert(first, piece);
    ++budget_->pieces;
    busy_ns_ += piece.end - piece.start;
    return;
  }
  uint64_t covered_ns = 0;
  for (auto other = first; other != end; ++other) covered_ns += other->end - other->start;
  const Piece merged = {.start = std::min(piece.start, first->start),
                        .end = std::max(piece.end, std::prev(end)->end)};
  busy_ns_ += merged.end - merged.start - covered_ns;
  budget_->pieces -= static_cast<size_t>(end - first) - 1;
  *first = merged;
  if (end - first > 1) bucket.erase(first + 1, end);
}

// Closes the buckets before `number`, counting what the interval covers of them.
void BusyIntervals::close_until(uint64_t number, uint64_t start_ns, uint64_t end_ns) {
  const uint64_t known = std::min(number, first_ + kBuckets);
  for (; first_ < known; ++first_) {
    add_piece(first_, start_ns, end_ns);
    close(get_bucket(first_));
  }
  // Time that no interval has reached yet.
  const uint64_t from_ns = std::max(start_ns, first_ << kBucketBits);
  const uint64_t to_ns = std::min(end_ns, number << kBucketBits);
  if (from_ns < to_ns) busy_ns_ += to_ns - from_ns;
  first_ = number;
}

void BusyIntervals::close(Bucket& bucket) {
  constexpr size_t kKeptRoom = 64;  // of an ordinary GPU; busier ones give theirs back
  budget_->pieces -= bucket.size();
  if (bucket.capacity() > kKeptRoom) {
    bucket = {};
  } else {
    bucket.clear();
  }
}

}  // namespace gpuperf
