// Lender and Borrower: both sides of large attachments in shared memory, as they should be and as strangers would have
// them. docs/shared_memory.md has the rules.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include <holdfast/transport/borrower.h>
#include <holdfast/transport/frame_reader.h>
#include <holdfast/transport/frame_writer.h>
#include <holdfast/transport/lender.h>
#include <holdfast/transport/test_support.h>

namespace holdfast::loan_test {
namespace {

constexpr uint64_t kLarge = 1 << 20;

class LoanTest : public testing::Test {
 protected:
  LoanTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0);
    lender_.emplace(fds_[0], crew_, [this] { ++trims_; });
    borrower_.emplace(fds_[1], pool_, [this] { ++trims_; });
  }
  ~LoanTest() override {
    lender_.reset();
    borrower_.reset();
    for (const int fd : fds_) ::close(fd);
  }

  static Attachment numbers(uint8_t value, uint64_t bytes = kLarge) {
    auto owner = std::make_shared<Bytes>(bytes, value);
    const uint8_t* data = owner->data();
    return {.owner = std::move(owner), .data = data, .bytes = bytes, .shared = true};
  }
  static Attachment in_lendable(uint8_t value, uint64_t bytes = kLarge) {
    std::shared_ptr<uint8_t> memory = allocate_lendable(bytes);
    std::memset(memory.get(), value, bytes);
    const uint8_t* data = memory.get();
    return {.owner = std::move(memory), .data = data, .bytes = bytes, .shared = true};
  }
  static uint8_t* writable(const Attachment& attachment) { return const_cast<uint8_t*>(attachment.data); }
  static void expect_all(const Attachment& attachment, uint8_t value) {
    EXPECT_EQ(std::count(attachment.data, attachment.data + attachment.bytes, value),
              static_cast<ptrdiff_t>(attachment.bytes));
  }

  Attachment pass_on(const Attachment& attachment) {
    const auto loan = lender_->lend(attachment);
    EXPECT_TRUE(loan.has_value());
    return borrower_->borrow(*loan, attachment.bytes).take();
  }
  std::optional<Code> refusal(const Loan& loan, uint64_t bytes = kLarge) {
    const auto borrowed = borrower_->borrow(loan, bytes);
    return borrowed ? std::nullopt : std::optional(borrowed.failure().code);
  }
  static size_t open_descriptors() {
    size_t count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  }

  int fds_[2] = {-1, -1};
  int trims_ = 0;
  std::shared_ptr<ReceivePool> pool_ = std::make_shared<ReceivePool>();
  CopyCrew crew_;
  std::optional<Lender> lender_;
  std::optional<Borrower> borrower_;
};

// ---- buffers ----

TEST_F(LoanTest, ACopyArrivesAndBelongsToTheReceiver) {
  const Attachment sent = numbers(7);
  const Attachment got = pass_on(sent);
  EXPECT_TRUE(got.shared);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data) % kAttachmentAlignment, 0u);
  expect_all(got, 7);
  writable(got)[0] = 8;
  expect_all(sent, 7);
}

TEST_F(LoanTest, ABufferIsUsedAgainOnlyWhenItIsFree) {
  Attachment first = pass_on(numbers(1));
  const Attachment second = pass_on(numbers(2));
  EXPECT_NE(first.data, second.data);
  expect_all(first, 1);
  const uint8_t* at = first.data;
  first = {};
  const Attachment third = pass_on(numbers(3));
  EXPECT_EQ(third.data, at) << "memory that both have mapped already";
  expect_all(second, 2);
  expect_all(third, 3);
}

TEST_F(LoanTest, WhatIsSmallOrMoreThanNumbersIsNotLent) {
  EXPECT_FALSE(lender_->lend(numbers(1, kLoanBytesMin - 1)));
  Attachment section = numbers(1);
  section.shared = false;
  EXPECT_FALSE(lender_->lend(section));
  EXPECT_EQ(trims_, 0);
}

