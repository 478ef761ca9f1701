// The records: against OpenSSL's own on the other side, cut anywhere, and changed anywhere.
#include <holdfast/transport/tls_records.h>

#include <algorithm>
#include <random>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <holdfast/transport/test_support.h>
#include <holdfast/transport/tls.h>
#include <holdfast/transport/tls_test_support.h>

namespace holdfast::tls_test {
namespace {

using namespace test;

constexpr uint8_t kAlert = 21, kHandshake = 22, kData = 23;
constexpr uint64_t kManyRecords = 1'000'000;

Bytes text(size_t bytes, uint8_t start = 1) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<uint8_t>(start + i * 7);
  return made;
}

// Whoever writes and whoever reads, with the same secret.
struct Pair {
  explicit Pair(uint64_t records_per_key = kManyRecords, const EVP_CIPHER* cipher = EVP_aes_128_gcm()) {
    TlsTrafficSecret secret;
    std::fill(secret.bytes.begin(), secret.bytes.end(), uint8_t{42});
    writer = TlsRecordWriter::make(cipher, secret, records_per_key);
    reader = TlsRecordReader::make(cipher, secret);
  }
  Bytes record(ByteView content, uint8_t type = kData) {
    Bytes out;
    EXPECT_TRUE(writer->write_record(type, content, out).ok());
    return out;
  }
  // All that is in `input`, by reads of at most `bytes_max`. Empty with a failure.
  Bytes read(ByteView input, size_t bytes_max = kTlsDecryptedBytesMax) {
    Bytes all, part(bytes_max);
    for (;;) {
      const Result<size_t> got = reader->read(input, part.data(), part.size());
      if (!got) failure = got.failure().message;
      if (!got || *got == 0) return got ? all : Bytes();
      all.append(part.data(), *got);
    }
  }
  std::unique_ptr<TlsRecordWriter> writer;
  std::unique_ptr<TlsRecordReader> reader;
  std::string failure;
};

TEST(TlsRecordsTest, WhatIsWrittenIsReadHoweverItIsCut) {
  std::mt19937 random(7);
  for (const EVP_CIPHER* cipher : {EVP_aes_128_gcm(), EVP_chacha20_poly1305()}) {
    for (const size_t bytes_max : {size_t{1}, size_t{100}, kTlsRecordBytesMax, kTlsDecryptedBytesMax}) {
      Pair pair(5, cipher);
      Bytes sent, said;
      for (const size_t bytes : {1u, 64u, 1000u, 16383u, 16384u, 16385u, 50'000u}) {
        sent.append(text(bytes, static_cast<uint8_t>(bytes)));
        ASSERT_TRUE(pair.writer->write(text(bytes, static_cast<uint8_t>(bytes)), said).ok());
      }
      Bytes got;
      for (ByteView left(said); !left.empty();) {
        const ByteView part = left.first(std::min<size_t>(left.size(), 1 + random() % 20'000));
        got.append(pair.read(part, bytes_max));
        left = left.subspan(part.size());
      }
      EXPECT_EQ(pair.failure, "");
      EXPECT_TRUE(got == sent) << bytes_max;
    }
  }
}

TEST(TlsRecordsTest, OneByteAtATime) {
  Pair pair;
  const Bytes said = pair.record(text(300));
  Bytes got;
  for (const uint8_t byte : said) got.append(pair.read({&byte, 1}));
  EXPECT_TRUE(got == text(300)) << pair.failure;
}

TEST(TlsRecordsTest, AKeyThatHasMadeItsRecordsIsReplaced) {
  Pair pair(2);
  std::vector<size_t> bytes;
  for (int i = 0; i < 5; ++i) {
    Bytes said;
    ASSERT_TRUE(pair.writer->write(text(1), said).ok());
    bytes.push_back(said.size());
    EXPECT_TRUE(pair.read(said) == text(1)) << pair.failure;
  }
  const size_t record = 5 + 1 + 1 + 16, key_update = 5 + 5 + 1 + 16;
  EXPECT_EQ(bytes, (std::vector<size_t>{record, record, key_update + record, record, key_update + record}));
}

TEST(TlsRecordsTest, AChangedByteIsNoticedWhereverItIs) {
  Pair whole;
  const Bytes said = whole.record(text(40));
  for (size_t i = 0; i < said.size(); ++i) {
    Pair pair;
    Bytes changed = said;
    changed[i] ^= 0x10;
    const Bytes got = pair.read(changed);
    // A length that has grown waits for bytes that never come.
    const bool waits = i == 3 || (i == 4 && (said[4] & 0x10) == 0);
    EXPECT_TRUE(got.empty()) << i;
    EXPECT_EQ(pair.failure.empty(), waits) << i << ": " << pair.failure;
  }
}

TEST(TlsRecordsTest, ARecordThatIsMissingOrComesTwiceOrTooEarlyIsNoticed) {
  const std::vector<std::vector<int>> orders = {{1}, {0, 0}, {0, 2}, {1, 0}};
  for (const auto& order : orders) {
    Pair pair;
    const Bytes records[] = {pair.record(text(10)), pair.record(text(20)), pair.record(text(30))};
    for (const int i : order) pair.read(records[i]);
    EXPECT_NE(pair.failure.find("changed on the way"), pair.failure.npos);
  }
}

TEST(TlsRecordsTest, AnotherSecretReadsNothing) {
  Pair pair;
  const auto stranger = TlsRecordReader::make(EVP_aes_128_gcm(), TlsTrafficSecret());
  const Bytes said = pair.record(text(40));
  ByteView input(said);
  uint8_t to[100];
  EXPECT_FALSE(stranger->read(input, to, sizeof(to)).ok());
}

TEST(TlsRecordsTest, WhatHasNoPlaceHereIsRefused) {
  struct Case {
    uint8_t type;
    Bytes content;
    std::string failure;
  };
  const Case cases[] = {
      {kHandshake, {24, 0, 0, 1, 1}, "no place here"},  // asks for a new key of ours: nobody does
      {kHandshake, {24, 0, 0, 1}, "no place here"},
      {kHandshake, {}, "no place here"},
      {kHandshake, {4, 0, 0, 0}, "no place here"},  // a ticket
      {kAlert, {}, "no place here"},
      {kAlert, {1, 0}, "has ended the connection"},
      {kAlert, {2, 48}, "it said 'unknown ca'"},
      {kAlert, {2, 255}, "it said"},
      {20, {1}, "no place here"},
      {0, {}, "without a type"},
      {0, Bytes(100, 0), "without a type"},
      {kData, Bytes(kTlsRecordBytesMax + 1, 1), "too long"},
  };
  for (const auto& [type, content, failure] : cases) {
    Pair pair;
    EXPECT_TRUE(pair.read(pair.record(content, type)).empty());
    EXPECT_NE(pair.failure.find(failure), failure.npos) << pair.failure;
  }
  const Bytes heads[] = {
      {22, 3, 3, 0, 40}, {21, 3, 3, 0, 2}, {23, 3, 1, 0, 40}, {23, 3, 3, 0, 16}, {23, 3, 3, 0x41, 1}};
  for (const Bytes& head : heads) {
    Pair pair;
    pair.read(head);
    EXPECT_NE(pair.failure.find("no record of TLS"), pair.failure.npos) << pair.failure;
  }
}

TEST(TlsRecordsTest, EmptyAndPaddedRecordsAreRead) {
  Pair pair;
  Bytes said = pair.record({});
  // The type, then zeros, as `content`; the writer's own type, 0, is one more of them.
  Bytes padded = text(5);
  padded.append(Bytes{kData, 0, 0, 0});
  said.append(pair.record(padded, 0));
  EXPECT_TRUE(pair.read(said) == text(5)) << pair.failure;
}

// ---- OpenSSL's own records on the other side

// A client or a server by OpenSSL alone, in memory.
class PureOpenSsl {
 public:
  PureOpenSsl(const Security& security, bool dials, const char* cipher_suite) : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context_, cipher_suite);
    SSL_CTX_set_num_tickets(context_, 0);
    SSL_CTX_load_verify_file(context_, security.ca_file.c_str());
    SSL_CTX_use_certificate_chain_file(context_, security.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_, security.key_file.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    static const unsigned char protocol[] = "\x0aholdfast/1";
    SSL_CTX_set_alpn_protos(context_, protocol, sizeof(protocol) - 1);
    const auto select = [](SSL*, const unsigned char** out, unsigned char* bytes, const unsigned char*, unsigned,
                           void*) {
      *out = protocol + 1;
      *bytes = protocol[0];
      return SSL_TLSEXT_ERR_OK;
    };
    SSL_CTX_set_alpn_select_cb(context_, select, nullptr);
    ssl = SSL_new(context_);
    SSL_set_bio(ssl, in_, out_);
    dials ? SSL_set_connect_state(ssl) : SSL_set_accept_state(ssl);
  }
  ~PureOpenSsl() {
    SSL_free(ssl);
    SSL_CTX_free(context_);
  }
  void hear(ByteView bytes) { BIO_write(in_, bytes.data(), static_cast<int>(bytes.size())); }
  Bytes say() {
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(out_, &data);
    const Bytes said(data, data + bytes);
    (void)BIO_reset(out_);
    return said;
  }
  Bytes read() {
    Bytes all, part(1000);
    size_t got = 0;
    while (SSL_read_ex(ssl, part.data(), part.size(), &got) == 1) all.append(part.data(), got);
    return all;
  }
  SSL* ssl = nullptr;

 private:
  SSL_CTX* const context_;
  BIO* const in_ = BIO_new(BIO_s_mem());
  BIO* const out_ = BIO_new(BIO_s_mem());
};

TEST(TlsRecordsTest, OpenSslReadsOursAndWeReadIts) {
  TestFolder folder;
  const TestAuthority authority(folder, "authority");
  const Security one = authority.worker("one"), other = authority.worker("other");
  auto context = std::const_pointer_cast<TlsContext>(make_tls(one).take());
  context->set_records_per_key(3);
  for (const char* cipher_suite : {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}) {
    for (const auto side : {TlsSession::Side::dials, TlsSession::Side::accepts}) {
      const auto ours = TlsSession::make(context, side, false);
      PureOpenSsl theirs(other, side == TlsSession::Side::accepts, cipher_suite);
      bool ready = false;
      for (int i = 0; i < 10 && !(ready && SSL_is_init_finished(theirs.ssl)); ++i) {
        SSL_do_handshake(theirs.ssl);
        const Bytes said = theirs.say();
        ByteView input(said);
        const Result<bool> done = ready ? Result<bool>(true) : ours->handshake(input);
        ASSERT_TRUE(done.ok()) << done.failure().message;
        ready = *done;
        EXPECT_TRUE(input.empty());
        Bytes out;
        ours->take_output(out);
        theirs.hear(out);
      }
      ASSERT_TRUE(ready && SSL_is_init_finished(theirs.ssl)) << cipher_suite;
      EXPECT_STREQ(SSL_get_cipher_name(theirs.ssl), cipher_suite);

      for (const size_t bytes : {1u, 64u, 16384u, 100'000u}) {
        Bytes out;
        ASSERT_TRUE(ours->writer().write(text(bytes), out).ok());
        theirs.hear(out);
        EXPECT_TRUE(theirs.read() == text(bytes)) << bytes;

        ASSERT_EQ(SSL_key_update(theirs.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        ASSERT_GT(SSL_write(theirs.ssl, text(bytes).data(), static_cast<int>(bytes)), 0);
        const Bytes said = theirs.say();
        ByteView input(said);
        Bytes got, part(kTlsDecryptedBytesMax);
        for (;;) {
          const Result<size_t> more = ours->reader().read(input, part.data(), part.size());
          ASSERT_TRUE(more.ok()) << more.failure().message;
          if (*more == 0) break;
          got.append(part.data(), *more);
        }
        EXPECT_TRUE(got == text(bytes)) << bytes;
      }

      SSL_shutdown(theirs.ssl);
      const Bytes goodbye = theirs.say();
      ByteView input(goodbye);
      uint8_t to[64];
      const Result<size_t> ended = ours->reader().read(input, to, sizeof(to));
      ASSERT_FALSE(ended.ok());
      EXPECT_EQ(ended.failure().message, "has ended the connection");
    }
  }
}

}  // namespace
}  // namespace holdfast::tls_test
