#include "daemon/model/session_names.h"

#include <numeric>

#include "injector/session_abi.h"
#include "tests/unit/matchers.h"

namespace gpuperf {
namespace {

TEST(SessionNamesTest, NamesTheLastOfEachEnum) {
  EXPECT_EQ(get_session_state_name(GPUPERF_SESSION_STATE_FAILED), "failed");
  EXPECT_EQ(get_session_cause_name(GPUPERF_SESSION_CAUSE_GRAPHS_UNSEEN), "graphs_unseen");
  EXPECT_EQ(get_session_loss_name(GPUPERF_SESSION_LOSS_POOL_EMPTY), "pool_empty");
  EXPECT_EQ(get_copy_direction_name(false, GPUPERF_MEMCPY_PEER_TO_PEER), "peer_to_peer");
  EXPECT_EQ(get_copy_direction_name(true, 0), "set");
  EXPECT_EQ(get_memory_kind_name(GPUPERF_MEMORY_MANAGED_STATIC), "managed_static");
  EXPECT_EQ(get_sync_type_name(GPUPERF_SYNC_CONTEXT), "context");
  EXPECT_EQ(get_overhead_type_name(GPUPERF_OVERHEAD_ACTIVITY_BUFFER), "activity_buffer");
}

TEST(SessionNamesTest, KnowsNoNameBeyondAnEnum) {
  EXPECT_EQ(get_session_state_name(GPUPERF_SESSION_STATE_FAILED + 1), "unknown");
  EXPECT_EQ(get_session_cause_name(GPUPERF_SESSION_CAUSE_COUNT), "unknown");
  EXPECT_EQ(get_session_loss_name(GPUPERF_SESSION_LOSS_COUNT), "unknown");
  EXPECT_EQ(get_copy_direction_name(false, 255), "unknown");
  EXPECT_EQ(get_memory_kind_name(255), "unknown");
  EXPECT_EQ(get_sync_type_name(UINT32_MAX), "unknown");
  EXPECT_EQ(get_overhead_type_name(UINT32_MAX), "unknown");
}

TEST(SessionNamesTest, ListsWhatIsCollected) {
  EXPECT_THAT(list_session_levels(GPUPERF_SESSION_LEVEL_KERNELS | GPUPERF_SESSION_LEVEL_ALL_APIS |
                                  GPUPERF_SESSION_LEVEL_MEMORY),
              ElementsAre("kernels", "all_apis", "memory"));
}

TEST(SessionNamesTest, WritesAUuidAsNvidiasToolsDo) {
  GpuUuid uuid{};
  EXPECT_EQ(format_gpu_uuid(uuid), "");

  std::iota(uuid.begin(), uuid.end(), uint8_t{0xf0});
  EXPECT_EQ(format_gpu_uuid(uuid), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

}  // namespace
}  // namespace gpuperf