TEST_F(LoanTest, IdleBuffersGo) {
  const size_t before = open_descriptors();
  { const Attachment got = pass_on(numbers(1)); }
  EXPECT_EQ(open_descriptors(), before) << "a buffer needs none, once both have mapped it";
  EXPECT_GE(trims_, 2);
  EXPECT_TRUE(lender_->trim(steady_now()));
  EXPECT_TRUE(borrower_->trim());
  EXPECT_FALSE(lender_->trim(steady_now() + 2 * Lender::kIdleTime));
  EXPECT_FALSE(borrower_->trim());
  const Attachment again = pass_on(numbers(2));
  expect_all(again, 2);
}

TEST_F(LoanTest, ABufferInUseStays) {
  const Attachment got = pass_on(numbers(1));
  EXPECT_TRUE(lender_->trim(steady_now() + 2 * Lender::kIdleTime));
  const Attachment other = pass_on(numbers(2));
  expect_all(got, 1);
}

TEST_F(LoanTest, WhatWasReceivedOutlivesTheConnection) {
  const Attachment copied = pass_on(numbers(1));
  const Attachment lent = pass_on(in_lendable(2));
  lender_.reset();
  borrower_.reset();
  expect_all(copied, 1);
  expect_all(lent, 2);
  writable(copied)[0] = 3;
}

TEST_F(LoanTest, WhereTheSocketIsFullTheBytesGoThroughTheRing) {
  const uint8_t noise[4096] = {};
  while (::send(fds_[0], noise, sizeof(noise), MSG_DONTWAIT) > 0) {
  }
  EXPECT_FALSE(lender_->lend(numbers(1)));
  EXPECT_FALSE(lender_->lend(in_lendable(1)));
}

TEST_F(LoanTest, NoMoreAreasThanAllowed) {
  std::vector<Attachment> kept;
  for (size_t i = 0; i < kAreasMax; ++i) kept.push_back(pass_on(numbers(static_cast<uint8_t>(i), kLoanBytesMin)));
  EXPECT_FALSE(lender_->lend(numbers(1)));
  kept.clear();
  EXPECT_TRUE(lender_->lend(numbers(1, kLoanBytesMin)));
}

TEST_F(LoanTest, KeptBuffersAreUsedAgainSomeTimeAfterTheyAreFree) {
  std::vector<Attachment> kept;
  for (size_t i = 0; i < 40; ++i) kept.push_back(pass_on(numbers(static_cast<uint8_t>(i), kLoanBytesMin)));
  for (size_t i = 0; i < 40; ++i) expect_all(kept[i], static_cast<uint8_t>(i));
  const uint8_t* first = kept[0].data;  // long since looked at no more
  kept.clear();
  EXPECT_TRUE(lender_->trim(steady_now()));
  std::vector<const uint8_t*> places;
  for (size_t i = 0; i < 40; ++i) {
    kept.push_back(pass_on(numbers(1, kLoanBytesMin)));
    places.push_back(kept.back().data);
  }
  EXPECT_EQ(std::count(places.begin(), places.end(), first), 1);
}

// ---- lent memory ----

TEST_F(LoanTest, LentMemoryIsNotCopied) {
  const Attachment sent = in_lendable(5);
  const auto area = find_lendable(sent.data, sent.bytes);
  ASSERT_TRUE(area);
  Attachment got = pass_on(sent);
  EXPECT_EQ(area->uses(), 1u);
  expect_all(got, 5);
  writable(sent)[kLarge - 1] = 6;
  EXPECT_EQ(got.data[kLarge - 1], 6) << "the same memory";
  writable(got)[0] = 9;
  EXPECT_EQ(sent.data[0], 5) << "what the receiver writes is its own";
  got = {};
  EXPECT_EQ(area->uses(), 0u);
}

