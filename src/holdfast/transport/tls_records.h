// The records of TLS 1.3 after the handshake (RFC 8446, section 5), with OpenSSL's ciphers and without I/O. OpenSSL's
// own functions for them take three times as long for a small message as the cipher does, and one thread at a time;
// here each direction stands for itself. See docs/decisions/0007-own-tls-records.md.
//
// A TlsRecordWriter and a TlsRecordReader each belong to one connection and one thread at a time; not the same one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <holdfast/base/bytes.h>
#include <holdfast/base/error.h>

struct evp_cipher_ctx_st;
struct evp_cipher_st;

namespace holdfast {

inline constexpr size_t kTlsRecordBytesMax = 16 * 1024;                    // of content
inline constexpr size_t kTlsDecryptedBytesMax = kTlsRecordBytesMax + 256;  // with type and padding
inline constexpr size_t kTlsSecretBytes = 32;                              // all our cipher suites use SHA-256

// What a handshake agrees on for one direction. Wiped when it goes.
struct TlsTrafficSecret {
  TlsTrafficSecret() = default;
  TlsTrafficSecret(const TlsTrafficSecret&) = default;
  TlsTrafficSecret& operator=(const TlsTrafficSecret&) = default;
  ~TlsTrafficSecret();
  std::array<uint8_t, kTlsSecretBytes> bytes = {};
};

// The key that encrypts or decrypts one record after the other, and its successors. Any false: OpenSSL refuses, which a
// changed record alone should bring about.
class TlsTrafficKey {
 public:
  enum class Use { encrypt, decrypt };
  // `cipher`: AES-GCM or ChaCha20-Poly1305.
  TlsTrafficKey(const evp_cipher_st* cipher, const TlsTrafficSecret& secret, Use use);
  ~TlsTrafficKey();
  TlsTrafficKey(const TlsTrafficKey&) = delete;
  TlsTrafficKey& operator=(const TlsTrafficKey&) = delete;

  // To be called once, before all others.
  bool start();
  uint64_t records() const { return records_; }  // with this key
  // Goes on with the next key, which can be made from this one, but not the other way round.
  bool renew();

  // The next record: `head` is what it begins with, protected as well.
  bool begin(ByteView head);
  // Any number of pieces: as many bytes come out as go in.
  bool apply(ByteView from, uint8_t* to);
  bool end_with_tag(uint8_t* tag);         // encrypt: writes it
  bool end_if_tag_is(const uint8_t* tag);  // decrypt: false if the record is not what the peer has made

 private:
  bool derive(const char* label, uint8_t* to, size_t bytes) const;

  const evp_cipher_st* const cipher_;
  const Use use_;
  evp_cipher_ctx_st* const context_;
  TlsTrafficSecret secret_;
  std::array<uint8_t, 12> first_nonce_ = {};
  uint64_t records_ = 0;
};

class TlsRecordWriter {
 public:
  // Null: no memory. After `records_per_key` records the key is renewed.
  static std::unique_ptr<TlsRecordWriter> make(const evp_cipher_st* cipher, const TlsTrafficSecret& secret,
                                               uint64_t records_per_key);
  // Appends `plain` to `out`, as one or more records.
  Status write(ByteView plain, Bytes& out);
  // One record of any type and size. For tests, and write().
  Status write_record(uint8_t type, ByteView content, Bytes& out);

 private:
  TlsRecordWriter(const evp_cipher_st* cipher, const TlsTrafficSecret& secret, uint64_t records_per_key)
      : key_(cipher, secret, TlsTrafficKey::Use::encrypt), records_per_key_(records_per_key) {}

  TlsTrafficKey key_;
  const uint64_t records_per_key_;
};

class TlsRecordReader {
 public:
  static std::unique_ptr<TlsRecordReader> make(const evp_cipher_st* cipher, const TlsTrafficSecret& secret);
  // Decrypts from `input`, which is moved along, until something is there or the input is used up; what is not yet a
  // whole record is kept inside. 0: used up. Of a record that is larger than `bytes_max` the rest waits for the next
  // call. The Failure says what the peer did; there is no going on after it.
  Result<size_t> read(ByteView& input, uint8_t* to, size_t bytes_max);

 private:
  TlsRecordReader(const evp_cipher_st* cipher, const TlsTrafficSecret& secret)
      : key_(cipher, secret, TlsTrafficKey::Use::decrypt) {}
  // Empty: it is not whole yet.
  Result<ByteView> next_record(ByteView& input);
  Status on_other(uint8_t type, ByteView content);

  TlsTrafficKey key_;
  Bytes partial_;  // the beginning of a record
  Bytes plain_;    // of a record that did not fit
  ByteView rest_;  // what is left of it
};

}  // namespace holdfast
