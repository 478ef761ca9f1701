// Secret: what the workers of one job share and nobody else knows. A value that cannot be printed by accident: it has
// no stream operator, and the only way to its bytes is bytes(). Copies share one piece of memory, which is wiped when
// the last of them goes. Any thread may use a copy of its own.
//
// Below it: how a secret is made, kept in a file and handed to a child process. Failures never quote what was read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <holdfast/base/bytes.h>
#include <holdfast/base/error.h>

namespace holdfast {

inline constexpr size_t kSecretBytesMin = 16;
inline constexpr size_t kSecretBytesMax = 4096;

class Secret {
 public:
  Secret() = default;  // none
  explicit Secret(std::string_view text);

  bool empty() const { return !bytes_; }
  ByteView bytes() const { return bytes_ ? ByteView(*bytes_) : ByteView(); }
  // Takes the same time wherever they differ.
  friend bool operator==(const Secret& a, const Secret& b);

 private:
  std::shared_ptr<const Bytes> bytes_;
};

// 256 random bits, as 64 hexadecimal digits.
Secret make_secret();

// The file's text without white space at its end. Refuses a file that others than its owner may read or write, or that
// belongs to another user (root excepted).
Result<Secret> read_secret_file(const std::string& path);

// A descriptor from which whoever inherits it can read the secret, any number of times and without disturbing others.
// It closes on exec unless that is changed; the caller closes it.
Result<int> open_secret_descriptor(const Secret& secret);
// Reads such a descriptor, which stays open but closes on exec from now on: it is not for this process's children.
Result<Secret> read_secret_descriptor(int fd);

}  // namespace holdfast
