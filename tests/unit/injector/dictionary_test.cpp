#include "injector/dictionary.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace gpuperf::injector {
namespace {

class NameDictionaryTest : public testing::Test {
 protected:
  uint32_t find(const char* text) { return names_->find_or_add(text, text_bytes_, is_new_); }
  uint32_t find(const std::string& text) { return find(text.c_str()); }

  std::unique_ptr<NameDictionary> names_ = std::make_unique<NameDictionary>();
  size_t text_bytes_ = 0;
  bool is_new_ = false;
};

TEST_F(NameDictionaryTest, NumbersNamesFromOneUp) {
  EXPECT_EQ(find("one"), 1u);
  EXPECT_TRUE(is_new_);
  EXPECT_EQ(text_bytes_, 3u);
  EXPECT_EQ(find(""), 2u);
  EXPECT_EQ(text_bytes_, 0u);
  EXPECT_EQ(find("one"), 1u);
  EXPECT_FALSE(is_new_);
}

TEST_F(NameDictionaryTest, KnowsANameByItsTextWhereverItLies) {
  const std::string here = "_Z6kernelPf", there = here;

  EXPECT_EQ(find(here), 1u);
  EXPECT_EQ(find(there), 1u);
  EXPECT_FALSE(is_new_);
}

TEST_F(NameDictionaryTest, NoticesAnotherNameInTheSamePlace) {
  std::string place = "first";
  EXPECT_EQ(find(place), 1u);
  place = "other";  // a module was unloaded, another loaded where it was

  EXPECT_EQ(find(place), 2u);
  EXPECT_TRUE(is_new_);
  place = "firs";
  EXPECT_EQ(find(place), 3u);
}

TEST_F(NameDictionaryTest, NamesThatDifferOnlyBeyondWhatIsSentAreOne) {
  const std::string long_one(GPUPERF_NAME_BYTES_MAX + 10, 'a');

  EXPECT_EQ(find(long_one), 1u);
  EXPECT_EQ(text_bytes_, GPUPERF_NAME_BYTES_MAX);
  EXPECT_EQ(find(long_one + "b"), 1u);
  EXPECT_EQ(find(long_one.substr(0, GPUPERF_NAME_BYTES_MAX - 1)), 2u);
}

TEST_F(NameDictionaryTest, RefusesNamesBeyondItsCountAndStillKnowsTheOthers) {
  for (uint32_t i = 1; i < GPUPERF_NAMES_MAX; ++i) ASSERT_EQ(find(std::to_string(i)), i);

  EXPECT_EQ(find("one too many"), 0u);
  EXPECT_FALSE(is_new_);
  EXPECT_EQ(find("1"), 1u);
  EXPECT_EQ(find(std::to_string(GPUPERF_NAMES_MAX - 1)), GPUPERF_NAMES_MAX - 1);
}

TEST_F(NameDictionaryTest, RefusesNamesBeyondItsBytes) {
  std::string name(GPUPERF_NAME_BYTES_MAX, 'x');
  uint32_t id = 0, count = 0;
  do {
    name.replace(0, 8, std::to_string(10'000'000 + count));
    id = find(name);
    count += id != 0 ? 1 : 0;
  } while (id != 0);

  EXPECT_EQ(count, NameDictionary::kBytesMax / (GPUPERF_NAME_BYTES_MAX + 1));
}

TEST_F(NameDictionaryTest, StartsAnewWhenCleared) {
  const std::string name = "name";
  EXPECT_EQ(find("other"), 1u);
  EXPECT_EQ(find(name), 2u);
  names_->clear();

  EXPECT_EQ(find(name), 1u);
  EXPECT_TRUE(is_new_);
}

TEST(DictionaryTest, KnowsValuesByTheirContentAndRefusesBeyondItsCount) {
  Dictionary<gpuperf_session_shape, 3> shapes;
  bool is_new = false;
  const auto find = [&](uint32_t registers) {
    gpuperf_session_shape shape = {};
    shape.registers_per_thread = registers;
    return shapes.find_or_add(shape, is_new);
  };

  EXPECT_EQ(find(10), 1u);
  EXPECT_TRUE(is_new);
  EXPECT_EQ(find(20), 2u);
  EXPECT_EQ(find(10), 1u);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(find(30), 3u);
  EXPECT_EQ(find(40), 0u);
  EXPECT_EQ(find(20), 2u);
  shapes.clear();
  EXPECT_EQ(find(40), 1u);
}

}  // namespace
}  // namespace gpuperf::injector