TEST_F(LoanTest, PartsOfLentMemory) {
  const Attachment sent = in_lendable(0, 4 * kLarge);
  std::iota(reinterpret_cast<uint32_t*>(writable(sent)), reinterpret_cast<uint32_t*>(writable(sent) + sent.bytes), 0u);
  for (const uint64_t offset : {uint64_t{64}, kLarge, 3 * kLarge}) {
    Attachment part = sent;
    part.data += offset;
    part.bytes = kLarge;
    const Attachment got = pass_on(part);
    EXPECT_EQ(std::memcmp(got.data, sent.data + offset, kLarge), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data) % kAttachmentAlignment, 0u);
  }
  Attachment odd = sent;
  odd.data += 4;
  odd.bytes = kLarge;
  const Attachment copied = pass_on(odd);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copied.data) % kAttachmentAlignment, 0u) << "a copy, since it must be aligned";
  EXPECT_EQ(std::memcmp(copied.data, odd.data, kLarge), 0);
  EXPECT_FALSE(find_lendable(sent.data + sent.bytes - 1, 2));
  EXPECT_FALSE(find_lendable(sent.data - 1, 2));
}

TEST_F(LoanTest, FreedByItsOwnerItStaysForWhoBorrowed) {
  const size_t before = open_descriptors();
  Attachment sent = in_lendable(5);
  const Attachment got = pass_on(sent);
  sent = {};
  EXPECT_FALSE(lender_->trim(steady_now()));
  EXPECT_FALSE(borrower_->trim()) << "retired";
  expect_all(got, 5);
  const Attachment other = pass_on(in_lendable(6));
  expect_all(got, 5);
  expect_all(other, 6);
  EXPECT_LE(open_descriptors(), before + 2) << "one of the last, one of the first for as long as it is in use";
}

TEST_F(LoanTest, AnEndedConnectionsUsesDoNotCount) {
  const Attachment sent = in_lendable(5);
  const auto area = find_lendable(sent.data, sent.bytes);
  Attachment got = pass_on(sent);
  lender_.reset();
  EXPECT_EQ(area->uses(), 0u);
  got = {};  // counts down in a slot that nobody reads
  lender_.emplace(fds_[0], crew_, [] {});
  borrower_.emplace(fds_[1], pool_, [] {});
  const Attachment again = pass_on(sent);
  EXPECT_EQ(area->uses(), 1u);
}

TEST_F(LoanTest, OneAreaIsToldOnce) {
  const Attachment sent = in_lendable(5);
  const auto first = lender_->lend(sent), second = lender_->lend(sent);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->area, second->area);
  const Attachment a = borrower_->borrow(*first, kLarge).take(), b = borrower_->borrow(*second, kLarge).take();
  EXPECT_EQ(find_lendable(sent.data, 1)->uses(), 2u);
  writable(a)[0] = 1;
  EXPECT_EQ(b.data[0], 5) << "each has its own view";
}

// ---- strangers ----

TEST_F(LoanTest, LoansOfNothing) {
  EXPECT_EQ(refusal({.area = 0}), Code::corrupt);
  const Attachment got = pass_on(numbers(1));
  EXPECT_EQ(refusal({.area = 1}), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0}), Code::corrupt) << "in use";
}

TEST_F(LoanTest, LoansOutsideOfTheirArea) {
  { const Attachment got = pass_on(numbers(1)); }
  EXPECT_EQ(refusal({.area = 0}, kLarge + 1), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0, .offset = 64}), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0, .offset = UINT64_MAX - 63}), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0, .offset = 1}, 1), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0, .slot = AreaControl::kSlots}), Code::corrupt);
  EXPECT_EQ(refusal({.area = 0, .slot = AreaControl::kSlots - 1}), std::nullopt);
}

class StrangeArea : public LoanTest {
 protected:
  std::optional<Code> tell_of(int fd, uint8_t kind = kBufferArea) {
    EXPECT_TRUE(send_area(fds_[0], kind, fd));
    const auto heard = borrower_->listen();
    return heard ? std::nullopt : std::optional(heard.failure().code);
  }
  static int memory(off_t bytes, int seals) {
    const int fd = ::memfd_create("strange", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, bytes), 0);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  }
};

