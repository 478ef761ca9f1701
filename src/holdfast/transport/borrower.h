// Borrower: the areas of the other side of a connection through shared memory, in which its large attachments lie.
// docs/shared_memory.md has the rules.
//
// Owned by a connection, and used under its read lock; what borrow() gives out may be dropped by any thread at any
// time, also after the connection has ended. The other side is not trusted: what it says is checked before it is used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include <holdfast/base/error.h>
#include <holdfast/transport/local_socket.h>
#include <holdfast/transport/receive_pool.h>
#include <holdfast/transport/shared_area.h>
#include <holdfast/wire/message.h>

namespace holdfast {

class BorrowedArea;

class Borrower {
 public:
  // `trim_later` is called when there is something to trim().
  Borrower(int socket_fd, std::shared_ptr<ReceivePool> pool, std::function<void()> trim_later)
      : socket_fd_(socket_fd), pool_(std::move(pool)), trim_later_(std::move(trim_later)) {}

  // Reads from the socket: doorbells, and the areas that the other side tells of. Answers what has come, for whoever
  // wants to know more.
  Result<Heard> listen();
  // The attachment of `bytes` bytes that lies there.
  Result<Attachment> borrow(const Loan& loan, uint64_t bytes);
  // Forgets areas that the other side has retired. True if there is something left to be looked at again.
  bool trim();

 private:
  Status add(uint8_t kind, int fd);

  const int socket_fd_;
  const std::shared_ptr<ReceivePool> pool_;
  const std::function<void()> trim_later_;
  uint32_t next_number_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<BorrowedArea>> areas_;
};

}  // namespace holdfast
