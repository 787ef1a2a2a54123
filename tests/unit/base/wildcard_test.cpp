#include "daemon/base/wildcard.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuperf {
namespace {

TEST(WildcardTest, WithoutAStarMatchesTheTextItselfOnly) {
  EXPECT_TRUE(matches_wildcard("cudaMalloc", "cudaMalloc"));
  EXPECT_TRUE(matches_wildcard("", ""));
  EXPECT_FALSE(matches_wildcard("cudaMalloc", "cudaMallocHost"));
  EXPECT_FALSE(matches_wildcard("cudaMalloc", "cudaMallo"));
  EXPECT_FALSE(matches_wildcard("", "a"));
}

TEST(WildcardTest, AStarStandsForAnyRun) {
  EXPECT_TRUE(matches_wildcard("*", ""));
  EXPECT_TRUE(matches_wildcard("*", "anything"));
  EXPECT_TRUE(matches_wildcard("cuda*", "cuda"));
  EXPECT_TRUE(matches_wildcard("cuda*", "cudaMalloc"));
  EXPECT_TRUE(matches_wildcard("*Malloc", "cudaMalloc"));
  EXPECT_TRUE(matches_wildcard("cuda*Async", "cudaMemcpyAsync"));
  EXPECT_TRUE(matches_wildcard("a*b*c", "aXbXbc"));
  EXPECT_TRUE(matches_wildcard("**a**", "bab"));
  EXPECT_FALSE(matches_wildcard("cuda*", "cublasCreate"));
  EXPECT_FALSE(matches_wildcard("cuda*Async", "cudaMemcpyAsyncs"));
  EXPECT_FALSE(matches_wildcard("a*b*c", "acb"));
  EXPECT_FALSE(matches_wildcard("a*", ""));
}

TEST(WildcardTest, TakesOtherSpecialCharactersForThemselves) {
  EXPECT_TRUE(matches_wildcard("f?[a]", "f?[a]"));
  EXPECT_FALSE(matches_wildcard("f?", "fo"));
}

TEST(WildcardTest, StaysFastOnTextThatAlmostMatches) {
  const std::string text(4'000, 'a');

  EXPECT_FALSE(matches_wildcard("*a*a*a*a*a*a*a*a*b", text));
}

}  // namespace
}  // namespace gpuperf
