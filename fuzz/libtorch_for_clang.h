// Included in front of everything where clang compiles libtorch's headers as C++20. There std::vector is constexpr, and
// clang 14 then looks inside of vectors of a type that libtorch's headers define only later (c10::IValue). So here
// std::vector is what it was in C++17. It knows libstdc++ 12 from the inside, and is for this one fuzz program only.
#pragma once

// What <vector> itself includes: as it is.
#include <bits/stl_uninitialized.h>
#include <initializer_list>
#include <string>
#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR inline
#define __fill_a1 __fill_a1_of_bits  // was declared as constexpr before; std::fill over bits is not used here
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
