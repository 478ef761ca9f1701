// TLS 1.3 over any stream of bytes, with OpenSSL and without I/O: bytes go in, bytes come out. No other version, no
// session tickets, no early data: so every handshake is new, with a key that is forgotten afterwards, and one that was
// recorded is of no use to anybody. The handshake is OpenSSL's; the records after it are made by tls_records.h.
//
// TlsContext: what all connections of a transport share: the pre-shared key or the certificates. Constant; any thread.
// TlsSession: one connection. Owned by the connection. During the handshake one thread may use it. After it one thread
// may decrypt while another encrypts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <holdfast/base/bytes.h>
#include <holdfast/base/error.h>
#include <holdfast/transport/secret.h>
#include <holdfast/transport/tls_records.h>

struct ssl_st;
struct ssl_ctx_st;
struct evp_md_st;
struct ssl_session_st;

namespace holdfast {

// A handshake that takes more bytes than this is refused. A long chain of certificates takes some thousands.
inline constexpr size_t kHandshakeBytesMax = 64 * 1024;

class TlsContext {
 public:
  // `plain_on_loopback`: connections whose both ends are on loopback are encrypted for the handshake only.
  static Result<std::shared_ptr<const TlsContext>> with_secret(const Secret& secret, bool plain_on_loopback);
  // PEM files. Both sides must show a certificate that the authority has signed and that is valid now.
  static Result<std::shared_ptr<const TlsContext>> with_certificates(const std::string& ca_file,
                                                                     const std::string& cert_file,
                                                                     const std::string& key_file);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  bool has_secret() const { return !key_.empty(); }
  bool plain_on_loopback() const { return plain_on_loopback_; }
  // After so many records the key is renewed. For tests; before they are shared.
  void set_records_per_key(uint64_t records) { records_per_key_ = records; }

 private:
  friend class TlsSession;
  TlsContext() = default;
  Status open();
  ssl_session_st* make_psk_session(ssl_st* ssl) const;
  static int use_psk(ssl_st* ssl, const evp_md_st* digest, const unsigned char** identity, size_t* identity_bytes,
                     ssl_session_st** session);
  static int find_psk(ssl_st* ssl, const unsigned char* identity, size_t identity_bytes, ssl_session_st** session);
  static int select_protocol(ssl_st* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
                             unsigned in_bytes, void* context);
  static void note_traffic_secret(const ssl_st* ssl, const char* line);

  ssl_ctx_st* context_ = nullptr;
  Secret key_;  // made from the secret; empty with certificates
  bool plain_on_loopback_ = false;
  // AES-GCM should not be used for more than 2^24.5 records with one key.
  uint64_t records_per_key_ = uint64_t{1} << 23;
};

class TlsSession {
 public:
  enum class Side { dials, accepts };
  // `on_loopback`: as far as this side can see, the other one is on this machine.
  // Null if there is no memory.
  static std::unique_ptr<TlsSession> make(std::shared_ptr<const TlsContext> context, Side side, bool on_loopback);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // ---- the handshake
  // Goes on as far as `input` allows, which is moved along. True: it is complete; what is left of `input` belongs to
  // the stream. Otherwise there may be output to send, a last word to the peer after a failure too. The Failure's text
  // says what the other side did: "has another secret".
  Result<bool> handshake(ByteView& input);
  // What is to be sent, in order: swapped into `out`, which must be used up by now.
  void take_output(Bytes& out);

  // ---- after it
  // Both sides have agreed to go on without encryption: forget this session.
  bool continues_in_plain() const { return continues_in_plain_; }
  TlsRecordReader& reader() { return *reader_; }
  TlsRecordWriter& writer() { return *writer_; }

 private:
  TlsSession(std::shared_ptr<const TlsContext> context, Side side, bool on_loopback)
      : context_(std::move(context)), side_(side), on_loopback_(on_loopback) {}
  friend class TlsContext;
  friend struct TlsBio;
  Status complete();
  Failure describe_handshake_error();

  const std::shared_ptr<const TlsContext> context_;
  const Side side_;
  const bool on_loopback_;

  // ---- the handshake
  ssl_st* ssl_ = nullptr;  // owns its bio_st; null after the handshake
  ByteView input_;         // while OpenSSL reads
  Bytes output_;
  uint64_t handshake_bytes_ = 0;
  uint8_t first_[8] = {};  // what the peer said first, to tell what it is
  size_t first_count_ = 0;
  TlsTrafficSecret dialler_secret_, acceptor_secret_;  // OpenSSL tells them shortly before the end

  // ---- after it
  bool continues_in_plain_ = false;
  std::unique_ptr<TlsRecordReader> reader_;
  std::unique_ptr<TlsRecordWriter> writer_;
};

}  // namespace holdfast
