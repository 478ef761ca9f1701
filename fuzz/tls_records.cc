// The records of TLS after a handshake, from somebody who has the keys, and from somebody in between who has not: what
// was sent is read as it was, up to the first record that is no good, and nothing after it.
//
//   input   the largest read (2 bytes), then records
//   record  how (1), the largest piece in which it arrives (2), its type if how is 1 (1), length of its content (2)
//           and that many bytes. how 0: the content as it is; 1: encrypted, of that type; otherwise encrypted data
#include <algorithm>

#include <openssl/evp.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/tls_records.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr uint64_t kRecordsPerKey = 3;

class Stream {
 public:
  explicit Stream(size_t bytes_max) : part_(bytes_max) {
    const TlsTrafficSecret secret;
    writer_ = TlsRecordWriter::make(EVP_aes_128_gcm(), secret, kRecordsPerKey);
    reader_ = TlsRecordReader::make(EVP_aes_128_gcm(), secret);
  }

  // False: it has ended.
  bool record(Input& in) {
    const uint8_t how = in.byte();
    const size_t piece_max = std::max<size_t>(in.two_bytes(), 1);
    const uint8_t type = how == 1 ? in.byte() : 0;
    const ByteView content = in.take(in.two_bytes());
    Bytes said;
    if (how == 0) {
      said.append(content);
    } else if (how == 1) {
      HOLDFAST_CHECK(writer_->write_record(type, content, said).ok());
    } else {
      HOLDFAST_CHECK(writer_->write(content, said).ok());
      sent_.append(content);
    }
    // What others did may be read as data, too: then this no longer knows what is to come.
    known_ = known_ && how > 1;
    for (ByteView left(said); !left.empty();) {
      const ByteView piece = left.first(std::min(left.size(), piece_max));
      // In memory of exactly that size, so that AddressSanitizer sees every byte too many.
      const Bytes copy(piece.begin(), piece.end());
      if (!arrive(copy)) {
        HOLDFAST_CHECK(!known_);
        return false;
      }
      left = left.subspan(piece.size());
    }
    if (known_) HOLDFAST_CHECK(got_ == sent_);
    return true;
  }

 private:
  bool arrive(ByteView bytes) {
    for (;;) {
      const Result<size_t> got = reader_->read(bytes, part_.data(), part_.size());
      if (!got) return false;
      if (*got == 0) break;
      HOLDFAST_CHECK(*got <= part_.size());
      got_.append(part_.data(), *got);
    }
    HOLDFAST_CHECK(bytes.empty());
    return true;
  }

  Bytes part_;
  std::unique_ptr<TlsRecordWriter> writer_;
  std::unique_ptr<TlsRecordReader> reader_;
  Bytes sent_, got_;
  bool known_ = true;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Stream stream(std::max<size_t>(in.two_bytes(), 1));
  while (!in.empty() && stream.record(in)) {
  }
  return 0;
}
