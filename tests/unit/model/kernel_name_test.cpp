#include "daemon/model/kernel_name.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "daemon/base/demangle.h"
#include "tests/unit/files.h"

namespace gpuperf {
namespace {

TEST(KernelNameTest, ShortensWhatTemplatesMakeLong) {
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
}

TEST(KernelNameTest, KeepsWhatALambdaIsOf) {
  const std::string copy =
      "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
      "const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}";

  EXPECT_EQ(shorten_kernel_name("void f<g(int, char)::{lambda(int)#1}>(int)"), "f<g(int)#1>");
  EXPECT_EQ(shorten_kernel_name("void at::native::elementwise_kernel<128, 4, "
                                "at::native::gpu_kernel_impl_nocast<" +
                                copy + ">(at::TensorIteratorBase&, " + copy +
                                " const&)::{lambda(int)#1}>(int, " + copy + ")"),
            "elementwise_kernel<128, 4, "
            "gpu_kernel_impl_nocast<direct_copy_kernel_cuda(BFloat16)#3.12.1>(int)#1>");
  EXPECT_EQ(shorten_kernel_name("void f<a::Sum<float>::operator()(int&)::{lambda(float)#1}>(int)"),
            "f<Sum<float>(float)#1>");
  EXPECT_EQ(shorten_kernel_name("void f<a::B::operator()(int&)::{lambda(float)#1}>(int)"),
            "f<B(float)#1>");
}

TEST(KernelNameTest, KeepsTheClassTemplateThatTellsMembersApart) {
  EXPECT_EQ(shorten_kernel_name("void cub::scan<cub::Policy<float>::Sm90>(int)"),
            "scan<Policy<float>::Sm90>");
}

TEST(KernelNameTest, KnowsKernelsOfNcclByTheirNamesInAnyForm) {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
        "_Z35ncclDevKernel_AllReduce_Sum_f32_RINGv", "ncclSymkDevKernel_AllGather_ST",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"}) {
    EXPECT_TRUE(is_nccl_kernel(name)) << name;
  }
  EXPECT_FALSE(is_nccl_kernel("void copy_to_nccl_buffer<float>(float*)"));
  EXPECT_FALSE(is_nccl_kernel(""));
}

TEST(KernelNameTest, LeavesPlainNamesAsTheyAre) {
  for (const char* name : {"ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                           "triton_poi_fused_add_0", "_ZBroken", ")", "f(", "<>", "operator<",
                           "{lambda(", "a::", "", "f<{lambda(", "((((", ">>>>", " >"}) {
    EXPECT_EQ(shorten_kernel_name(name).empty(), std::string_view(name).empty()) << name;
  }
  EXPECT_EQ(shorten_kernel_name("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
  EXPECT_EQ(shorten_kernel_name("operator<"), "operator<");
}

TEST(KernelNameTest, CutNamesStayDistinct) {
  const std::string begin = std::string(kMaxShortNameBytes - 14, 'x') + "ääääääää";

  const std::string one = shorten_kernel_name(begin + "ä1");
  const std::string other = shorten_kernel_name(begin + "ä2");

  EXPECT_NE(one, other);
  for (const std::string& name : {one, other}) {
    EXPECT_LE(name.size(), kMaxShortNameBytes);
    EXPECT_EQ(name.substr(0, name.find("…")), std::string(kMaxShortNameBytes - 14, 'x') + "ä");
  }
}

// The mangled names in the recorded sessions: of decoding, training and graphs on an H200.
std::set<std::string> list_recorded_kernels() {
  std::set<std::string> kernels;
  const std::filesystem::path folder(GPUPERF_SOURCE_DIR "/tests/recordings");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".session") continue;
    const std::string bytes = read_file(entry.path());
    static const std::regex kName("_Z[0-9N][A-Za-z0-9_]+");
    for (std::sregex_iterator found(bytes.begin(), bytes.end(), kName), end; found != end;
         ++found) {
      std::string name = demangle(found->str());
      if (!name.starts_with("_Z")) kernels.insert(std::move(name));
    }
  }
  return kernels;
}

TEST(KernelNameTest, TellsRecordedKernelsApart) {
  const std::set<std::string> kernels = list_recorded_kernels();
  ASSERT_GE(kernels.size(), 40u);

  std::map<std::string, std::string> full_names;
  for (const std::string& kernel : kernels) {
    const std::string name = shorten_kernel_name(kernel);
    const auto [found, is_new] = full_names.try_emplace(name, kernel);
    EXPECT_TRUE(is_new) << name << " is both " << kernel << " and " << found->second;
    EXPECT_LE(name.size(), kMaxShortNameBytes) << name;
  }
}

}  // namespace
}  // namespace gpuperf
