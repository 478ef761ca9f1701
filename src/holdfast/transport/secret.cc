#include <holdfast/transport/secret.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/address.h>

namespace holdfast {

namespace {

constexpr size_t kMadeSecretBytes = 32;
constexpr int kSecretSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

Failure bad_secret(std::string message) { return {.code = Code::invalid_argument, .message = std::move(message)}; }

std::shared_ptr<const Bytes> wiped_at_the_end(Bytes bytes) {
  return {new Bytes(std::move(bytes)), [](Bytes* at) {
            OPENSSL_cleanse(at->data(), at->size());
            delete at;
          }};
}

// From the start of the file, wherever others have read to. `what` is for messages.
Result<Secret> read_all(int fd, const std::string& what) {
  char text[kSecretBytesMax + 1];
  size_t have = 0;
  while (have < sizeof(text)) {
    const ssize_t got = ::pread(fd, text + have, sizeof(text) - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bad_secret(fmt::format("cannot read {}: {}", what, errno_text(errno)));
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  const size_t read_bytes = have;
  while (have > 0 && (text[have - 1] == '\n' || text[have - 1] == '\r' || text[have - 1] == ' ')) --have;
  Secret secret;
  if (have >= kSecretBytesMin && have <= kSecretBytesMax) secret = Secret(std::string_view(text, have));
  OPENSSL_cleanse(text, read_bytes);
  if (!secret.empty()) return secret;
  return bad_secret(
      fmt::format("{} holds no secret: expected {} to {} characters", what, kSecretBytesMin, kSecretBytesMax));
}

}  // namespace

Secret::Secret(std::string_view text) {
  if (text.empty()) return;
  Bytes bytes;
  bytes.append(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  bytes_ = wiped_at_the_end(std::move(bytes));
}

bool operator==(const Secret& a, const Secret& b) {
  const ByteView left = a.bytes(), right = b.bytes();
  return left.size() == right.size() && (left.empty() || CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0);
}

Secret make_secret() {
  uint8_t bytes[kMadeSecretBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
    throw_failure({.code = Code::unavailable, .message = "the system gives no random numbers for a secret"});
  }
  char text[2 * kMadeSecretBytes];
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4];
    text[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  Secret secret{std::string_view(text, sizeof(text))};
  OPENSSL_cleanse(bytes, sizeof(bytes));
  OPENSSL_cleanse(text, sizeof(text));
  return secret;
}

Result<Secret> read_secret_file(const std::string& path) {
  const std::string what = fmt::format("the secret file {}", path);
  // Not blocking: a pipe must not hold us here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bad_secret(fmt::format("cannot open {}: {}", what, errno_text(errno)));
  const auto read = [&]() -> Result<Secret> {
    struct stat status = {};
    if (::fstat(fd, &status) != 0) return bad_secret(fmt::format("cannot open {}: {}", what, errno_text(errno)));
    if (!S_ISREG(status.st_mode)) return bad_secret(fmt::format("{} is not a file", what));
    if ((status.st_mode & 0077) != 0) {
      return bad_secret(fmt::format("{} can be used by others than its owner (its mode is {:04o}): `chmod 600 {}`",
                                    what, status.st_mode & 07777, path));
    }
    if (status.st_uid != ::geteuid() && status.st_uid != 0) {
      return bad_secret(fmt::format("{} belongs to another user (id {})", what, status.st_uid));
    }
    return read_all(fd, what);
  };
  Result<Secret> secret = read();
  ::close(fd);
  return secret;
}

Result<int> open_secret_descriptor(const Secret& secret) {
  HOLDFAST_CHECK(!secret.empty());
  const auto cannot = [](int fd) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return Failure{.code = Code::unavailable,
                   .message = fmt::format("cannot hand a secret over in memory: {}", errno_text(error))};
  };
  const int fd = ::memfd_create("holdfast-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return cannot(fd);
  const ByteView bytes = secret.bytes();
  if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return cannot(fd);
  // Whoever inherits it shares the memory: nobody may change what the others read.
  if (::fcntl(fd, F_ADD_SEALS, kSecretSeals) != 0) return cannot(fd);
  return fd;
}

Result<Secret> read_secret_descriptor(int fd) {
  const std::string what = fmt::format("descriptor {}", fd);
  // The number may have come to mean something else: only what open_secret_descriptor made has these seals.
  if (::fcntl(fd, F_GET_SEALS) != kSecretSeals) {
    return bad_secret(
        fmt::format("{} is not the one that the launcher has put the job's secret into: whatever was started in "
                    "between has closed it; make it pass open descriptors on, or use a secret file",
                    what));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return read_all(fd, what);
}

}  // namespace holdfast
