#include "daemon/base/demangle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace gpuperf {
namespace {

std::string get_back_reference(int index) {
  if (index == 0) return "S_";
  const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id;
  for (int rest = index - 1; id.empty() || rest > 0; rest /= 36) id.insert(0, 1, digits[rest % 36]);
  return "S" + id + "_";
}

// f(p<int, int>, p<p<int, int>, p<int, int>>, …): each level twice as long as the one before.
std::string make_doubling_name(int levels) {
  std::string name = "_Z1f1pIiiE";
  for (int i = 1; i <= levels; ++i) {
    name += "S_I" + get_back_reference(i) + get_back_reference(i) + "E";
  }
  return name;
}

TEST(DemangleTest, NamesCppFunctions) {
  EXPECT_EQ(demangle("_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE"),
            "torch::nn::LinearImpl::forward(at::Tensor const&)");
  EXPECT_EQ(demangle("_ZSt7forwardIiEOT_RNSt16remove_referenceIS0_E4typeE"),
            "int&& std::forward<int>(std::remove_reference<int>::type&)");
  EXPECT_EQ(demangle("_ZN2at25compositeexplicitautograd20convolution_overrideERKNS_6TensorES3_S3_"),
            "at::compositeexplicitautograd::convolution_override(at::Tensor const&, at::Tensor "
            "const&, at::Tensor const&)");
}

TEST(DemangleTest, NamesRustFunctionsWithoutTheirHash) {
  EXPECT_EQ(demangle("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE"),
            "core::fmt::Formatter::write_str");
  EXPECT_EQ(demangle("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
                     "3bar17h930b740aa94f1d3aE"),
            "<Test + 'static as foo::Bar<Test>>::bar");
  EXPECT_EQ(demangle("_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate"),
            "<std::path::PathBuf>::new");
  EXPECT_EQ(demangle("_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_"
                     "ECs1iopQbuBiw2_3std"),
            "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>");
}

TEST(DemangleTest, NamesCppFunctionsThatLookLikeRust) {
  // The hash has upper case: a C++ name.
  EXPECT_EQ(demangle("_ZN1a17h0123456789ABCDEFE"), "a::h0123456789ABCDEF");
}

TEST(DemangleTest, LeavesOtherNamesAlone) {
  for (const char* name :
       {"", "cudaMalloc", "i", "_Z", "_Zbroken", "_R", "_RN", "_Rest", "_ZN5torch"}) {
    EXPECT_EQ(demangle(name), name);
  }
}

TEST(DemangleTest, LeavesNamesWithZeroesInThemAlone) {
  const std::string name("_Z1fv\0_Z1gv", 11);

  EXPECT_EQ(demangle(name), "f()");
}

// A kernel of PyTorch, whose loose bound is far above what it comes to.
TEST(DemangleTest, NamesKernelsWithManyBackReferences) {
  const std::string name = demangle(
      "_ZN2at6native52_GLOBAL__N__4671fab5_19_ForeachTernaryOp_cu_5285c63625multi_tenso"
      "r_apply_kernelINS1_18TensorListMetadataILi2EEENS1_22TernaryOpScalarFunctorIfLi2E"
      "Li2ELi0EEEJNS0_11LerpFunctorIfEEfEEEvT_T0_DpT1_");

  EXPECT_TRUE(
      name.starts_with("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"))
      << name;
}

TEST(DemangleTest, LeavesNamesBeyondTheBoundAlone) {
  // libstdc++ itself gives up between the two, at 1,024 bytes.
  const std::string normal = "_Z1000" + std::string(1000, 'x') + "v";
  const std::string longer = "_Z5000" + std::string(5000, 'x') + "v";

  EXPECT_EQ(demangle(normal), std::string(1000, 'x') + "()");
  EXPECT_TRUE(demangle(longer) == longer);
}

TEST(DemangleTest, LeavesNamesAloneThatExpandBeyondReason) {
  EXPECT_NE(demangle(make_doubling_name(3)), make_doubling_name(3));
  for (const int levels : {20, 40, 100, 300}) {
    const std::string name = make_doubling_name(levels);
    EXPECT_EQ(demangle(name), name);
  }
}

TEST(DemangleTest, LeavesNestedPackExpansionsAlone) {
  std::string pack;
  for (int i = 0; i < 1000; ++i) pack += 'i';
  const std::string name = "_Z1fIJ" + pack + "EEvDpDpDpT_";

  EXPECT_EQ(demangle(name), name);
}

// A pair of the type, a pair of that pair, …: by back references to their places in the name.
std::string make_doubling_rust_name(int levels) {
  const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string name = "INvC1a1fThhE";
  size_t place = name.size() - 4;
  for (int i = 0; i < levels; ++i) {
    std::string reference = "_";
    for (size_t rest = place - 1; reference.size() == 1 || rest > 0; rest /= 62) {
      reference.insert(0, 1, digits[rest % 62]);
    }
    place = name.size();
    name += "TB" + reference + "B" + reference + "E";
  }
  return "_R" + name + "E";
}

TEST(DemangleTest, LeavesRustNamesAloneThatExpandBeyondReason) {
  EXPECT_EQ(demangle(make_doubling_rust_name(1)), "a::f::<(u8, u8), ((u8, u8), (u8, u8))>");
  for (const int levels : {20, 40, 300}) {
    const std::string name = make_doubling_rust_name(levels);
    EXPECT_EQ(demangle(name), name);
  }
  // Functions of so many lifetimes.
  for (const std::string name : {"_RINvC1a1fFGzzzzz_hEuE", "_RINvC1a1fFGzzzzzzzzzzzzzzzz_hEuE"}) {
    EXPECT_EQ(demangle(name), name);
  }
}

TEST(DemangleTest, StaysWithinItsBoundOnRandomRustNames) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const char* const parts[] = {"NvC1a1b", "I",   "E",   "B_",   "B0_", "B7_", "Bb_", "T",
                               "Nv",      "C1c", "h",   "u",    "FU",  "KC",  "G1_", "Gz_",
                               "D",       "L_",  "L0_", "Kj5_", "p",   "Nt",  "M",   "NC"};

