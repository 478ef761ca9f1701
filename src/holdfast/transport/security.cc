#include <holdfast/transport/security.h>

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include <holdfast/transport/tls.h>

namespace holdfast {

namespace {

struct ModeName {
  SecurityMode mode;
  std::string_view name;
};
constexpr ModeName kModeNames[] = {{SecurityMode::automatic, "automatic"},
                                   {SecurityMode::plain, "plain"},
                                   {SecurityMode::secret, "secret"},
                                   {SecurityMode::certificates, "certificates"}};

Failure wrong_security(std::string message) { return {.code = Code::invalid_argument, .message = std::move(message)}; }

std::string from_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool has_certificates(const Security& security) {
  return !security.ca_file.empty() || !security.cert_file.empty() || !security.key_file.empty();
}

// What automatic comes to.
SecurityMode chosen_mode(const Security& security) {
  if (security.mode != SecurityMode::automatic) return security.mode;
  if (has_certificates(security)) return SecurityMode::certificates;
  return security.secret.empty() ? SecurityMode::plain : SecurityMode::secret;
}

Result<Secret> secret_from_env() {
  if (const std::string text = from_variable("HOLDFAST_SECRET_FD"); !text.empty()) {
    int fd = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
    if (error != std::errc() || end != text.data() + text.size() || fd < 0) {
      return wrong_security(fmt::format("HOLDFAST_SECRET_FD={} is not the number of a descriptor", text));
    }
    Result<Secret> secret = read_secret_descriptor(fd);
    if (!secret) return wrong_security(fmt::format("HOLDFAST_SECRET_FD={}: {}", text, secret.failure().message));
    return secret;
  }
  const std::string path = from_variable("HOLDFAST_SECRET_FILE");
  return path.empty() ? Secret() : read_secret_file(path);
}

}  // namespace

Result<SecurityMode> parse_security_mode(std::string_view text) {
  for (const ModeName& one : kModeNames) {
    if (one.name == text) return one.mode;
  }
  return wrong_security(fmt::format("'{}' is not automatic, plain, secret or certificates", text));
}

std::string_view name_of(SecurityMode mode) {
  for (const ModeName& one : kModeNames) {
    if (one.mode == mode) return one.name;
  }
  return "?";
}

Result<Security> Security::from_env() {
  Security security;
  if (const std::string text = from_variable("HOLDFAST_SECURITY"); !text.empty()) {
    Result<SecurityMode> mode = parse_security_mode(text);
    if (!mode) return wrong_security(fmt::format("HOLDFAST_SECURITY: {}", mode.failure().message));
    security.mode = *mode;
  }
  security.ca_file = from_variable("HOLDFAST_CA_FILE");
  security.cert_file = from_variable("HOLDFAST_CERT_FILE");
  security.key_file = from_variable("HOLDFAST_KEY_FILE");
  if (security.mode != SecurityMode::automatic && security.mode != SecurityMode::secret) return security;
  Result<Secret> secret = secret_from_env();
  if (!secret) return std::move(secret.failure());
  security.secret = std::move(*secret);
  return security;
}

bool is_protected(const Security& security) { return chosen_mode(security) != SecurityMode::plain; }

Result<std::shared_ptr<const TlsContext>> make_tls(const Security& security) {
  const SecurityMode mode = chosen_mode(security);
  if (mode == SecurityMode::plain) return std::shared_ptr<const TlsContext>();
  if (mode == SecurityMode::secret) {
    if (security.secret.empty()) {
      return wrong_security(
          "security is `secret`, but there is none: start the program with `holdfast run`, or name a file that holds "
          "one (HOLDFAST_SECRET_FILE)");
    }
    const bool local = security.mode == SecurityMode::automatic;
    return TlsContext::with_secret(security.secret, local);
  }
  for (const auto& [value, name] :
       {std::pair{&security.ca_file, "ca_file"}, std::pair{&security.cert_file, "cert_file"},
        std::pair{&security.key_file, "key_file"}}) {
    if (value->empty())
      return wrong_security(
          fmt::format("certificates need all of ca_file, cert_file and key_file: {} is missing", name));
  }
  return TlsContext::with_certificates(security.ca_file, security.cert_file, security.key_file);
}

}  // namespace holdfast
