#include "daemon/state/kernel_texts.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(KernelTextsTest, ShortensWhatTemplatesMakeLong) {
  EXPECT_EQ(shorten_kernel_name(
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, "
                "1ul>)"),
            "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>");
  EXPECT_EQ(shorten_kernel_name("void (anonymous namespace)::softmax<(at::Kind)2>(float*, int)"),
            "softmax<(Kind)2>");
  EXPECT_EQ(shorten_kernel_name("void cutlass::Kernel2<cutlass_80_tensorop_bf16_128x128>"
                                "(cutlass_80_tensorop_bf16_128x128::Params)"),
            "Kernel2<cutlass_80_tensorop_bf16_128x128>");
  EXPECT_EQ(shorten_kernel_name("std::enable_if<true, void>::type ns::f<int>(int)"), "f<int>");
  EXPECT_EQ(shorten_kernel_name("void f<g(int, char)::{lambda(int)#1}>(int)"),
            "f<{lambda(int)#1}>");
}

TEST(KernelTextsTest, LeavesPlainNamesAsTheyAre) {
  for (const char* name :
       {"ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        "triton_poi_fused_add_0", "_ZBroken", ")", "f(", "<>", "operator<", ""}) {
    EXPECT_EQ(shorten_kernel_name(name), name);
  }
}

TEST(KernelTextsTest, CutsAtTheEndOfACharacter) {
  const std::string brief = shorten_kernel_name(std::string(252, 'x') + "ääää");

  EXPECT_EQ(brief, std::string(252, 'x') + "…");
}

TEST(KernelTextsTest, KeepsEqualNamesOnce) {
  DropCounters drops;
  KernelTexts texts(drops);

  const KernelTextPtr first = texts.get("_Z3addPfi", false);
  const KernelTextPtr again = texts.get("_Z3addPfi", false);

  EXPECT_EQ(first, again);
  EXPECT_EQ(*first, (KernelText{.serial = 1, .full = "add(float*, int)", .brief = "add"}));
}

TEST(KernelTextsTest, SaysThatANameWasCut) {
  DropCounters drops;
  KernelTexts texts(drops);

  EXPECT_EQ(texts.get("_ZN2at6native", true)->full, "_ZN2at6native…");
}

TEST(KernelTextsTest, CountsNamesBeyondItsBound) {
  DropCounters drops;
  KernelTexts texts(drops, 2);
  const KernelTextPtr first = texts.get("a", false);
  const KernelTextPtr second = texts.get("b", false);

  const KernelTextPtr third = texts.get("c", false);

  EXPECT_EQ(third, KernelTexts::get_other());
  EXPECT_EQ(drops.get(DropCause::kKernelNamesFull), 1u);
  EXPECT_EQ(texts.get("a", false), first);
}

TEST(KernelTextsTest, CountsBytesBeyondItsBound) {
  DropCounters drops;
  KernelTexts texts(drops, 100, 2'000);
  const KernelTextPtr first = texts.get(std::string(1'000, 'a'), false);

  EXPECT_EQ(texts.get("b", false), KernelTexts::get_other());
}

TEST(KernelTextsTest, ForgetsNamesThatNobodyHoldsWhenFull) {
  DropCounters drops;
  KernelTexts texts(drops, 2);
  const KernelTextPtr held = texts.get("a", false);
  (void)texts.get("b", false);

  const KernelTextPtr third = texts.get("c", false);

  EXPECT_EQ(third->full, "c");
  EXPECT_EQ(texts.get("a", false), held);
  EXPECT_EQ(drops.get(DropCause::kKernelNamesFull), 0u);
}

TEST(KernelTextsTest, LeavesRoomToOtherUsersAndToRoot) {
  DropCounters drops;
  KernelTexts texts(drops, 16, 16'000);
  std::vector<KernelTextPtr> held;
  const auto fill = [&](uint32_t uid) {
    size_t count = 0;
    for (;; ++count) {
      held.push_back(texts.get(std::to_string(uid) + "_" + std::to_string(count), false, uid));
      if (held.back() == KernelTexts::get_other()) return count;
    }
  };

  EXPECT_EQ(fill(1), 11u);
  EXPECT_GE(fill(2), 1u);
  EXPECT_GE(fill(0), 2u);
}

TEST(KernelTextsTest, LooksForRoomOnceInAWhile) {
  DropCounters drops;
  KernelTexts texts(drops, 1);
  KernelTextPtr held = texts.get("a", false);
  EXPECT_EQ(texts.get("b", false), KernelTexts::get_other());
  held.reset();

  EXPECT_EQ(texts.get("b", false), KernelTexts::get_other());
  texts.allow_sweep();
  EXPECT_EQ(texts.get("b", false)->full, "b");
}

}  // namespace
}  // namespace gpuperf