TEST_F(StrangeArea, ThatCouldBecomeSmaller) {
  const int fd = memory(kLarge, F_SEAL_GROW);
  EXPECT_EQ(tell_of(fd), Code::corrupt);
  EXPECT_EQ(tell_of(fd, kLentArea), Code::corrupt);
  ::close(fd);
}

TEST_F(StrangeArea, WithoutContent) {
  const int fd = memory(AreaControl::kBytes, F_SEAL_GROW | F_SEAL_SHRINK);
  EXPECT_EQ(tell_of(fd), Code::corrupt);
  ::close(fd);
}

TEST_F(StrangeArea, ThatIsNoMemory) { EXPECT_EQ(tell_of(fds_[0]), Code::corrupt); }

TEST_F(StrangeArea, WithoutDescriptor) {
  for (const uint8_t kind : {kBufferArea, kLentArea}) {
    ASSERT_EQ(::send(fds_[0], &kind, 1, 0), 1);
    const auto heard = borrower_->listen();
    ASSERT_FALSE(heard);
    EXPECT_EQ(heard.failure().code, Code::corrupt);
  }
}

TEST_F(StrangeArea, DescriptorsThatNobodyAskedForAreClosed) {
  const size_t before = open_descriptors();
  EXPECT_TRUE(send_area(fds_[0], kDoorbell, fds_[0]));
  EXPECT_TRUE(borrower_->listen());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(StrangeArea, AmongDoorbells) {
  for (int i = 0; i < 100; ++i) send_doorbell(fds_[0]);
  const auto loan = lender_->lend(numbers(1));
  for (int i = 0; i < 100; ++i) send_doorbell(fds_[0]);
  const auto second = lender_->lend(numbers(2));
  ASSERT_TRUE(loan && second);
  expect_all(borrower_->borrow(*second, kLarge).take(), 2);
  expect_all(borrower_->borrow(*loan, kLarge).take(), 1);
}

// ---- in frames ----

TEST_F(LoanTest, AFrameWithAllKindsOfAttachments) {
  auto message = std::make_shared<Message>();
  message->kind = Kind{77};
  message->body = Bytes(100, 42);
  Attachment section = numbers(4);
  section.shared = false;
  message->attachments = {numbers(1), numbers(2, 10), in_lendable(3), section, numbers(0, 0)};
  FrameWriter writer;
  writer.add({.header = {.kind = message->kind, .sequence = 9}, .message = message}, &*lender_);
  Bytes stream;
  iovec piece;
  while (writer.fill(&piece, 1) == 1) {
    stream.append(static_cast<const uint8_t*>(piece.iov_base), piece.iov_len);
    writer.advance(piece.iov_len);
  }
  EXPECT_LT(stream.size(), kLarge + 1000) << "only the section is in the stream";

  for (const size_t step : {size_t{1}, size_t{7}, stream.size()}) {
    FrameReader reader("peer", 1 << 30);
    reader.borrow_from(&*borrower_);
    std::vector<InFrame> frames;
    for (size_t at = 0; at < stream.size(); at += step) {
      ByteView bytes(stream.data() + at, std::min(step, stream.size() - at));
      ASSERT_TRUE(reader.feed(bytes, true, frames).ok());
    }
    ASSERT_EQ(frames.size(), 1u);
    const std::vector<Attachment>& got = frames[0].message.attachments;
    ASSERT_EQ(got.size(), 5u);
    for (uint8_t i = 0; i < 4; ++i) expect_all(got[i], i + 1);
    EXPECT_TRUE(got[0].shared && got[2].shared);
    EXPECT_FALSE(got[1].shared || got[3].shared || got[4].shared);
  }

  FrameReader without("peer", 1 << 30);
  std::vector<InFrame> frames;
  ByteView bytes(stream);
  EXPECT_FALSE(without.feed(bytes, true, frames).ok()) << "over a socket there is no such thing";
  FrameReader small("peer", kLarge);
  small.borrow_from(&*borrower_);
  bytes = stream;
  EXPECT_FALSE(small.feed(bytes, true, frames).ok()) << "lent bytes count as any others";
}

}  // namespace
}  // namespace holdfast::loan_test
