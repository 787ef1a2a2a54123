// PC sampling, with the rules that were seen on an H200 (CUPTI 13.0, driver 580).

#include <cupti_pcsampling.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <string>

#include "tests/fakes/cupti/fake_cupti.h"

namespace fake_cupti {
namespace {

// A kernel has two instructions and is sampled once a microsecond: three of four samples wait for
// memory at the first, half of these while nothing issues; the fourth issues the second.
constexpr const char* kReasons[] = {"smsp__pcsamp_sample_count",
                                    "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
                                    "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
                                    "smsp__pcsamp_warps_issue_stalled_selected"};
constexpr uint32_t kFirstIndex = 7;      // the real ones have gaps, too
constexpr uint64_t kCubin = 0xdf940d43;  // of a program that has loaded no module
constexpr uint32_t kLoadAt = 0xe0, kAddAt = 0x130;
CUpti_ComputeCrcCallbackFunc g_compute_crc = nullptr;

enum class State { kOff, kEnabled, kSampling };

std::mutex& g_lock = *new std::mutex;
std::atomic<State> g_state = State::kOff;
std::atomic<uint64_t> g_begun = 0;
std::map<std::string, uint64_t>& g_busy_us = *new std::map<std::string, uint64_t>;
CUpti_PCSamplingData* g_rest = nullptr;
uint64_t g_crc = kCubin;

// The real one looks at some 30 bytes, spread over the image.
uint64_t find_crc(const void* cubin, size_t size) {
  uint64_t crc = size;
  for (size_t i = 0; i < 30; ++i) {
    crc = crc * 31 + static_cast<const unsigned char*>(cubin)[i * size / 30];
  }
  return crc & 0xffffffff;
}

void find_module() {
  const FakeImage image = fake_cuda_get_image();
  if (image.size == 0) return;
  g_crc = find_crc(image.bytes, image.size);
  if (g_compute_crc != nullptr) g_compute_crc(image.bytes, image.size, &g_crc);
}

// The real one hangs.
void refuse_others(const char* call) {
  if (fake_cuda_count_in_driver() == 0) return;
  std::fprintf(stderr, "fake CUPTI: %s while another thread launches or maps memory\n", call);
  std::abort();
}

void fill(CUpti_PCSamplingPCData& to, const std::string& name, uint32_t offset,
          std::initializer_list<std::pair<uint32_t, uint64_t>> counts) {
  to.cubinCrc = g_crc;
  to.pcOffset = offset;
  static std::set<std::string>& names = *new std::set<std::string>;  // nobody may free them
  to.functionName = const_cast<char*>(names.insert(name).first->c_str());
  to.stallReasonCount = 0;
  for (const auto& [reason, count] : counts) {
    to.stallReason[to.stallReasonCount++] = {kFirstIndex + reason, static_cast<uint32_t>(count)};
  }
}

void hand_over(CUpti_PCSamplingData& data) {
  const std::scoped_lock lock(g_lock);
  data.totalNumPcs = 0;
  data.totalSamples = 0;
  while (!g_busy_us.empty() && data.totalNumPcs + 2 <= data.collectNumPcs) {
    const auto [name, samples] = *g_busy_us.begin();
    const uint64_t waits = samples * 3 / 4;
    fill(data.pPcData[data.totalNumPcs++], name, kLoadAt, {{1, waits}, {2, waits / 2}});
    fill(data.pPcData[data.totalNumPcs++], name, kAddAt, {{3, samples - waits}});
    data.totalSamples += samples;
    g_busy_us.erase(g_busy_us.begin());
  }
  data.remainingNumPcs = 2 * g_busy_us.size();
}

}  // namespace

bool is_sampling() { return g_state != State::kOff; }

void note_kernel(const FakeWork& work) {
  const bool is_kernel = work.kind == FakeWorkKind::kKernel || work.kind == FakeWorkKind::kNode;
  if (g_state != State::kSampling || !is_kernel || work.name == nullptr) return;
  const std::scoped_lock lock(g_lock);
  g_busy_us[work.name] += (work.end_unix_ns - work.start_unix_ns) / 1'000;
}

void read_sampling(FakeCuptiState& state) {
  state.samplings = g_begun;
  state.is_sampling = is_sampling();
}

}  // namespace fake_cupti

using namespace fake_cupti;

extern "C" {

CUptiResult cuptiPCSamplingEnable(CUpti_PCSamplingEnableParams* params) {
  refuse_others(__func__);
  if (is_failing(__func__)) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (params->ctx == nullptr || is_sampling()) return CUPTI_ERROR_INVALID_OPERATION;
  attach();
  find_module();
  g_state = State::kEnabled;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCubinCrc(CUpti_GetCubinCrcParams* params) {
  if (params->cubin == nullptr || params->cubinSize == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  params->cubinCrc = find_crc(params->cubin, params->cubinSize);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRegisterComputeCrcCallback(CUpti_ComputeCrcCallbackFunc compute_crc) {
  if (is_failing(__func__)) return CUPTI_ERROR_NOT_SUPPORTED;
  g_compute_crc = compute_crc;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingGetNumStallReasons(CUpti_PCSamplingGetNumStallReasonsParams* params) {
  *params->numStallReasons = std::size(kReasons);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingGetStallReasons(CUpti_PCSamplingGetStallReasonsParams* params) {
  for (uint32_t i = 0; i < std::size(kReasons) && i < params->numStallReasons; ++i) {
    params->stallReasonIndex[i] = kFirstIndex + i;
    std::strcpy(params->stallReasons[i], kReasons[i]);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingSetConfigurationAttribute(
    CUpti_PCSamplingConfigurationInfoParams* params) {
  for (size_t i = 0; i < params->numAttributes; ++i) {
    CUpti_PCSamplingConfigurationInfo& one = params->pPCSamplingConfigurationInfo[i];
    one.attributeStatus = CUPTI_SUCCESS;
    if (one.attributeType == CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER) {
      g_rest = static_cast<CUpti_PCSamplingData*>(
          one.attributeData.samplingDataBufferData.samplingDataBuffer);
    }
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingStart(CUpti_PCSamplingStartParams*) {
  refuse_others(__func__);
  if (is_failing(__func__)) return CUPTI_ERROR_HARDWARE_BUSY;
  if (g_state != State::kEnabled || g_rest == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
  g_state = State::kSampling;
  ++g_begun;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingStop(CUpti_PCSamplingStopParams*) {
  refuse_others(__func__);
  if (g_state != State::kSampling) return CUPTI_ERROR_INVALID_OPERATION;
  g_state = State::kEnabled;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingGetData(CUpti_PCSamplingGetDataParams* params) {
  if (!is_sampling()) return CUPTI_ERROR_INVALID_OPERATION;
  hand_over(*static_cast<CUpti_PCSamplingData*>(params->pcSamplingData));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPCSamplingDisable(CUpti_PCSamplingDisableParams*) {
  refuse_others(__func__);
  if (!is_sampling()) return CUPTI_ERROR_INVALID_OPERATION;
  if (g_rest != nullptr) hand_over(*g_rest);
  g_rest = nullptr;
  g_state = State::kOff;
  return CUPTI_SUCCESS;
}

}  // extern "C"
