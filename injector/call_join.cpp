#include "injector/call_join.h"

#include <algorithm>

#include "injector/own_memory.h"

namespace gpuperf::injector {
namespace {

// A call's times and its work's differ by two clocks and two conversions.
constexpr uint64_t kClockSlackNs = 2'000;

// Marks finished entries until sweep() removes them.
constexpr uint16_t kTaken = UINT16_MAX;
constexpr uint32_t kDone = 0;  // no correlation id is 0

constexpr const char* kNoCall = "GPU work without a hooked call";

template <typename T>
T* allocate(size_t count) {
  return static_cast<T*>(map_zeroes(count * sizeof(T)));
}

bool is_of(const CallJoin::Call& call, const CallJoin::Work& work) {
  return call.entry != kTaken && get_call_kind(call.entry) == work.kind &&
         (call.size == 0 || call.size == work.size) &&
         call.start_unix_ns <= work.start_unix_ns + kClockSlackNs;
}

bool may_be_either(const CallJoin::Call& a, const CallJoin::Call& b) {
  return a.tid != b.tid && a.size == b.size && b.entry != kTaken &&
         a.start_unix_ns < b.start_unix_ns + b.duration_ns &&
         b.start_unix_ns < a.start_unix_ns + a.duration_ns;
}

}  // namespace

bool CallJoin::make_room() {
  if (calls_ == nullptr) calls_ = allocate<Call>(kCallsMax);
  if (works_ == nullptr) works_ = allocate<Work>(kWorksMax);
  if (calls_ != nullptr && works_ != nullptr && call_count_ < kCallsMax &&
      work_count_ < kWorksMax) {
    return true;
  }
  break_off("too many calls wait for their work");
  return false;
}

void CallJoin::add(const Call& call) {
  if (is_broken() || !make_room()) {
    ++lost_count_;
    return;
  }
  calls_[call_count_++] = call;
  first_call_unix_ns_ = std::min(first_call_unix_ns_, call.start_unix_ns);
}

void CallJoin::add(const Work& work) {
  if (!is_broken() && make_room() && work.correlation_id != kDone) works_[work_count_++] = work;
}

void CallJoin::break_off(const char* why) {
  drop();
  why_broken_ = why;
  work_count_ = 0;
}

void CallJoin::drop() { sweep(UINT64_MAX); }

void CallJoin::restart(uint64_t now_unix_ns) {
  call_count_ = work_count_ = begun_count_ = 0;
  why_broken_ = nullptr;
  had_earlier_work_ = false;
  restart_unix_ns_ = now_unix_ns;
}

CallJoin::Span CallJoin::find_calls(uint32_t stream) const {
  const Call* const begin = calls_;
  const Call* const end = begin + call_count_;
  const Call* const first =
      std::partition_point(begin, end, [stream](const Call& c) { return c.stream < stream; });
  const Call* const last =
      std::partition_point(first, end, [stream](const Call& c) { return c.stream == stream; });
  return {static_cast<size_t>(first - begin), static_cast<size_t>(last - begin)};
}

bool CallJoin::is_begun(uint32_t stream) const {
  const uint32_t* const end = begun_ + std::min(begun_count_, kStreamsMax);
  return std::find(begun_, end, stream) != end;
}

// Calls are complete since then on every stream.
uint64_t CallJoin::first_unix_ns() const {
  return restart_unix_ns_ != 0 ? restart_unix_ns_ : first_call_unix_ns_;
}

// Whether the work was launched before calls were logged, on a stream without a pair so far.
bool CallJoin::is_from_before(const Work& work, Span calls) const {
  const bool is_beginning = restart_unix_ns_ == 0 && begun_count_ < kStreamsMax;
  const uint64_t first_ns =
      is_beginning && calls.first < calls.end ? calls_[calls.first].start_unix_ns : first_unix_ns();
  return work.start_unix_ns + kClockSlackNs < first_ns;
}

// Begins a stream with its first pair.
const char* CallJoin::begin_stream(const Work& work, Span calls) {
  if (calls.first == calls.end) return kNoCall;
  const Call& call = calls_[calls.first];
  const bool is_prompt = work.start_unix_ns <= call.start_unix_ns + call.duration_ns + kPromptNs;
  const bool may_follow_earlier_work =
      had_earlier_work_ && work.start_unix_ns < first_unix_ns() + kCallPatienceNs;
  begun_[begun_count_++ % kStreamsMax] = work.stream;
  return is_prompt || !may_follow_earlier_work ? nullptr : "work from before the hooks began";
}

// Takes the work's call from `calls` and advances its front. `last`: the call taken before it.
const char* CallJoin::join_work(const Work& work, Span& calls, Call& last, Sink& sink) {
  while (calls.first < calls.end && calls_[calls.first].entry == kTaken) ++calls.first;
  size_t found = calls.first;
  while (found < calls.end && !is_of(calls_[found], work)) ++found;
  if (found == calls.end) return kNoCall;
  const Call call = calls_[found];
  if (may_be_either(call, last) ||
      (found + 1 < calls.end && may_be_either(call, calls_[found + 1]))) {
    return "threads launched on one stream at once";
  }
  sink.take(call, work.correlation_id);
  calls_[found].entry = kTaken;
  last = call;
  return nullptr;
}

const char* CallJoin::join_stream(Span works, uint64_t now_unix_ns, Sink& sink) {
  Span calls = find_calls(works_[works.first].stream);
  Call last = {};
  bool is_known = is_begun(works_[works.first].stream);
  for (size_t i = works.first; i < works.end; ++i) {
    Work& work = works_[i];
    if (work.end_unix_ns + kSettleNs > now_unix_ns) break;  // later ones wait, too
    if (!is_known && is_from_before(work, calls)) {
      had_earlier_work_ = true;
    } else {
      const char* why = is_known ? nullptr : begin_stream(work, calls);
      is_known = true;
      if (why == nullptr) why = join_work(work, calls, last, sink);
      if (why != nullptr) return why;
    }
    work.correlation_id = kDone;
  }
  return nullptr;
}

void CallJoin::sweep(uint64_t given_up_unix_ns) {
  Call* const calls_end = std::remove_if(calls_, calls_ + call_count_, [=, this](const Call& call) {
    if (call.entry == kTaken) return true;
    if (call.start_unix_ns >= given_up_unix_ns) return false;
    ++lost_count_;
    return true;
  });
  call_count_ = static_cast<size_t>(calls_end - calls_);
  Work* const works_end = std::remove_if(
      works_, works_ + work_count_, [](const Work& work) { return work.correlation_id == kDone; });
  work_count_ = static_cast<size_t>(works_end - works_);
}

void CallJoin::join(uint64_t now_unix_ns, Sink& sink) {
  join_works(now_unix_ns, sink);
  sweep(now_unix_ns - kCallPatienceNs);
}

void CallJoin::finish(Sink& sink) {
  join_works(UINT64_MAX, sink);
  drop();
}

void CallJoin::join_works(uint64_t now_unix_ns, Sink& sink) {
  if (is_broken() || work_count_ == 0) return;
  std::sort(calls_, calls_ + call_count_, [](const Call& a, const Call& b) {
    return a.stream != b.stream ? a.stream < b.stream : a.start_unix_ns < b.start_unix_ns;
  });
  std::sort(works_, works_ + work_count_, [](const Work& a, const Work& b) {
    return a.stream != b.stream ? a.stream < b.stream : a.correlation_id < b.correlation_id;
  });
  for (size_t first = 0, end = 0; first < work_count_; first = end) {
    while (end < work_count_ && works_[end].stream == works_[first].stream) ++end;
    const char* const why = join_stream({first, end}, now_unix_ns, sink);
    if (why != nullptr) return break_off(why);
  }
}

}  // namespace gpuperf::injector
