#include <holdfast/transport/lender.h>

#include <algorithm>
#include <iterator>

#include <holdfast/transport/local_socket.h>
#include <holdfast/transport/receive_pool.h>

namespace holdfast {

namespace {

// A buffer that is in use so many times in a row is one that the receiver keeps.
constexpr int kLooksMax = 16;

}  // namespace

Lender::~Lender() {
  for (const auto& [key, lent] : lent_) {
    if (const auto area = lent.area.lock()) area->drop_slot(lent.slot);
  }
}

std::optional<Loan> Lender::lend(const Attachment& attachment) {
  if (!attachment.shared || attachment.bytes < kLoanBytesMin) return std::nullopt;
  const auto lendable = find_lendable(attachment.data, attachment.bytes);
  const std::lock_guard lock(mutex_);
  if (lendable) {
    if (auto loan = lend_itself(lendable, attachment.data)) return loan;
  }
  return lend_copy(attachment);
}

std::optional<uint32_t> Lender::tell(const SharedArea& area, uint8_t kind) {
  if (area_count() >= kAreasMax || !send_area(socket_fd_, kind, area.fd())) return std::nullopt;
  trim_later_();
  return next_number_++;
}

std::optional<Loan> Lender::lend_itself(const std::shared_ptr<SharedArea>& area, const uint8_t* data) {
  const auto offset = static_cast<uint64_t>(data - area->data());
  if (offset % kLoanAlignment != 0) return std::nullopt;
  auto found = lent_.find(area.get());
  if (found != lent_.end() && found->second.area.lock() != area) {  // another one, where that one was
    lent_.erase(found);
    found = lent_.end();
  }
  if (found == lent_.end()) {
    const auto slot = area->take_slot();
    if (!slot) return std::nullopt;
    const auto number = tell(*area, kLentArea);
    if (!number) {
      area->drop_slot(*slot);
      return std::nullopt;
    }
    found = lent_.emplace(area.get(), Lent{*number, *slot, area}).first;
  }
  const Lent& lent = found->second;
  area->control().uses[lent.slot].fetch_add(1, std::memory_order_relaxed);
  return Loan{.area = lent.number, .slot = lent.slot, .offset = offset};
}

std::optional<Loan> Lender::lend_copy(const Attachment& attachment) {
  Buffer* buffer = find_free_buffer(attachment.bytes);
  if (buffer == nullptr) buffer = make_buffer(attachment.bytes);
  if (buffer == nullptr) return std::nullopt;
  crew_.copy(buffer->area->data(), attachment.data, attachment.bytes);
  buffer->used_at = steady_now();
  buffer->looks = 0;
  buffer->area->control().uses[0].store(1, std::memory_order_relaxed);
  return Loan{.area = buffer->number};
}

bool Lender::is_free(const Buffer& buffer) {
  return buffer.area->control().uses[0].load(std::memory_order_acquire) == 0;
}

// The first that fits, so that a few are used all the time, and the rest can go.
Lender::Buffer* Lender::find_free_buffer(uint64_t bytes) {
  const uint64_t wanted = pooled_block_bytes(bytes);
  for (size_t i = 0; i < buffers_.size();) {
    Buffer& buffer = buffers_[i];
    if (buffer.area->bytes() != wanted) {
      ++i;
    } else if (is_free(buffer)) {
      return &buffer;
    } else if (++buffer.looks < kLooksMax) {
      ++i;
    } else {
      kept_.push_back(std::move(buffer));
      buffers_.erase(buffers_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return nullptr;
}

Lender::Buffer* Lender::make_buffer(uint64_t bytes) {
  if (area_count() >= kAreasMax) return nullptr;
  auto area = SharedArea::make(pooled_block_bytes(bytes));
  if (!area) return nullptr;
  const auto number = tell(*area, kBufferArea);
  if (!number) return nullptr;
  area->close_fd();
  return &buffers_.emplace_back(Buffer{.number = *number, .area = std::move(area), .used_at = {}});
}

bool Lender::trim(Time now) {
  const std::lock_guard lock(mutex_);
  const auto first_free = std::partition(kept_.begin(), kept_.end(), [](const Buffer& one) { return !is_free(one); });
  std::move(first_free, kept_.end(), std::back_inserter(buffers_));
  kept_.erase(first_free, kept_.end());
  std::erase_if(buffers_, [&](const Buffer& one) { return one.used_at + kIdleTime <= now && is_free(one); });
  std::erase_if(lent_, [](const auto& entry) { return entry.second.area.expired(); });
  return area_count() > 0;
}

}  // namespace holdfast
