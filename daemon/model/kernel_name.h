#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpuperf {

// A demangled kernel name as tables and labels show it: without return type, parameters and
// namespaces, also inside template arguments: "void at::native::reduce<512, at::Sum<float> >(int)"
// is "reduce<512, Sum<float>>". A lambda is its function, its own parameters and its number at each
// depth: "copy_kernel(Tensor&)::{lambda()#3}::operator()() const::{lambda(float)#1}" is
// "copy_kernel(float)#3.1".
// Names that differ keep differing, except by namespaces and by the parameters of what is no
// template: longer than kMaxShortNameBytes, they end in "…#" and a hash of the whole name.
std::string shorten_kernel_name(std::string_view demangled);
inline constexpr size_t kMaxShortNameBytes = 160;

// By its name in any form: ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclSymkDevKernel_…;
// ncclKernel_… before 2.19.
bool is_nccl_kernel(std::string_view name);

// At most `bytes`, cut at the end of a character, then "…".
void cut_kernel_name(std::string& name, size_t bytes);

}  // namespace gpuperf
