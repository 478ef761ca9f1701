#include <holdfast/transport/tls.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/common.h>
#include <holdfast/wire/frame.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;
using transport_detail::unavailable;

// All with the hash that the pre-shared key is made for.
constexpr const char* kCipherSuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr unsigned char kPskCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr std::string_view kPskIdentity = "holdfast";
// From the secret, which is of any length, to a key. Another use of the secret would have another label.
constexpr std::string_view kPskLabel = "holdfast 1 tls pre-shared key";

// What a connection goes on with, agreed inside the handshake (ALPN): nobody in between can change it.
constexpr std::string_view kEncrypted = "holdfast/1";
constexpr std::string_view kPlainAfterProof = "holdfast-local/1";
constexpr unsigned char kProtocolOffer[] = "\x0aholdfast/1";
constexpr unsigned char kLocalOffer[] = "\x10holdfast-local/1\x0aholdfast/1";

Failure invalid_file(const std::string& what, const std::string& path) {
  const unsigned long error = ERR_get_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return {.code = Code::invalid_argument,
          .message = fmt::format("cannot use the {} in {}: {}", what, path, reason == nullptr ? "no reason" : reason)};
}

const unsigned char* session_context() { return reinterpret_cast<const unsigned char*>(kPskIdentity.data()); }

Failure no_tls() { return unavailable("cannot set up TLS: OpenSSL refuses"); }

}  // namespace

// OpenSSL reads from TlsSession::input_ and writes to output_.
struct TlsBio {
  static int read(BIO* bio, char* to, size_t bytes_max, size_t* got) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    *got = std::min(bytes_max, session.input_.size());
    if (*got == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    std::memcpy(to, session.input_.data(), *got);
    session.input_ = session.input_.subspan(*got);
    return 1;
  }
  static int write(BIO* bio, const char* from, size_t bytes, size_t* written) {
    auto& session = *static_cast<TlsSession*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    session.output_.append(reinterpret_cast<const uint8_t*>(from), bytes);
    *written = bytes;
    return 1;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  // Constant once made; OpenSSL wants it to outlive every BIO.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "holdfast");
      if (method == nullptr) return method;
      BIO_meth_set_read_ex(method, read);
      BIO_meth_set_write_ex(method, write);
      BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return made;
  }
};

// ---- TlsContext

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Status TlsContext::open() {
  ERR_clear_error();
  context_ = SSL_CTX_new(TLS_method());
  if (context_ == nullptr || SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context_, kCipherSuites) != 1 || SSL_CTX_set_num_tickets(context_, 0) != 1) {
    return no_tls();
  }
  SSL_CTX_set_app_data(context_, this);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context_, SSL_OP_NO_TICKET);
  SSL_CTX_set_quiet_shutdown(context_, 1);
  // A pre-shared key counts as a session, and sessions have a context.
  SSL_CTX_set_session_id_context(context_, session_context(), kPskIdentity.size());
  SSL_CTX_set_alpn_select_cb(context_, select_protocol, nullptr);
  SSL_CTX_set_keylog_callback(context_, note_traffic_secret);
  // With a secret there is no authority to trust, so that a certificate never passes in place of it.
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return {};
}