  size_t demangled = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string name = "_RINvC1a1f";
    for (uint32_t i = 1 + random() % 30; i > 0; --i) name += parts[random() % std::size(parts)];
    const std::string plain = demangle(name + "E");
    if (plain == name + "E") continue;
    ++demangled;
    ASSERT_LE(plain.size(), get_rust_expansion_bytes(name + "E")) << name;
  }

  EXPECT_GT(demangled, 100u);
}

// Names made of the parts that expand, in any order: bounded time and size for each.
TEST(DemangleTest, StaysWithinItsBoundOnRandomNames) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const char* const parts[] = {"1p", "I",   "E",  "S_", "S0_",  "S1_", "S2_", "S3_",
                               "T_", "T0_", "Dp", "J",  "N",    "i",   "Ss",  "R",
                               "K",  "F",   "v",  "P",  "3abc", "DT",  "St"};

  size_t demangled = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 50'000; ++round) {
    std::string name = "_Z1f";
    // Half of them well formed at least in their beginning.
    if (round % 2 == 0) name += "I1pIiiEiEv";
    for (uint32_t i = 1 + random() % 40; i > 0; --i) name += parts[random() % std::size(parts)];
    const std::string plain = demangle(name);
    if (plain == name) continue;
    ++demangled;
    ASSERT_LE(plain.size(), 70 * get_expansion_bound(name) * name.size()) << name;
    ASSERT_LE(plain.size(), 70u << 20) << name;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  EXPECT_GT(demangled, 100u);
  // 0.1 s in a release build.
  EXPECT_LT(seconds.count(), 60);
}

}  // namespace
}  // namespace gpuperf
