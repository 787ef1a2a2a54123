#pragma once

// What of a demangled C++ function somebody would name it by.

#include <string>
#include <string_view>

namespace gpuperf {

// "at::add" of "at::Tensor at::add<int>(at::Tensor const&) const [clone .isra.0]" is
// "at::add<int>": without return type, parameters, qualifiers and the compiler's marks. The whole
// text where it has no parameters: then it names no function.
std::string_view find_cpp_name(std::string_view demangled);

// `mangled` with its parameters replaced by none, for names whose parameters expand beyond reason
// (`demangle` leaves those alone); empty where the name itself has template arguments.
std::string cut_mangled_parameters(std::string_view mangled);

// `name` without spaces and [abi:…] tags, which differ between demanglers and habits: for
// comparing.
std::string fold_cpp_name(std::string_view name);

// A piece of the mangled name of every function called `name` ("7forward" for "a::forward"), for
// passing most symbols over without demangling them; empty = nothing is certain.
std::string find_mangled_piece(std::string_view folded_name);

}  // namespace gpuperf