Result<std::shared_ptr<const TlsContext>> TlsContext::with_secret(const Secret& secret, bool plain_on_loopback) {
  if (secret.bytes().size() < kSecretBytesMin) {
    return Failure{.code = Code::invalid_argument,
                   .message = fmt::format("the secret is too short: {} bytes, must be at least {}",
                                          secret.bytes().size(), kSecretBytesMin)};
  }
  std::shared_ptr<TlsContext> made(new TlsContext);
  if (Status status = made->open(); !status.ok()) return std::move(status.failure());
  unsigned char key[EVP_MAX_MD_SIZE];
  unsigned key_bytes = 0;
  if (HMAC(EVP_sha256(), secret.bytes().data(), static_cast<int>(secret.bytes().size()),
           reinterpret_cast<const unsigned char*>(kPskLabel.data()), kPskLabel.size(), key, &key_bytes) == nullptr) {
    return no_tls();
  }
  made->key_ = Secret(std::string_view(reinterpret_cast<const char*>(key), key_bytes));
  OPENSSL_cleanse(key, sizeof(key));
  made->plain_on_loopback_ = plain_on_loopback;
  SSL_CTX_set_psk_use_session_callback(made->context_, use_psk);
  SSL_CTX_set_psk_find_session_callback(made->context_, find_psk);
  return std::shared_ptr<const TlsContext>(std::move(made));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::with_certificates(const std::string& ca_file,
                                                                        const std::string& cert_file,
                                                                        const std::string& key_file) {
  std::shared_ptr<TlsContext> made(new TlsContext);
  if (Status status = made->open(); !status.ok()) return std::move(status.failure());
  SSL_CTX* const context = made->context_;
  if (SSL_CTX_load_verify_file(context, ca_file.c_str()) != 1) return invalid_file("certificate authority", ca_file);
  if (SSL_CTX_use_certificate_chain_file(context, cert_file.c_str()) != 1) {
    return invalid_file("certificate", cert_file);
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return invalid_file("private key", key_file);
  }
  return std::shared_ptr<const TlsContext>(std::move(made));
}

// OpenSSL takes a pre-shared key in the form of a session. It becomes OpenSSL's, so each handshake gets its own.
SSL_SESSION* TlsContext::make_psk_session(SSL* ssl) const {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kPskCipher);
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, key_.bytes().data(), key_.bytes().size()) == 1 &&
      SSL_SESSION_set1_id_context(session, session_context(), kPskIdentity.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsContext::use_psk(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, size_t* identity_bytes,
                        SSL_SESSION** session) {
  const auto& context = *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *session = nullptr;
  // Set when the server has asked for another try: the key fits only this hash.
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 0;
  *session = context.make_psk_session(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kPskIdentity.data());
  *identity_bytes = kPskIdentity.size();
  return *session != nullptr ? 1 : 0;
}

int TlsContext::find_psk(SSL* ssl, const unsigned char* identity, size_t identity_bytes, SSL_SESSION** session) {
  const auto& context = *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *session = nullptr;
  // Another identity is no error here, but leaves nothing to go on with: we have no certificate.
  if (std::string_view(reinterpret_cast<const char*>(identity), identity_bytes) != kPskIdentity) return 1;
  *session = context.make_psk_session(ssl);
  return *session != nullptr ? 1 : 0;
}

int TlsContext::select_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                                unsigned in_bytes, void*) {
  const auto& session = *static_cast<const TlsSession*>(SSL_get_app_data(ssl));
  const bool local = session.context_->plain_on_loopback() && session.on_loopback_;
  unsigned char* chosen = nullptr;
  const int outcome =
      local ? SSL_select_next_proto(&chosen, out_bytes, kLocalOffer, sizeof(kLocalOffer) - 1, in, in_bytes)
            : SSL_select_next_proto(&chosen, out_bytes, kProtocolOffer, sizeof(kProtocolOffer) - 1, in, in_bytes);
  if (outcome != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// OpenSSL tells the secrets that a handshake has agreed on as lines of text: a label, the client's random number, the
// secret, in hexadecimal digits.
void TlsContext::note_traffic_secret(const SSL* ssl, const char* line) {
  auto& session = *static_cast<TlsSession*>(SSL_get_app_data(ssl));
  const std::string_view text(line);
  TlsTrafficSecret* const secret = text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")   ? &session.dialler_secret_
                                   : text.starts_with("SERVER_TRAFFIC_SECRET_0 ") ? &session.acceptor_secret_
                                                                                  : nullptr;
  if (secret == nullptr) return;
  const char* digits = line + text.rfind(' ') + 1;
  size_t bytes = 0;
  HOLDFAST_CHECK(OPENSSL_hexstr2buf_ex(secret->bytes.data(), secret->bytes.size(), &bytes, digits, '\0') == 1 &&
                 bytes == kTlsSecretBytes);
}

// ---- TlsSession

std::unique_ptr<TlsSession> TlsSession::make(std::shared_ptr<const TlsContext> context, Side side, bool on_loopback) {
  std::unique_ptr<TlsSession> made(new TlsSession(std::move(context), side, on_loopback));
  const bool local = made->context_->plain_on_loopback() && on_loopback;
  made->ssl_ = SSL_new(made->context_->context_);
  BIO* bio = made->ssl_ == nullptr ? nullptr : BIO_new(TlsBio::method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, made.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(made->ssl_, bio, bio);
  SSL_set_app_data(made->ssl_, made.get());
  if (side == Side::accepts) {
    SSL_set_accept_state(made->ssl_);
    return made;
  }
  SSL_set_connect_state(made->ssl_);
  const int refused = local ? SSL_set_alpn_protos(made->ssl_, kLocalOffer, sizeof(kLocalOffer) - 1)
                            : SSL_set_alpn_protos(made->ssl_, kProtocolOffer, sizeof(kProtocolOffer) - 1);
  return refused == 0 ? std::move(made) : nullptr;
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

Result<bool> TlsSession::handshake(ByteView& input) {
  for (size_t i = 0; i < input.size() && first_count_ < sizeof(first_); ++i) first_[first_count_++] = input[i];
  const size_t before = input.size();
  input_ = input;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_);
  input = std::exchange(input_, {});
  handshake_bytes_ += before - input.size();
  if (done != 1) {
    const int error = SSL_get_error(ssl_, done);
    if (error != SSL_ERROR_WANT_READ) return describe_handshake_error();
    if (handshake_bytes_ > kHandshakeBytesMax) return corrupt("has sent a handshake that is far too long");
    return false;
  }
  Status status = complete();
  if (!status.ok()) return std::move(status.failure());
  return true;
}

Status TlsSession::complete() {
  // No certificate in place of the secret, and nothing but our own protocol.
  if (context_->has_secret() && SSL_session_reused(ssl_) != 1) return unavailable("does not use the job's secret");
  const unsigned char* protocol = nullptr;
  unsigned protocol_bytes = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &protocol_bytes);
  const std::string_view chosen(reinterpret_cast<const char*>(protocol), protocol_bytes);
  if (chosen != kEncrypted && chosen != kPlainAfterProof) return unavailable("speaks TLS, but is not Holdfast");
  continues_in_plain_ = chosen == kPlainAfterProof;

  const int cipher_id = SSL_CIPHER_get_cipher_nid(SSL_get_current_cipher(ssl_));
  const EVP_CIPHER* const cipher = cipher_id == NID_chacha20_poly1305 ? EVP_chacha20_poly1305() : EVP_aes_128_gcm();
  HOLDFAST_CHECK(EVP_CIPHER_get_nid(cipher) == cipher_id);
  const bool dials = side_ == Side::dials;
  reader_ = TlsRecordReader::make(cipher, dials ? acceptor_secret_ : dialler_secret_);
  writer_ = TlsRecordWriter::make(cipher, dials ? dialler_secret_ : acceptor_secret_, context_->records_per_key_);
  if (!reader_ || !writer_) return no_tls();
  dialler_secret_ = acceptor_secret_ = {};
  SSL_free(std::exchange(ssl_, nullptr));  // some 40 KB
  return {};
}

Failure TlsSession::describe_handshake_error() {
  const ByteView first(first_, first_count_);
  if (first.size() == kPreface.size() && std::equal(first.begin(), first.end(), kPreface.begin())) {
    return corrupt("speaks without encryption: it has no secret, or was told `plain`");
  }
  constexpr uint8_t kHandshakeRecord = 0x16, kAlertRecord = 0x15;
  if (!first.empty() && first[0] != kHandshakeRecord && first[0] != kAlertRecord) {
    ERR_clear_error();
    return corrupt("does not speak TLS");
  }
  const long verified = SSL_get_verify_result(ssl_);
  const unsigned long error = ERR_peek_last_error();
  switch (ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0) {
    case SSL_R_BINDER_DOES_NOT_VERIFY: return unavailable("has another secret");
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      if (context_->has_secret()) return unavailable("shows a certificate, but this job uses a secret");
      return unavailable(fmt::format("has a certificate that is refused: {}", X509_verify_cert_error_string(verified)));
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return unavailable("has no certificate");
    case SSL_R_UNSUPPORTED_PROTOCOL: return unavailable("speaks TLS, but not 1.3");
    // An alert: the other side's reason is in its log.
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
      if (context_->has_secret()) return unavailable("refuses us: it has another secret");
      [[fallthrough]];
    default: break;
  }
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  std::string text = reason == nullptr ? "it ended it" : reason;
  // Alerts keep the names of the protocol in which they were new.
  if (const size_t alert = text.find("alert "); alert != text.npos) text = "it said '" + text.substr(alert + 6) + "'";
  ERR_clear_error();
  return unavailable(fmt::format("fails in the handshake: {}", text));
}

void TlsSession::take_output(Bytes& out) {
  out.clear();
  std::swap(out, output_);
}

}  // namespace holdfast
