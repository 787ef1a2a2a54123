#pragma once

// The CUPTI and driver functions in use, resolved at run time.
//
// Nothing of CUDA is linked: one library serves CUDA 12 and 13, and a process without CUPTI is left
// unchanged. Both use the structs of CUPTI 13's headers; a field is read only where every supported
// version has it (each struct family has only grown at the end).

#include <cupti.h>
#include <cupti_pcsampling.h>

#include <cstddef>
#include <cstdint>

#include "injector/session_abi.h"

namespace gpuperf::injector {

// X(name): required function of libcupti.
#define GPUPERF_CUPTI_FUNCTIONS(X)     \
  X(cuptiActivityDisable)              \
  X(cuptiActivityEnable)               \
  X(cuptiActivityFlushAll)             \
  X(cuptiActivityGetNextRecord)        \
  X(cuptiActivityGetNumDroppedRecords) \
  X(cuptiActivityRegisterCallbacks)    \
  X(cuptiActivitySetAttribute)         \
  X(cuptiGetCallbackName)              \
  X(cuptiGetTimestamp)                 \
  X(cuptiGetVersion)                   \
  X(cuptiSetThreadIdType)
// Only in newer versions: null where missing.
#define GPUPERF_CUPTI_NEWER_FUNCTIONS(X)      \
  X(cuptiActivityEnableDriverApi)             \
  X(cuptiActivityEnableRuntimeApi)            \
  X(cuptiFinalize)                            \
  X(cuptiGetCubinCrc)                         \
  X(cuptiPCSamplingDisable)                   \
  X(cuptiPCSamplingEnable)                    \
  X(cuptiPCSamplingGetData)                   \
  X(cuptiPCSamplingGetNumStallReasons)        \
  X(cuptiPCSamplingGetStallReasons)           \
  X(cuptiPCSamplingSetConfigurationAttribute) \
  X(cuptiPCSamplingStart)                     \
  X(cuptiPCSamplingStop)                      \
  X(cuptiRegisterComputeCrcCallback)          \
  X(cuptiGetStreamIdEx)

struct CuptiApi {
#define GPUPERF_MEMBER(name) decltype(&::name) name = nullptr;
  GPUPERF_CUPTI_FUNCTIONS(GPUPERF_MEMBER)
  GPUPERF_CUPTI_NEWER_FUNCTIONS(GPUPERF_MEMBER)
#undef GPUPERF_MEMBER
  void* library = nullptr;  // from dlopen; never closed
  uint32_t version = 0;     // cuptiGetVersion()
};

struct CuptiFound {
  gpuperf_session_cause cause = GPUPERF_SESSION_CAUSE_NONE;  // why not, or NONE
  char detail[96] = "";
};

// The copy that the process has already mapped, else the one that belongs to its CUDA runtime, else
// the one the loader finds. Thread: any, one at a time. Loads a library: not for a hot path.
CuptiFound find_cupti(CuptiApi& api);

// Whether the process has a libcupti mapped, even if another component loaded it.
bool is_cupti_mapped();

// cuDriverGetVersion(); 0 = no driver mapped.
uint32_t read_driver_version();
// Fills in the device's limits of a multiprocessor; what the driver does not tell stays 0.
void read_sm_limits(gpuperf_session_place& place);
// The active primary contexts, one per device: those of the CUDA runtime, and so of PyTorch.
// Returns how many; at most `max`.
uint32_t list_primary_contexts(CUcontext* contexts, uint32_t* ordinals, uint32_t max);
// UUID of the device with this ordinal, or of the MIG instance where it is one. Zero = unknown.
// CUDA must be initialized.
void read_device_uuid(uint32_t ordinal, uint8_t (&uuid)[16]);
// Whether cuInit has succeeded in this process.
bool is_cuda_up();

// Name of a mapped library that belongs to an Nsight tool or debugger; null = none. They own
// CUPTI's slot in the driver and start before us.
const char* find_nsight();

}  // namespace gpuperf::injector
