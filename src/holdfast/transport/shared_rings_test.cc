// SharedRings: what one end writes the other reads, whatever the sizes; and a peer that scribbles over the memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include <holdfast/base/bytes.h>
#include <holdfast/transport/shared_rings.h>

namespace holdfast {
namespace {

constexpr size_t kMemoryBytes = 4096 + 2 * SharedRings::kRingBytes;
// Offsets of docs/shared_memory.md, in the ring from the dialler.
constexpr size_t kWritten = 0, kRead = 128, kReaderAsleep = 256, kWriterAsleep = 384;

class SharedRingsTest : public testing::Test {
 protected:
  SharedRingsTest() : dialler_(SharedRings::make()), fd_(dialler_->take_fd()) {
    acceptor_ = SharedRings::open(fd_).take();
    raw_ = static_cast<uint8_t*>(::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~SharedRingsTest() override {
    ::munmap(raw_, kMemoryBytes);
    ::close(fd_);
  }
  template <class T>
  void scribble(size_t offset, T value) {
    std::memcpy(raw_ + offset, &value, sizeof(value));
  }
  template <class T>
  T look(size_t offset) const {
    T value;
    std::memcpy(&value, raw_ + offset, sizeof(value));
    return value;
  }
  static ssize_t write(SharedRings& rings, ByteView bytes) {
    const iovec piece = {.iov_base = const_cast<uint8_t*>(bytes.data()), .iov_len = bytes.size()};
    return rings.write(&piece, 1);
  }
  static Bytes read(SharedRings& rings, size_t bytes_max) {
    Bytes bytes(bytes_max);
    const iovec piece = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    const ssize_t got = rings.read(&piece, 1);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  std::unique_ptr<SharedRings> dialler_, acceptor_;
  int fd_;
  uint8_t* raw_ = nullptr;
};

TEST_F(SharedRingsTest, BothDirections) {
  EXPECT_FALSE(acceptor_->readable());
  EXPECT_TRUE(read(*acceptor_, 10).empty());
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(write(*dialler_, Bytes{1, 2, 3}), 3);
  EXPECT_EQ(write(*acceptor_, Bytes{4, 5}), 2);
  EXPECT_TRUE(acceptor_->readable());
  EXPECT_EQ(read(*acceptor_, 2), (Bytes{1, 2}));
  EXPECT_EQ(read(*acceptor_, 2), (Bytes{3}));
  EXPECT_EQ(read(*dialler_, 9), (Bytes{4, 5}));
  EXPECT_FALSE(dialler_->readable());
}

TEST_F(SharedRingsTest, AFullRingTakesNoMore) {
  const Bytes much(SharedRings::kRingBytes + 1, 7);
  EXPECT_EQ(write(*dialler_, much), static_cast<ssize_t>(SharedRings::kRingBytes));
  EXPECT_EQ(write(*dialler_, Bytes{1}), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(dialler_->has_room());
  EXPECT_TRUE(dialler_->wait_for_room());
  EXPECT_EQ(read(*acceptor_, 10).size(), 10u);
  EXPECT_FALSE(acceptor_->take_waiting_writer()) << "too little to be woken for";
  EXPECT_EQ(read(*acceptor_, SharedRings::kRingBytes / 2).size(), SharedRings::kRingBytes / 2);
  EXPECT_TRUE(acceptor_->take_waiting_writer());
  EXPECT_FALSE(acceptor_->take_waiting_writer()) << "once";
  EXPECT_TRUE(dialler_->has_room());
  EXPECT_FALSE(dialler_->wait_for_room());
}

TEST_F(SharedRingsTest, WhoSleepsIsToBeWokenOnce) {
  EXPECT_EQ(look<uint32_t>(kReaderAsleep), 1u) << "nobody looks at the beginning";
  write(*dialler_, Bytes{1});
  EXPECT_TRUE(dialler_->take_sleeping_reader());
  write(*dialler_, Bytes{2});
  EXPECT_FALSE(dialler_->take_sleeping_reader());
  EXPECT_FALSE(acceptor_->fall_asleep()) << "there is something";
  read(*acceptor_, 2);
  EXPECT_TRUE(acceptor_->fall_asleep());
  acceptor_->stay_awake();
  write(*dialler_, Bytes{3});
  EXPECT_FALSE(dialler_->take_sleeping_reader());
}

TEST_F(SharedRingsTest, AStreamOfAnySizesArrivesAsItWas) {
  constexpr size_t kTotal = 20 * SharedRings::kRingBytes + 12345;
  const auto byte_at = [](size_t i) { return static_cast<uint8_t>(i * 31 + i / 251); };
  std::thread writer([&] {
    std::mt19937 random(1);
    Bytes bytes;
    for (size_t sent = 0; sent < kTotal;) {
      const size_t count = std::min<size_t>(1 + random() % (random() % 2 == 0 ? 100 : 100'000), kTotal - sent);
      bytes.resize(count);
      for (size_t i = 0; i < count; ++i) bytes[i] = byte_at(sent + i);
      const size_t half = count / 2;
      const iovec pieces[2] = {{.iov_base = bytes.data(), .iov_len = half},
                               {.iov_base = bytes.data() + half, .iov_len = count - half}};
      const ssize_t done = dialler_->write(pieces, 2);
      if (done < 0) {
        ASSERT_EQ(errno, EAGAIN);
        std::this_thread::yield();
      } else {
        sent += static_cast<size_t>(done);
      }
    }
  });
  std::mt19937 random(2);
  for (size_t got = 0; got < kTotal;) {
    const Bytes bytes = read(*acceptor_, 1 + random() % 50'000);
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], byte_at(got + i)) << got + i;
    got += bytes.size();
    if (bytes.empty()) std::this_thread::yield();
  }
  writer.join();
}

TEST_F(SharedRingsTest, ACounterThatCannotBeIsNoticed) {
  write(*dialler_, Bytes{1, 2, 3});
  for (const uint64_t wrong : {uint64_t{SharedRings::kRingBytes + 1}, uint64_t{1} << 63, UINT64_MAX}) {
    scribble(kWritten, wrong);
    EXPECT_TRUE(acceptor_->readable());
    EXPECT_TRUE(read(*acceptor_, 100).empty());
    EXPECT_EQ(errno, EPROTO) << wrong;
  }
  write(*dialler_, Bytes(SharedRings::kRingBytes, 1));
  for (const uint64_t wrong : {uint64_t{1} << 40, UINT64_MAX - 5}) {
    scribble(kRead, wrong);
    EXPECT_EQ(write(*dialler_, Bytes{1}), -1);
    EXPECT_EQ(errno, EPROTO) << wrong;
    EXPECT_TRUE(dialler_->has_room()) << "so that somebody looks";
  }
}

TEST_F(SharedRingsTest, OwnCountersAreNotTakenFromTheMemory) {
  write(*dialler_, Bytes{1, 2, 3});
  EXPECT_EQ(read(*acceptor_, 2), (Bytes{1, 2}));
  scribble(kRead, uint64_t{0});  // not that of the acceptor, which has read two
  EXPECT_EQ(read(*acceptor_, 2), (Bytes{3}));
  scribble(kWriterAsleep, uint32_t{77});
  EXPECT_TRUE(acceptor_->take_waiting_writer());
  EXPECT_FALSE(acceptor_->take_waiting_writer());
}

// Whatever stands in the control page, nothing outside the rings is touched and every answer is one of the few.
TEST_F(SharedRingsTest, RandomScribbles) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    scribble(8 * (random() % (4096 / 8)), random() % 3 == 0 ? random() : random() % (3 * SharedRings::kRingBytes));
    for (SharedRings* rings : {dialler_.get(), acceptor_.get()}) {
      const ssize_t wrote = write(*rings, Bytes(random() % 1000, 1));
      EXPECT_TRUE(wrote >= 0 || errno == EAGAIN || errno == EPROTO);
      EXPECT_LE(read(*rings, random() % 100'000).size(), SharedRings::kRingBytes);
      rings->take_sleeping_reader();
      rings->take_waiting_writer();
      rings->fall_asleep();
      rings->wait_for_room();
    }
  }
}

TEST(SharedRingsOpenTest, MemoryThatIsNotAsItShouldBe) {
  const auto refused = [](int fd) {
    const auto opened = SharedRings::open(fd);
    return !opened.ok() && opened.failure().code == Code::corrupt;
  };
  EXPECT_TRUE(refused(-1));
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  EXPECT_TRUE(refused(pipe_fds[0]));
  const int unsealed = ::memfd_create("t", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(unsealed, kMemoryBytes), 0);
  EXPECT_TRUE(refused(unsealed)) << "its end could be cut off later";
  ASSERT_EQ(::fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_FALSE(refused(unsealed));
  const int small = ::memfd_create("t", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(small, 4096), 0);
  ASSERT_EQ(::fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(refused(small));
  for (const int fd : {pipe_fds[0], pipe_fds[1], unsealed, small}) ::close(fd);
}

}  // namespace
}  // namespace holdfast
