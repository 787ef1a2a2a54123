#include "client/wait_text.h"

#include "example_calls.h"
#include "tests/unit/matchers.h"

namespace gpuperf::client {
namespace {

// A wait, and how its place reads.
struct PlaceCase {
  const char* kind;
  const char* syscall;
  const char* file_kind;
  const char* file;
  const char* text;
};

TEST(WaitTextTest, SaysWhereTheThreadWaited) {
  const PlaceCase kCases[] = {
      {"futex", "futex", "", "", "in futex"},
      {"io", "read", "pipe", "", "in read of a pipe"},
      {"io", "recvfrom", "socket", "", "in recvfrom of a socket"},
      {"io", "pread64", "file", "weights.bin", "in pread64 of file weights.bin"},
      {"gpu", "ioctl", "device", "nvidia-uvm", "in ioctl of device nvidia-uvm"},
      {"io", "read", "", "[eventfd]", "in read of [eventfd]"},
      {"page_fault", "", "", "", "in a page fault"},
      {"page_fault", "", "file", "weights.bin", "in a page fault on file weights.bin"},
      {"", "", "", "", "in a page fault"},
      {"dma", "", "", "", "in the kernel (dma)"},
      {"io", "syscall 999", "hologram", "", "in syscall 999 of a hologram"},
      {"io", "re\x1b[2Jad", "\x1b", "a\nb", "in re\\x1b[2Jad of \\x1b a\\nb"}};
  for (const PlaceCase& place : kCases) {
    v1::Wait wait;
    wait.set_kind(place.kind);
    wait.set_syscall(place.syscall);
    wait.set_file_kind(place.file_kind);
    wait.set_file(place.file);
    EXPECT_EQ(describe_wait_place(wait), place.text);
  }
}

TEST(WaitTextTest, ShowsWhoEndedAWaitAndBothStacks) {
  EXPECT_EQ(render_waits(make_futex_call(), {}),
            "Longest waits\n"
            "  blocked 398 ms in futex, woken by thread 71 (loader) of process 70\n"
            "    kernel stack, innermost frame first\n"
            "        0  futex_wait_queue+0x60\n"
            "        1  futex_wait+0x171\n"
            "    stack of the waker, innermost frame first\n"
            "        0  pthread_cond_signal+0x17  (/usr/lib/libc.so.6)\n"
            "        1  load_batch+0x9c  (/opt/train/train)\n");
}

TEST(WaitTextTest, ShowsAWaitThatIsNotOver) {
  EXPECT_EQ(render_waits(make_in_flight_call(), {}),
            "Longest waits\n"
            "  blocked 31.2 s so far in ioctl of device nvidia0\n"
            "    kernel stack, innermost frame first\n"
            "        0  nvidia_ioctl+0x5a3  (nvidia)\n"
            "        1  __x64_sys_ioctl+0x94\n");
}

TEST(WaitTextTest, TellsAWaitThatIsOverFromOneThatIsNot) {
  v1::SlowCall call = make_in_flight_call();
  call.mutable_time_split()->mutable_waits(0)->set_duration_ns(31'000'000'000);

  EXPECT_THAT(render_waits(call, {}), HasSubstr("  blocked 31.0 s in ioctl of device nvidia0\n"));
}

TEST(WaitTextTest, NamesAThreadOfTheKernel) {
  v1::SlowCall call = make_futex_call();
  v1::Waker& waker = *call.mutable_time_split()->mutable_waits(0)->mutable_waker();
  waker.set_kernel_thread(true);
  waker.clear_stack();
  waker.set_comm("kworker/u8:2");

  EXPECT_THAT(render_waits(call, {}), HasSubstr(", woken by kernel thread 71 (kworker/u8:2)\n"));
  EXPECT_THAT(render_waits(call, {}), Not(HasSubstr("stack of the waker")));
}

TEST(WaitTextTest, CutsAHugeStack) {
  v1::SlowCall call = make_futex_call();
  v1::Wait& wait = *call.mutable_time_split()->mutable_waits(0);
  for (int i = 0; i < 5'000; ++i) add_frame(wait.mutable_kernel_stack(), "deep", "[kernel]", 1);

  EXPECT_THAT(render_waits(call, {}), HasSubstr("        7  deep+0x1\n"
                                                "           and 4,994 more: gpuperfctl slow show "
                                                "12 -o json\n"
                                                "    stack of the waker"));
}

TEST(WaitTextTest, ShowsAStackOfEightWhole) {
  v1::SlowCall call = make_futex_call();
  auto* stack = call.mutable_time_split()->mutable_waits(0)->mutable_waker()->mutable_stack();
  while (stack->size() < 8) add_frame(stack, "f", "", 1);

  EXPECT_THAT(render_waits(call, {}), ::testing::EndsWith("        7  f+0x1\n"));
}

TEST(WaitTextTest, WrapsOnANarrowTerminal) {
  EXPECT_THAT(render_waits(make_futex_call(), {.terminal = true, .columns = 40}),
              StartsWith("Longest waits\n"
                         "  blocked 398 ms in futex, woken by\n"
                         "  thread 71 (loader) of process 70\n"
                         "    kernel stack"));
}

TEST(WaitTextTest, EscapesWhatWorkloadsChose) {
  v1::SlowCall call = make_futex_call();
  v1::Wait& wait = *call.mutable_time_split()->mutable_waits(0);
  wait.mutable_waker()->set_comm("\x1b]0;owned\x07");
  wait.mutable_waker()->mutable_stack(0)->set_symbol("\x1b[2J");
  wait.mutable_kernel_stack(0)->set_module("\x1b[1m");

  EXPECT_THAT(render_waits(call, {}), Not(HasSubstr("\x1b")));
}

TEST(WaitTextTest, NamesTheWakerOfAWaitTooShortToDescribe) {
  v1::SlowCall call = make_futex_call();
  call.mutable_time_split()->clear_waits();

  EXPECT_EQ(render_waits(call, {}),
            "Longest waits\n"
            "  the longest was too short to describe; it ended when woken by thread 71 (loader) of "
            "process 70\n");
}

TEST(WaitTextTest, IsEmptyWithoutWaits) {
  v1::SlowCall call;
  EXPECT_EQ(render_waits(call, {}), "");
  call.mutable_time_split()->set_on_cpu_user_ns(5);
  EXPECT_EQ(render_waits(call, {}), "");
}

}  // namespace
}  // namespace gpuperf::client
