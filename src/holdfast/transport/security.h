// Security: how a worker proves itself to others and what it demands of them. docs/security.md says what that protects,
// and against whom. A value; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <holdfast/base/error.h>
#include <holdfast/transport/secret.h>

namespace holdfast {

class TlsContext;

enum class SecurityMode {
  // Certificates where their files are given, else the secret where there is one, else loopback only, in plain. With
  // the secret, connections between two loopback addresses are authenticated but not encrypted.
  automatic,
  plain,         // nothing is proved or encrypted, on any network
  secret,        // TLS 1.3 with the secret as pre-shared key, on loopback too
  certificates,  // TLS 1.3 with certificates that both sides must show
};

struct Security {
  SecurityMode mode = SecurityMode::automatic;
  Secret secret = {};
  // PEM files. The authority that signs the certificates of this job's workers and of nobody else; this worker's own
  // certificate, with what leads to the authority behind it; its private key.
  std::string ca_file = {};
  std::string cert_file = {};
  std::string key_file = {};

  // From HOLDFAST_SECURITY, HOLDFAST_SECRET_FD (set by `holdfast run`), HOLDFAST_SECRET_FILE, HOLDFAST_CA_FILE,
  // HOLDFAST_CERT_FILE and HOLDFAST_KEY_FILE.
  static Result<Security> from_env();
};

// "automatic", "plain", "secret" or "certificates".
Result<SecurityMode> parse_security_mode(std::string_view text);
std::string_view name_of(SecurityMode mode);

// Whether strangers are kept out. If not, only loopback may be used unless the mode is plain by name.
bool is_protected(const Security& security);

// Null: plain. Fails if something that the mode needs is missing or cannot be read.
Result<std::shared_ptr<const TlsContext>> make_tls(const Security& security);

}  // namespace holdfast
