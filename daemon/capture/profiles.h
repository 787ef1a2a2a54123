#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/capture/trace_sources.h"
#include "daemon/model/capture.h"

namespace gpuperf {

// Makes a profile of every period, one after the other: from the flight recorder, once all of that
// time has come.
//
// Thread: loop only. Bounds: a period holds as much as the recorder may; what does not fit, and a
// profile for which there is no time, is left out and reported.
class Profiles {
 public:
  using OnProfile = std::function<void(const Capture&)>;  // build thread

  // period_ns 0 = none is wanted.
  Profiles(const TraceSources& sources, uint64_t period_ns, OnProfile on_profile)
      : sources_(sources), period_ns_(period_ns), on_profile_(std::move(on_profile)) {}
  Profiles(const Profiles&) = delete;
  Profiles& operator=(const Profiles&) = delete;

  // Often: profiles begin and end on it.
  void advance();

 private:
  struct Period {
    uint64_t start_mono_ns = 0;
    uint64_t start_unix_ns = 0;
    uint64_t lost_hits_before = 0;
    std::shared_ptr<TraceRecorder::Pin> pin;  // null = none has begun
  };
  Period begin(uint64_t from_mono_ns) const;

  // Set once in the constructor.
  const TraceSources& sources_;
  const uint64_t period_ns_;
  const OnProfile on_profile_;
  // Loop thread only.
  Period current_;
};

}  // namespace gpuperf
