#include "daemon/state/kernel_texts.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(KernelTextsTest, KeepsEqualNamesOnce) {
  DropCounters drops;
  KernelTexts texts(drops);

  const KernelTextPtr first = texts.get("_Z3addPfi", false);
  const KernelTextPtr again = texts.get("_Z3addPfi", false);

  EXPECT_EQ(first, again);
  EXPECT_EQ(*first,
            (KernelText{
                .serial = 1, .mangled = "_Z3addPfi", .full = "add(float*, int)", .brief = "add"}));
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
  KernelTexts texts(drops, 100, 3'400);
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
