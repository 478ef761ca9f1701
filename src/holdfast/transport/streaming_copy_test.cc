#include <holdfast/transport/streaming_copy.h>

#include <vector>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(StreamingCopyTest, EverySizeAndAlignmentAndNotAByteMore) {
  std::vector<uint8_t> from(512);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i % 251 + 1);
  for (size_t bytes = 0; bytes <= 300; ++bytes) {
    for (const size_t to_offset : {0, 1, 15, 16, 63, 64}) {
      for (const size_t from_offset : {0, 1, 7, 64}) {
        std::vector<uint8_t> to(512, 0);
        std::vector<uint8_t> wanted = to;
        std::copy_n(from.data() + from_offset, bytes, wanted.data() + to_offset);
        streaming_copy(to.data() + to_offset, from.data() + from_offset, bytes);
        ASSERT_EQ(to, wanted) << bytes << " bytes, to " << to_offset << ", from " << from_offset;
      }
    }
  }
}

}  // namespace
}  // namespace holdfast
