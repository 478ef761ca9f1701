#include <holdfast/transport/tls_records.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;
using transport_detail::unavailable;

// A record: head, content, type of the content, zeros or none; all but the head encrypted; tag. The head claims to be
// TLS 1.2's, for machines on the way.
constexpr size_t kHeadBytes = 5, kTagBytes = 16;
constexpr size_t kEncryptedBytesMin = 1 + kTagBytes, kEncryptedBytesMax = kTlsDecryptedBytesMax;
constexpr uint8_t kVersion[] = {3, 3};
constexpr uint8_t kAlert = 21, kHandshake = 22, kData = 23;
// The one message of the handshake protocol that comes after it: KeyUpdate, of length 1, not asking for the same.
constexpr uint8_t kKeyUpdate[] = {24, 0, 0, 1, 0};
constexpr uint8_t kCloseNotify = 0;

Failure refused_by_openssl() { return unavailable("cannot be sent anything: OpenSSL refuses to encrypt"); }

// The bytes of the record that begins so. If that is not enough to know: of its head.
Result<size_t> record_bytes(ByteView begin) {
  if (begin.size() < kHeadBytes) return kHeadBytes;
  const size_t encrypted_bytes = size_t{begin[3]} << 8 | begin[4];
  if (begin[0] != kData || begin[1] != kVersion[0] || begin[2] != kVersion[1] || encrypted_bytes < kEncryptedBytesMin ||
      encrypted_bytes > kEncryptedBytesMax) {
    return corrupt("has sent what is no record of TLS");
  }
  return kHeadBytes + encrypted_bytes;
}

std::string alert_text(uint8_t alert) {
  std::string text = SSL_alert_desc_string_long(alert);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

TlsTrafficSecret::~TlsTrafficSecret() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

// ---- TlsTrafficKey

TlsTrafficKey::TlsTrafficKey(const EVP_CIPHER* cipher, const TlsTrafficSecret& secret, Use use)
    : cipher_(cipher), use_(use), context_(EVP_CIPHER_CTX_new()), secret_(secret) {}

TlsTrafficKey::~TlsTrafficKey() { EVP_CIPHER_CTX_free(context_); }

bool TlsTrafficKey::start() {
  uint8_t key[EVP_MAX_KEY_LENGTH];
  const size_t key_bytes = static_cast<size_t>(EVP_CIPHER_get_key_length(cipher_));
  records_ = 0;
  const bool good = context_ != nullptr && derive("key", key, key_bytes) &&
                    derive("iv", first_nonce_.data(), first_nonce_.size()) &&
                    EVP_CipherInit_ex(context_, cipher_, nullptr, key, nullptr, use_ == Use::encrypt ? 1 : 0) == 1;
  OPENSSL_cleanse(key, sizeof(key));
  return good;
}

bool TlsTrafficKey::renew() {
  TlsTrafficSecret next;
  if (!derive("traffic upd", next.bytes.data(), next.bytes.size())) return false;
  secret_ = next;
  return start();
}

// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1). As no more than one hash is needed, HKDF-Expand is
// one HMAC.
bool TlsTrafficKey::derive(const char* label, uint8_t* to, size_t bytes) const {
  const std::string full_label = std::string("tls13 ") + label;
  std::string info = {0, static_cast<char>(bytes), static_cast<char>(full_label.size())};
  info += full_label;
  info += '\0';  // the context's length
  info += '\1';  // the first hash
  uint8_t hash[EVP_MAX_MD_SIZE];
  if (bytes > kTlsSecretBytes ||
      HMAC(EVP_sha256(), secret_.bytes.data(), static_cast<int>(secret_.bytes.size()),
           reinterpret_cast<const uint8_t*>(info.data()), info.size(), hash, nullptr) == nullptr) {
    return false;
  }
  std::memcpy(to, hash, bytes);
  OPENSSL_cleanse(hash, sizeof(hash));
  return true;
}

bool TlsTrafficKey::begin(ByteView head) {
  std::array<uint8_t, 12> nonce = first_nonce_;
  const uint64_t number = records_++;
  for (size_t i = 0; i < 8; ++i) nonce[nonce.size() - 1 - i] ^= static_cast<uint8_t>(number >> (8 * i));
  int bytes = 0;
  return EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
         EVP_CipherUpdate(context_, nullptr, &bytes, head.data(), static_cast<int>(head.size())) == 1;
}

bool TlsTrafficKey::apply(ByteView from, uint8_t* to) {
  int bytes = 0;
  return EVP_CipherUpdate(context_, to, &bytes, from.data(), static_cast<int>(from.size())) == 1 &&
         static_cast<size_t>(bytes) == from.size();
}

bool TlsTrafficKey::end_with_tag(uint8_t* tag) {
  int bytes = 0;
  return EVP_CipherFinal_ex(context_, tag, &bytes) == 1 && bytes == 0 &&
         EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
}

bool TlsTrafficKey::end_if_tag_is(const uint8_t* tag) {
  uint8_t copy[kTagBytes];  // the function's argument is not const
  std::memcpy(copy, tag, sizeof(copy));
  int bytes = 0;
  return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, copy) == 1 &&
         EVP_CipherFinal_ex(context_, copy, &bytes) == 1 && bytes == 0;
}

