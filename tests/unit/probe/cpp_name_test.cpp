#include "daemon/probe/elf/cpp_name.h"

#include <gtest/gtest.h>

namespace gpuperf {
namespace {

TEST(CppNameTest, LeavesParametersReturnTypesAndQualifiersOut) {
  EXPECT_EQ(find_cpp_name("at::add(at::Tensor const&, int)"), "at::add");
  EXPECT_EQ(find_cpp_name("a::B::c() const"), "a::B::c");
  EXPECT_EQ(find_cpp_name("a::B::c() const volatile &&"), "a::B::c");
  EXPECT_EQ(find_cpp_name("int&& std::forward<int>(std::remove_reference<int>::type&)"),
            "std::forward<int>");
  EXPECT_EQ(find_cpp_name("std::vector<int, std::allocator<int> > make<int>(int (*)(int))"),
            "make<int>");
  EXPECT_EQ(find_cpp_name("decltype (((a)+(b)).run()) sum<int, long>(int, long)"),
            "sum<int, long>");
  EXPECT_EQ(find_cpp_name("f(int) [clone .isra.0]"), "f");
}

TEST(CppNameTest, KeepsTemplateArgumentsWithBracketsInThem) {
  EXPECT_EQ(find_cpp_name("void f<((1)>(2)), (a<b>)0>(int)"), "f<((1)>(2)), (a<b>)0>");
  EXPECT_EQ(find_cpp_name("void f<void (int)>(void (*)(int))"), "f<void (int)>");
  EXPECT_EQ(find_cpp_name("void f<&(a::g(int))>()"), "f<&(a::g(int))>");
}

TEST(CppNameTest, KeepsOperatorsWhole) {
  EXPECT_EQ(find_cpp_name("a::B::operator()(int)"), "a::B::operator()");
  EXPECT_EQ(find_cpp_name("a::B::operator[](int) const"), "a::B::operator[]");
  EXPECT_EQ(find_cpp_name("a::operator<(a::B, a::B)"), "a::operator<");
  EXPECT_EQ(find_cpp_name("a::B::operator->() const"), "a::B::operator->");
  EXPECT_EQ(find_cpp_name("std::ostream& a::operator<< <int>(std::ostream&, int)"),
            "a::operator<< <int>");
  EXPECT_EQ(find_cpp_name("a::B::operator unsigned long() const"), "a::B::operator unsigned long");
  EXPECT_EQ(find_cpp_name("operator new(unsigned long)"), "operator new");
  EXPECT_EQ(find_cpp_name("void a::my_operator(int)"), "a::my_operator");
}

TEST(CppNameTest, KeepsWhatStandsInsideFunctions) {
  EXPECT_EQ(find_cpp_name("(anonymous namespace)::f(int)"), "(anonymous namespace)::f");
  EXPECT_EQ(find_cpp_name("a::f(int) const::{lambda(int)#1}::operator()(int) const"),
            "a::f(int) const::{lambda(int)#1}::operator()");
}

TEST(CppNameTest, TakesTextWithoutParametersWhole) {
  for (const char* text : {"", "a::b", "f(int) x)", "(", ")", "<<<", "operator", "a b"}) {
    EXPECT_EQ(find_cpp_name(text), text);
  }
}

TEST(CppNameTest, FoldsSpacesAndTagsAway) {
  EXPECT_EQ(fold_cpp_name("a::f[abi:cxx11]<int, b<c> >"), "a::f<int,b<c>>");
  EXPECT_EQ(fold_cpp_name("a::operator[]"), "a::operator[]");
  EXPECT_EQ(fold_cpp_name("a[abi:"), "a");
}

TEST(CppNameTest, CutsTheParametersOffMangledNames) {
  EXPECT_EQ(cut_mangled_parameters("_ZNK5torch3jit6Module5cloneERKSsS3_"),
            "_ZNK5torch3jit6Module5cloneEv");
  EXPECT_EQ(cut_mangled_parameters("_ZN1a1BC2ERKS0_"), "_ZN1a1BC2Ev");
  EXPECT_EQ(cut_mangled_parameters("_ZN1a1BplERKS0_"), "_ZN1a1BplEv");
  EXPECT_EQ(cut_mangled_parameters("_ZNKSt3mapB5cxx113getEi"), "_ZNKSt3mapB5cxx113getEv");
}

TEST(CppNameTest, CutsNothingOffNamesThatItCannotFollow) {
  for (const char* name : {"", "_ZN", "_Z1fi", "_ZN1aIiE1bEi", "_ZN1acvbEv", "_ZN9aE", "_ZN1a",
                           "_ZN0E", "_ZN99999999999999999999aEv", "main"}) {
    EXPECT_EQ(cut_mangled_parameters(name), "") << name;
  }
}

TEST(CppNameTest, FindsAPieceThatEveryMangledNameHolds) {
  EXPECT_EQ(find_mangled_piece("torch::nn::LinearImpl::forward"), "10LinearImpl");
  EXPECT_EQ(find_mangled_piece("at::*::forward"), "7forward");
  EXPECT_EQ(find_mangled_piece("at::for*"), "2at");
  EXPECT_EQ(find_mangled_piece("a::f<longest_of_all>"), "1a");
  EXPECT_EQ(find_mangled_piece("a::~Box"), "3Box");
  EXPECT_EQ(find_mangled_piece("a::operatorbool"), "1a");
}

TEST(CppNameTest, FindsNoPieceWhereNothingIsCertain) {
  EXPECT_EQ(find_mangled_piece("std::string::string"), "");
  EXPECT_EQ(find_mangled_piece("*::*"), "");
  EXPECT_EQ(find_mangled_piece("(anonymousnamespace)::*"), "");
}

}  // namespace
}  // namespace gpuperf
