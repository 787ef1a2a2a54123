#include "daemon/model/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace gpuperf {
namespace {

constexpr uint64_t kSubBuckets = 1u << GPUPERF_SUB_BUCKET_BITS;

// Position of the first word that is not below `wanted`. Durations scatter over the buckets, and a
// search with branches, which the CPU cannot foresee, took three times as long.
size_t find_place(std::span<const uint64_t> words, uint64_t wanted) {
  size_t place = 0;
  for (size_t left = words.size(); left > 0;) {
    const size_t half = (left + 1) / 2;
    place += words[place + half - 1] < wanted ? half : 0;
    left -= half;
  }
  return place;
}

}  // namespace

size_t bucket_of(uint64_t duration_ns) {
  if (duration_ns < (1u << GPUPERF_FIRST_OCTAVE)) return duration_ns >> GPUPERF_BUCKET_SHIFT;
  const int octave = static_cast<int>(std::bit_width(duration_ns)) - 1;
  if (octave > GPUPERF_LAST_OCTAVE) return kBucketCount - 1;
  const uint64_t sub = (duration_ns >> (octave - GPUPERF_SUB_BUCKET_BITS)) & (kSubBuckets - 1);
  return (octave - GPUPERF_FIRST_OCTAVE + 1) * kSubBuckets + sub;
}

uint64_t bucket_lower_ns(size_t bucket) {
  if (bucket < kSubBuckets) return bucket << GPUPERF_BUCKET_SHIFT;
  const uint64_t octave = bucket / kSubBuckets - 1 + GPUPERF_FIRST_OCTAVE;
  return (kSubBuckets + bucket % kSubBuckets) << (octave - GPUPERF_SUB_BUCKET_BITS);
}

uint64_t bucket_middle_ns(size_t bucket) {
  return (bucket_lower_ns(bucket) + bucket_lower_ns(bucket + 1)) / 2;
}

void Histogram::raise(Word& word, uint64_t count) {
  const uint64_t room = kMaxCount - (word & kMaxCount);
  word += std::min(count, room);
}

void Histogram::add(size_t bucket, uint64_t count) {
  if (count == 0) return;
  const size_t index = std::min(bucket, kBucketCount - 1);
  size_t place = words_.size();
  if (!words_.empty() && index_of(words_.back()) >= index) {
    place = find_place(words_, Word{index} << kCountBits);
  }
  if (place == words_.size() || index_of(words_[place]) != index) {
    // By a few at a time: there are thousands of these, and doubling would waste a third of them.
    if (words_.size() == words_.capacity()) words_.reserve(words_.size() + kGrowth);
    words_.insert(words_.begin() + static_cast<ptrdiff_t>(place), Word{index} << kCountBits);
  }
  raise(words_[place], count);
  count_ += count;
}

// Grows by the buckets that only `other` has, then merges from the back: in place, without a second
// vector, because a scrape merges thousands of these into one.
void Histogram::merge(const Histogram& other) {
  size_t missing = 0;
  auto mine = words_.cbegin();
  for (const Word word : other.words_) {
    while (mine != words_.cend() && index_of(*mine) < index_of(word)) ++mine;
    if (mine == words_.cend() || index_of(*mine) != index_of(word)) ++missing;
  }
  size_t left = words_.size();  // of the old words, still to be placed
  words_.resize(left + missing);
  size_t place = words_.size();
  for (size_t right = other.words_.size(); right > 0; --right) {
    const Word word = other.words_[right - 1];
    while (left > 0 && index_of(words_[left - 1]) > index_of(word)) {
      words_[--place] = words_[--left];
    }
    if (left > 0 && index_of(words_[left - 1]) == index_of(word)) {
      words_[--place] = words_[--left];
      raise(words_[place], word & kMaxCount);
    } else {
      words_[--place] = word;
    }
  }
  count_ += other.count_;
}

Histogram Histogram::without(const Histogram& earlier) const {
  Histogram added;
  auto old = earlier.words_.begin();
  for (const Word word : words_) {
    while (old != earlier.words_.end() && index_of(*old) < index_of(word)) ++old;
    const bool was_there = old != earlier.words_.end() && index_of(*old) == index_of(word);
    const uint64_t before = was_there ? *old & kMaxCount : 0;
    const uint64_t now = word & kMaxCount;
    if (now > before) added.add(index_of(word), now - before);
  }
  return added;
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  std::vector<Bucket> unpacked(words_.size());
  std::ranges::transform(words_, unpacked.begin(), unpack);
  return unpacked;
}

uint64_t Histogram::quantile_ns(double quantile) const {
  if (count_ == 0) return 0;
  const auto rank = std::clamp<uint64_t>(
      static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_))), 1, count_);
  uint64_t seen = 0;
  for (const auto& [index, count] : buckets()) {
    seen += count;
    if (seen >= rank) return bucket_middle_ns(index);
  }
  return bucket_lower_ns(kBucketCount);
}

}  // namespace gpuperf
