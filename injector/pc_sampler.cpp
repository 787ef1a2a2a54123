#include "injector/pc_sampler.h"

#include <cstring>

#include "injector/module_images.h"
#include "injector/own_memory.h"

namespace gpuperf::injector {
namespace {

// CUDA 13: with an older CUPTI it was not measured whether it can go on and off harmlessly.
constexpr uint32_t kOldestCupti = 130000;
// Memory of the GPU that samples wait in. CUPTI's default is 512 MiB.
constexpr size_t kHardwareBufferBytes = 32 << 20;
// Calls of cuptiPCSamplingGetData in a row: their instructions are those of a large program.
constexpr int kCallsMax = 20;
constexpr size_t kReasonNameBytes = CUPTI_STALL_REASON_STRING_SIZE;

constexpr const char* kStallNames[] = {
#define GPUPERF_STALL_NAME(name) #name,
    GPUPERF_STALLS(GPUPERF_STALL_NAME)
#undef GPUPERF_STALL_NAME
};

// CUPTI asks for the CRC of each module's image. The answer is its own; but so it tells where the
// driver has the images, among them those that it compiled or decompressed itself. Called on the
// thread that begins to sample, or on one that loads a module, with a mutex of CUPTI's held:
// cuptiGetCubinCrc takes none (13.0).
decltype(&cuptiGetCubinCrc) g_get_crc = nullptr;
void note_image(const void* image, size_t image_bytes, uint64_t* crc) {
  auto params = CUpti_GetCubinCrcParams{
      .size = CUpti_GetCubinCrcParamsSize, .cubinSize = image_bytes, .cubin = image};
  if (g_get_crc(&params) != CUPTI_SUCCESS) return;
  *crc = params.cubinCrc;
  note_module_image(reinterpret_cast<Word>(image));
}

// Each struct names its own size, and wants null beside it.
template <typename Params>
Params make_params(CUcontext context, size_t size_bytes) {
  Params params = {};
  params.size = size_bytes;
  params.ctx = context;
  return params;
}

// "smsp__pcsamp_warps_issue_stalled_NAME", "..._NAME_not_issued".
bool read_reason(const char* metric, uint32_t& stall, bool& is_idle) {
  static constexpr char kPrefix[] = "smsp__pcsamp_warps_issue_stalled_";
  static constexpr char kIdle[] = "_not_issued";
  if (std::strncmp(metric, kPrefix, sizeof(kPrefix) - 1) != 0) return false;
  const char* name = metric + sizeof(kPrefix) - 1;
  size_t length = std::strlen(name);
  is_idle =
      length > sizeof(kIdle) - 1 && std::strcmp(name + length - (sizeof(kIdle) - 1), kIdle) == 0;
  if (is_idle) length -= sizeof(kIdle) - 1;
  stall = GPUPERF_STALL_other;
  for (uint32_t i = 0; i < GPUPERF_STALL_COUNT; ++i) {
    if (std::strlen(kStallNames[i]) == length && std::strncmp(kStallNames[i], name, length) == 0) {
      stall = i;
    }
  }
  return true;
}

}  // namespace

const char* PcSampler::find_why_not(const CuptiApi& api) {
  if (api.version < kOldestCupti) return "no PC sampling: it needs CUPTI of CUDA 13";
  const bool is_complete =
      api.cuptiPCSamplingEnable != nullptr && api.cuptiPCSamplingDisable != nullptr &&
      api.cuptiPCSamplingStart != nullptr && api.cuptiPCSamplingStop != nullptr &&
      api.cuptiPCSamplingGetData != nullptr && api.cuptiPCSamplingGetNumStallReasons != nullptr &&
      api.cuptiPCSamplingGetStallReasons != nullptr &&
      api.cuptiPCSamplingSetConfigurationAttribute != nullptr;
  return is_complete ? nullptr : "no PC sampling: libcupti lacks it";
}

CUpti_PCSamplingData* PcSampler::make_data() const {
  const size_t stalls_bytes = reason_count_ * sizeof(CUpti_PCSamplingStallReason);
  // Never given back: CUPTI may still hold it.
  auto* bytes = static_cast<uint8_t*>(
      map_zeroes(sizeof(CUpti_PCSamplingData) +
                 kInstructions * (sizeof(CUpti_PCSamplingPCData) + stalls_bytes)));
  if (bytes == nullptr) return nullptr;
  auto* data = reinterpret_cast<CUpti_PCSamplingData*>(bytes);
  data->size = sizeof(*data);
  data->collectNumPcs = kInstructions;
  data->pPcData = reinterpret_cast<CUpti_PCSamplingPCData*>(bytes + sizeof(*data));
  uint8_t* stalls = bytes + sizeof(*data) + kInstructions * sizeof(CUpti_PCSamplingPCData);
  for (size_t i = 0; i < kInstructions; ++i, stalls += stalls_bytes) {
    data->pPcData[i].size = sizeof(CUpti_PCSamplingPCData);
    data->pPcData[i].stallReason = reinterpret_cast<CUpti_PCSamplingStallReason*>(stalls);
  }
  return data;
}

CUptiResult PcSampler::learn_reasons(const CuptiApi& api, CUcontext context) {
  if (reason_count_ > 0) return CUPTI_SUCCESS;
  size_t count = 0;
  auto ask = make_params<CUpti_PCSamplingGetNumStallReasonsParams>(
      context, CUpti_PCSamplingGetNumStallReasonsParamsSize);
  ask.numStallReasons = &count;
  CUptiResult result = api.cuptiPCSamplingGetNumStallReasons(&ask);
  if (result != CUPTI_SUCCESS) return result;
  if (count == 0 || count > kReasonsMax) return CUPTI_ERROR_NOT_SUPPORTED;
  static char texts[kReasonsMax][kReasonNameBytes];  // our thread's stack is small
  char* names[kReasonsMax];
  uint32_t indexes[kReasonsMax] = {};
  for (size_t i = 0; i < kReasonsMax; ++i) names[i] = texts[i];
  auto get = make_params<CUpti_PCSamplingGetStallReasonsParams>(
      context, CUpti_PCSamplingGetStallReasonsParamsSize);
  get.numStallReasons = count;
  get.stallReasonIndex = indexes;
  get.stallReasons = names;
  result = api.cuptiPCSamplingGetStallReasons(&get);
  if (result != CUPTI_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    if (indexes[i] >= kReasonsMax) continue;
    Reason& reason = reasons_[indexes[i]];
    reason.is_stall = read_reason(names[i], reason.stall, reason.is_idle);
  }
  reason_count_ = count;
  return CUPTI_SUCCESS;
}

CUptiResult PcSampler::configure(const CuptiApi& api, const Device& device) {
  CUpti_PCSamplingConfigurationInfo settings[4] = {};
  settings[0].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD;
  settings[0].attributeData.samplingPeriodData.samplingPeriod = kPeriod;
  settings[1].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE;
  settings[1].attributeData.hardwareBufferSizeData.hardwareBufferSize = kHardwareBufferBytes;
  settings[2].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER;
  settings[2].attributeData.samplingDataBufferData.samplingDataBuffer = device.rest;
  settings[3].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_ENABLE_START_STOP_CONTROL;
  settings[3].attributeData.enableStartStopControlData.enableStartStopControl = 1;
  auto params = make_params<CUpti_PCSamplingConfigurationInfoParams>(
      device.context, CUpti_PCSamplingConfigurationInfoParamsSize);
  params.numAttributes = std::size(settings);
  params.pPCSamplingConfigurationInfo = settings;
  return api.cuptiPCSamplingSetConfigurationAttribute(&params);
}

void PcSampler::disable(const CuptiApi& api, const Device& device) {
  auto params =
      make_params<CUpti_PCSamplingDisableParams>(device.context, CUpti_PCSamplingDisableParamsSize);
  (void)api.cuptiPCSamplingDisable(&params);
}

PcSampler::Failure PcSampler::begin(const CuptiApi& api, Device& device) {
  auto enable =
      make_params<CUpti_PCSamplingEnableParams>(device.context, CUpti_PCSamplingEnableParamsSize);
  CUptiResult result = api.cuptiPCSamplingEnable(&enable);
  if (result != CUPTI_SUCCESS) return {"cuptiPCSamplingEnable", result};
  const auto fail = [&](const char* call, CUptiResult why) {
    disable(api, device);
    return Failure{call, why};
  };
  result = learn_reasons(api, device.context);
  if (result != CUPTI_SUCCESS) return fail("cuptiPCSamplingGetStallReasons", result);
  CUpti_PCSamplingData*& rest = rests_[count_];
  if (data_ == nullptr) data_ = make_data();
  if (rest == nullptr) rest = make_data();
  if (data_ == nullptr || rest == nullptr) return fail("mmap", CUPTI_ERROR_OUT_OF_MEMORY);
  device.rest = rest;
  result = configure(api, device);
  if (result != CUPTI_SUCCESS) return fail("cuptiPCSamplingSetConfigurationAttribute", result);
  auto start =
      make_params<CUpti_PCSamplingStartParams>(device.context, CUpti_PCSamplingStartParamsSize);
  result = api.cuptiPCSamplingStart(&start);
  if (result != CUPTI_SUCCESS) return fail("cuptiPCSamplingStart", result);
  return {};
}

PcSampler::Failure PcSampler::begin(const CuptiApi& api, uint64_t devices) {
  if (api.cuptiGetCubinCrc != nullptr && api.cuptiRegisterComputeCrcCallback != nullptr) {
    g_get_crc = api.cuptiGetCubinCrc;
    (void)api.cuptiRegisterComputeCrcCallback(note_image);  // else only what hooks saw is found
  }
  CUcontext contexts[kDevicesMax];
  uint32_t ordinals[kDevicesMax];
  const uint32_t found = list_primary_contexts(contexts, ordinals, kDevicesMax);
  Failure failure = {"", CUPTI_SUCCESS};
  for (uint32_t i = 0; i < found; ++i) {
    if (ordinals[i] >= 64 || (devices >> ordinals[i] & 1) == 0) continue;
    Device device = {.ordinal = ordinals[i], .context = contexts[i], .rest = nullptr};
    const Failure its = begin(api, device);
    if (its.call == nullptr) {
      devices_[count_++] = device;
    } else {
      failure = its;
    }
  }
  return count_ > 0 ? Failure{} : failure;
}

void PcSampler::hand_over(const Device& device, CUpti_PCSamplingData& data, Sink& sink) {
  for (size_t i = 0; i < data.totalNumPcs && i < kInstructions; ++i) {
    const CUpti_PCSamplingPCData& found = data.pPcData[i];
    gpuperf_session_stall by_stall[GPUPERF_STALL_COUNT] = {};
    for (size_t j = 0; j < found.stallReasonCount && j < reason_count_; ++j) {
      const uint32_t index = found.stallReason[j].pcSamplingStallReasonIndex;
      if (index >= kReasonsMax || !reasons_[index].is_stall) continue;
      gpuperf_session_stall& counts = by_stall[reasons_[index].stall];
      (reasons_[index].is_idle ? counts.idle_samples : counts.samples) +=
          found.stallReason[j].samples;
    }
    size_t count = 0;
    for (uint32_t stall = 0; stall < GPUPERF_STALL_COUNT; ++stall) {
      gpuperf_session_stall counts = by_stall[stall];
      if (counts.samples == 0) continue;
      counts.stall = stall;
      if (counts.idle_samples > counts.samples) counts.idle_samples = counts.samples;
      by_stall[count++] = counts;
    }
    // The name is never freed: CUPTI may share it with records of kernels.
    const char* function = found.functionName != nullptr ? found.functionName : "";
    if (count > 0) {
      sink.take(Instruction{.function = function,
                            .cubin_crc = found.cubinCrc,
                            .pc_offset_bytes = found.pcOffset,
                            .stalls = {by_stall, count}});
    }
  }
  sink.take(Total{.device = device.ordinal,
                  .samples = data.totalSamples,
                  .dropped_samples = data.droppedSamples,
                  .other_samples = data.nonUsrKernelsTotalSamples,
                  .was_full = data.hardwareBufferFull != 0});
  data.totalNumPcs = 0;
  data.totalSamples = data.droppedSamples = data.nonUsrKernelsTotalSamples = 0;
  data.hardwareBufferFull = 0;
}

void PcSampler::drain(const CuptiApi& api, const Device& device, Sink& sink) {
  for (int i = 0; i < kCallsMax; ++i) {
    auto params = make_params<CUpti_PCSamplingGetDataParams>(device.context,
                                                             CUpti_PCSamplingGetDataParamsSize);
    params.pcSamplingData = data_;
    const CUptiResult result = api.cuptiPCSamplingGetData(&params);
    // Out of memory: the hardware's buffer was full, which the data says.
    if (result != CUPTI_SUCCESS && result != CUPTI_ERROR_OUT_OF_MEMORY) return;
    hand_over(device, *data_, sink);
    if (data_->remainingNumPcs == 0) return;
  }
}

void PcSampler::take(const CuptiApi& api, Sink& sink) {
  for (uint32_t i = 0; i < count_; ++i) drain(api, devices_[i], sink);
}

void PcSampler::end(const CuptiApi& api, Sink& sink) {
  for (uint32_t i = 0; i < count_; ++i) {
    const Device& device = devices_[i];
    auto stop =
        make_params<CUpti_PCSamplingStopParams>(device.context, CUpti_PCSamplingStopParamsSize);
    (void)api.cuptiPCSamplingStop(&stop);
    drain(api, device, sink);
    disable(api, device);
    hand_over(device, *device.rest, sink);
  }
  count_ = 0;
}

}  // namespace gpuperf::injector
