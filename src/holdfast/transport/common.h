// What the transports have in common: how much they take at once, and the failures that they report.
// Constants and functions without state, so any thread may use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <holdfast/base/error.h>

namespace holdfast::transport_detail {

// How many bytes of frames are asked for at a time.
inline constexpr size_t kCollectBytes = 256 * 1024;
// on_progress() comes each time that about this much more went through a connection.
inline constexpr uint64_t kProgressBytes = 1024 * 1024;

// What is told of a stranger that has other ideas of security.
inline constexpr const char* kUnexpectedTls = "speaks TLS, and this side has no secret or was told `plain`";
inline constexpr const char* kUnexpectedPlain = "speaks without encryption";

inline Failure unavailable(std::string message) { return {.code = Code::unavailable, .message = std::move(message)}; }
inline Failure corrupt(std::string message) { return {.code = Code::corrupt, .message = std::move(message)}; }

}  // namespace holdfast::transport_detail
