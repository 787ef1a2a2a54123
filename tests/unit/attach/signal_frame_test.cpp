#include "daemon/attach/signal_frame.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace gpuperf {
namespace {

constexpr uint64_t kRestorer = 0x1122'3344'5566, kTop = 0x7ffe'0000'1234;
// As the kernel lays them out.
constexpr size_t kRegistersAt = 48, kMaskAt = 304, kXstateBytesAt = 480;
constexpr size_t kRbxAt = kRegistersAt + 11 * 8, kRspAt = kRegistersAt + 15 * 8;
constexpr size_t kXstateAddressAt = kRegistersAt + 184;

template <typename T>
T read_at(const SignalFrame& frame, uint64_t address) {
  T value{};
  std::memcpy(&value, frame.bytes.data() + (address - frame.address), sizeof value);
  return value;
}

StoppedThread make_state(long rax) {
  StoppedThread state;
  state.registers.rip = 0x4000'0010;
  state.registers.rsp = kTop + 1000;
  state.registers.rax = static_cast<unsigned long long>(rax);
  state.registers.orig_rax = 202;
  state.registers.rbx = 77;
  state.registers.cs = 0x33;
  state.registers.ss = 0x2b;
  state.blocked_signals = 0x0102'0304'0506'0708;
  state.xstate.resize(832);
  state.xstate[512] = std::byte{7};  // in use: x87, SSE, AVX
  state.xstate[464] = std::byte{7};  // enabled
  state.xstate[600] = std::byte{42};
  return state;
}

TEST(SignalFrameTest, StandsAsAtTheEntryOfAFunction) {
  const auto frame = make_signal_frame(make_state(-512), kRestorer, kTop);

  ASSERT_TRUE(frame);
  EXPECT_EQ((frame->address + 8) % 16, 0u);
  EXPECT_LE(frame->address + frame->bytes.size(), kTop);
  EXPECT_EQ(read_at<uint64_t>(*frame, frame->address), kRestorer);
}

TEST(SignalFrameTest, GivesBackRegistersMaskAndExtendedState) {
  const auto frame = make_signal_frame(make_state(-512), kRestorer, kTop);

  ASSERT_TRUE(frame);
  EXPECT_EQ(read_at<uint64_t>(*frame, frame->address + kRbxAt), 77u);
  EXPECT_EQ(read_at<uint64_t>(*frame, frame->address + kRspAt), kTop + 1000);
  EXPECT_EQ(read_at<uint64_t>(*frame, frame->address + kMaskAt), 0x0102'0304'0506'0708u);
  const auto xstate = read_at<uint64_t>(*frame, frame->address + kXstateAddressAt);
  EXPECT_EQ(xstate % 64, 0u);
  EXPECT_EQ(read_at<uint8_t>(*frame, xstate + 600), 42);
  EXPECT_EQ(read_at<uint32_t>(*frame, xstate + 464), 0x46505853u);
  const auto bytes = read_at<uint32_t>(*frame, xstate + kXstateBytesAt);
  EXPECT_EQ(read_at<uint32_t>(*frame, xstate + bytes), 0x46505845u);
}

TEST(SignalFrameTest, BeginsASystemCallAnew) {
  for (const long result : {-512L, -513L, -514L}) {
    const user_regs_struct registers = make_restart_registers(make_state(result).registers);
    EXPECT_EQ(registers.rip, 0x4000'000eu);
    EXPECT_EQ(registers.rax, 202u);
  }
}

TEST(SignalFrameTest, FailsOneWithARestartBlockAsAHandlerWould) {
  const user_regs_struct registers = make_restart_registers(make_state(-516).registers);

  EXPECT_EQ(registers.rip, 0x4000'0010u);
  EXPECT_EQ(static_cast<long>(registers.rax), -EINTR);
}

TEST(SignalFrameTest, IsNotMadeOfAStateThatIsCutShort) {
  for (const size_t bytes : {0, 511, 575, 700}) {
    StoppedThread state = make_state(-512);
    state.xstate.resize(bytes);
    EXPECT_FALSE(make_signal_frame(state, kRestorer, kTop)) << bytes;
  }
}

TEST(SignalFrameTest, LeavesOutAmxThatTheThreadHasNotAskedFor) {
  StoppedThread state = make_state(-512);
  state.xstate.resize(11'008);
  state.xstate[466] = std::byte{6};  // AMX enabled, not in use

  EXPECT_LT(find_frame_xstate_bytes(state.xstate), 3'000u);
}

}  // namespace
}  // namespace gpuperf
