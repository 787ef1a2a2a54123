#pragma once

// Samples what the warps of kernels are doing: CUPTI's PC sampling in its continuous mode.
//
// Each SM samples its warps every 2^kPeriod cycles; CUPTI adds the samples up by instruction and
// stall reason. Measured on an H200 (docs/decisions/0029-pc-sampling.md): a loop of GEMMs costs
// nothing measurable meanwhile; beginning takes 75 ms (first time 160 to 450), ending 45 to 75.
// Kernel records may be on if they are switched on first; later CUPTI refuses them (error 14).
// One process samples a GPU at a time: another gets CUPTI_ERROR_HARDWARE_BUSY.
//
// Thread: under the collector's lock. begin() and end() only while no other thread of the process
// is in a launch or in a call of mapping_hooks.h: it would hang.

#include <cupti.h>
#include <cupti_pcsampling.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "injector/cupti_api.h"
#include "injector/session_abi.h"

namespace gpuperf::injector {

class PcSampler {
 public:
  static constexpr uint32_t kPeriod = 16;
  static constexpr uint32_t kDevicesMax = 16;

  // What was found at one instruction since the last call.
  struct Instruction {
    const char* function;  // mangled; stays valid
    uint64_t cubin_crc;
    uint64_t pc_offset_bytes;
    std::span<const gpuperf_session_stall> stalls;
  };
  // What was found on a device.
  struct Total {
    uint32_t device;  // CUDA ordinal
    uint64_t samples;
    uint64_t dropped_samples;
    uint64_t other_samples;
    bool was_full;
  };
  class Sink {
   public:
    virtual void take(const Instruction& instruction) = 0;
    virtual void take(const Total& total) = 0;

   protected:
    ~Sink() = default;
  };

  // Whether this CUPTI can do it. Null = yes, else why not.
  static const char* find_why_not(const CuptiApi& api);
  bool is_on() const { return count_ > 0; }
  // Begins on those of `devices` (a bit by CUDA ordinal) whose primary context is active. On
  // failure nothing is on.
  struct Failure {
    const char* call = nullptr;  // null = none; "" = none of them has an active primary context
    CUptiResult result = CUPTI_SUCCESS;
  };
  Failure begin(const CuptiApi& api, uint64_t devices);
  // Hands over what was sampled since the last call. Other threads may be anywhere.
  void take(const CuptiApi& api, Sink& sink);
  // Ends it and hands over the rest.
  void end(const CuptiApi& api, Sink& sink);

 private:
  static constexpr uint32_t kReasonsMax = 64;
  static constexpr size_t kInstructions = 2'000;  // of a call; more come with the next

  struct Device {
    uint32_t ordinal;
    CUcontext context;
    CUpti_PCSamplingData* rest;  // what CUPTI hands over at the end
  };
  struct Reason {
    uint32_t stall = GPUPERF_STALL_other;
    bool is_idle = false;  // counts those samples of `stall` in which no warp issued
    bool is_stall = false;
  };

  Failure begin(const CuptiApi& api, Device& device);
  CUptiResult learn_reasons(const CuptiApi& api, CUcontext context);
  CUptiResult configure(const CuptiApi& api, const Device& device);
  void disable(const CuptiApi& api, const Device& device);
  void drain(const CuptiApi& api, const Device& device, Sink& sink);
  void hand_over(const Device& device, CUpti_PCSamplingData& data, Sink& sink);
  CUpti_PCSamplingData* make_data() const;

  Device devices_[kDevicesMax] = {};
  uint32_t count_ = 0;
  Reason reasons_[kReasonsMax] = {};  // by CUPTI's index
  size_t reason_count_ = 0;           // 0 = not known yet
  CUpti_PCSamplingData* data_ = nullptr;
  CUpti_PCSamplingData* rests_[kDevicesMax] = {};  // kept for the next time
};

}  // namespace gpuperf::injector
