// Assertions, on in every build. They are for our own bugs only: bytes from a peer or arguments from a
// user never reach one.
#pragma once

namespace holdfast {

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace holdfast

#define HOLDFAST_CHECK(expression) ((expression) ? void() : ::holdfast::check_failed(#expression, __FILE__, __LINE__))