// ---- TlsRecordWriter

std::unique_ptr<TlsRecordWriter> TlsRecordWriter::make(const EVP_CIPHER* cipher, const TlsTrafficSecret& secret,
                                                       uint64_t records_per_key) {
  std::unique_ptr<TlsRecordWriter> made(new TlsRecordWriter(cipher, secret, records_per_key));
  return made->key_.start() ? std::move(made) : nullptr;
}

Status TlsRecordWriter::write(ByteView plain, Bytes& out) {
  while (!plain.empty()) {
    if (key_.records() >= records_per_key_) {
      if (Status status = write_record(kHandshake, kKeyUpdate, out); !status.ok()) return status;
      if (!key_.renew()) return refused_by_openssl();
    }
    const ByteView part = plain.first(std::min(plain.size(), kTlsRecordBytesMax));
    if (Status status = write_record(kData, part, out); !status.ok()) return status;
    plain = plain.subspan(part.size());
  }
  return {};
}

Status TlsRecordWriter::write_record(uint8_t type, ByteView content, Bytes& out) {
  const size_t encrypted_bytes = content.size() + 1 + kTagBytes;
  const size_t start = out.size();
  out.resize(start + kHeadBytes + encrypted_bytes);
  uint8_t* const head = out.data() + start;
  head[0] = kData;
  std::memcpy(head + 1, kVersion, sizeof(kVersion));
  head[3] = static_cast<uint8_t>(encrypted_bytes >> 8);
  head[4] = static_cast<uint8_t>(encrypted_bytes);
  uint8_t* const encrypted = head + kHeadBytes;
  if (key_.begin({head, kHeadBytes}) && key_.apply(content, encrypted) &&
      key_.apply({&type, 1}, encrypted + content.size()) && key_.end_with_tag(encrypted + content.size() + 1)) {
    return {};
  }
  out.resize(start);
  return refused_by_openssl();
}

// ---- TlsRecordReader

std::unique_ptr<TlsRecordReader> TlsRecordReader::make(const EVP_CIPHER* cipher, const TlsTrafficSecret& secret) {
  std::unique_ptr<TlsRecordReader> made(new TlsRecordReader(cipher, secret));
  return made->key_.start() ? std::move(made) : nullptr;
}

Result<size_t> TlsRecordReader::read(ByteView& input, uint8_t* to, size_t bytes_max) {
  for (;;) {
    if (!rest_.empty()) {
      const size_t count = std::min(rest_.size(), bytes_max);
      std::memcpy(to, rest_.data(), count);
      rest_ = rest_.subspan(count);
      return count;
    }
    const Result<ByteView> record = next_record(input);
    if (!record) return record.failure();
    if (record->empty()) return size_t{0};

    const ByteView encrypted = record->subspan(kHeadBytes).first(record->size() - kHeadBytes - kTagBytes);
    const bool fits = encrypted.size() <= bytes_max;
    if (!fits) plain_.resize(encrypted.size());
    uint8_t* const plain = fits ? to : plain_.data();
    if (!key_.begin(record->first(kHeadBytes)) || !key_.apply(encrypted, plain) ||
        !key_.end_if_tag_is(encrypted.data() + encrypted.size())) {
      return corrupt("has sent a record that was changed on the way");
    }
    partial_.clear();

    size_t bytes = encrypted.size();
    while (bytes > 0 && plain[bytes - 1] == 0) --bytes;
    if (bytes == 0) return corrupt("has sent a record without a type");
    const uint8_t type = plain[--bytes];
    if (bytes > kTlsRecordBytesMax) return corrupt("has sent a record that is too long");
    if (type != kData) {
      if (Status status = on_other(type, {plain, bytes}); !status.ok()) return std::move(status.failure());
    } else if (!fits) {
      rest_ = {plain, bytes};
    } else if (bytes > 0) {
      return bytes;
    }
  }
}

Result<ByteView> TlsRecordReader::next_record(ByteView& input) {
  if (partial_.empty()) {
    const Result<size_t> whole = record_bytes(input);
    if (!whole) return whole.failure();
    if (input.size() >= *whole) {
      const ByteView record = input.first(*whole);
      input = input.subspan(*whole);
      return record;
    }
  }
  for (;;) {
    const Result<size_t> whole = record_bytes(partial_);
    if (!whole) return whole.failure();
    if (partial_.size() == *whole) return ByteView(partial_);
    if (input.empty()) return ByteView();
    const ByteView more = input.first(std::min(input.size(), *whole - partial_.size()));
    partial_.append(more);
    input = input.subspan(more.size());
  }
}

Status TlsRecordReader::on_other(uint8_t type, ByteView content) {
  if (type == kHandshake && std::equal(content.begin(), content.end(), std::begin(kKeyUpdate), std::end(kKeyUpdate))) {
    return key_.renew() ? Status() : unavailable("has renewed its key, and OpenSSL refuses to");
  }
  if (type == kAlert && content.size() == 2) {
    if (content[1] == kCloseNotify) return unavailable("has ended the connection");
    return unavailable(fmt::format("has ended the connection: it said '{}'", alert_text(content[1])));
  }
  return corrupt(fmt::format("has sent a record of type {} that has no place here", type));
}

}  // namespace holdfast
