// Lender: the areas of one connection through shared memory that its large attachments lie in, on the side that sends.
// docs/shared_memory.md has the rules.
//
// Owned by a connection. lend() belongs to the thread that has its WriteTurn; trim() to the one in poll().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <holdfast/base/time.h>
#include <holdfast/transport/copy_crew.h>
#include <holdfast/transport/shared_area.h>
#include <holdfast/wire/message.h>

namespace holdfast {

class Lender {
 public:
  // How long a buffer lies free before it is given up.
  static constexpr Duration kIdleTime = std::chrono::seconds(10);

  // The socket is the connection's, and stays open for as long as this lives; so does `crew`, which copies.
  // `trim_later` is called when there is something to trim().
  Lender(int socket_fd, CopyCrew& crew, std::function<void()> trim_later)
      : socket_fd_(socket_fd), crew_(crew), trim_later_(std::move(trim_later)) {}
  // The connection has ended, so nobody tells us any more what is still in use.
  ~Lender();
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // Where the other side finds these bytes: a copy, or the very memory if it is lendable. nullopt: send them.
  std::optional<Loan> lend(const Attachment& attachment);
  // True if there is something left to be looked at again.
  bool trim(Time now);

 private:
  struct Buffer {
    uint32_t number;
    std::unique_ptr<SharedArea> area;
    Time used_at;
    int looks = 0;  // in a row that found it in use
  };
  struct Lent {
    uint32_t number;
    uint32_t slot;
    std::weak_ptr<SharedArea> area;
  };

  std::optional<Loan> lend_itself(const std::shared_ptr<SharedArea>& area, const uint8_t* data);
  std::optional<Loan> lend_copy(const Attachment& attachment);
  size_t area_count() const { return buffers_.size() + kept_.size() + lent_.size(); }
  static bool is_free(const Buffer& buffer);
  Buffer* find_free_buffer(uint64_t bytes);
  Buffer* make_buffer(uint64_t bytes);
  // Its number, if the other side could be told.
  std::optional<uint32_t> tell(const SharedArea& area, uint8_t kind);

  const int socket_fd_;
  CopyCrew& crew_;
  const std::function<void()> trim_later_;
  std::mutex mutex_;  // of all that follows; held for a copy, but nobody is in a hurry to trim
  uint32_t next_number_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Buffer> kept_;  // in use for so long that only trim() looks at them
  std::unordered_map<const SharedArea*, Lent> lent_;
};

}  // namespace holdfast
