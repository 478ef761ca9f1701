// A device that is none, for tests: libtorch's PrivateUse1, with a few indices, memory that only looks like a device's,
// and streams that are queues. Nothing in a queue runs before somebody waits for its stream, or for an event in it; so
// whoever forgets to wait reads what was there before, every time. Memory is filled with rubbish when it is made, and
// again, in its stream's order, when it is given back.
//
// One lock guards all of it; any thread. Include it in one source of a program: it registers with libtorch.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <torch/library.h>
#include <torch/version.h>

namespace holdfast::fake {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr int kDevices = 3;
inline constexpr c10::StreamId kPoolStreams = 32;  // 1 to 32; 0 is the default one
inline constexpr int kFresh = 0xAB;
inline constexpr int kGone = 0xCD;

inline c10::Device device(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

struct Counts {
  int events = 0;  // recorded
  int waits = 0;   // of streams for events
  int copies = 0;
};

class Machine {
 public:
  using Kernel = std::function<void()>;
  // One recording of an event: runs when its stream gets there.
  struct Recording {
    c10::Stream stream;
    bool reached = false;
  };
  using RecordingPtr = std::shared_ptr<Recording>;

  static Machine& instance() {
    static auto* machine = new Machine;  // tensors may outlive everything
    return *machine;
  }

  void give(const c10::Stream& stream, Kernel kernel) {
    std::lock_guard lock(mutex_);
    queues_[key(stream)].push_back(std::move(kernel));
  }
  void run_all(const c10::Stream& stream) {
    std::lock_guard lock(mutex_);
    while (run_one(stream)) {
    }
  }
  bool is_empty(const c10::Stream& stream) {
    std::lock_guard lock(mutex_);
    return queues_[key(stream)].empty();
  }
  RecordingPtr record(const c10::Stream& stream) {
    std::lock_guard lock(mutex_);
    ++counts_.events;
    auto recording = std::make_shared<Recording>(Recording{stream});
    queues_[key(stream)].push_back([recording] { recording->reached = true; });
    return recording;
  }
  void wait(const c10::Stream& stream, RecordingPtr recording) {
    std::lock_guard lock(mutex_);
    ++counts_.waits;
    queues_[key(stream)].push_back([this, recording] { reach(*recording); });
  }
  bool is_reached(const Recording& recording) {
    std::lock_guard lock(mutex_);
    return recording.reached;
  }

  void* make_memory(size_t bytes, const c10::Stream& owner) {
    std::lock_guard lock(mutex_);
    auto memory = std::make_unique<Memory>(Memory{std::vector<uint8_t>(bytes, kFresh), owner, {}});
    void* at = memory->bytes.data();
    memory_.emplace(at, std::move(memory));
    return at;
  }
  // What a caching allocator does: the memory is there again for its owner's stream, after the others that used it.
  void give_back(void* at) {
    std::lock_guard lock(mutex_);
    Memory& memory = *memory_.at(at);
    for (const c10::Stream& user : memory.users) wait(memory.owner, record(user));
    give(memory.owner, [&memory] { std::memset(memory.bytes.data(), kGone, memory.bytes.size()); });
  }
  void use(void* at, const c10::Stream& user) {
    std::lock_guard lock(mutex_);
    memory_.at(at)->users.push_back(user);
  }

  c10::Stream next_pool_stream(c10::Device device) {
    std::lock_guard lock(mutex_);
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + last_pool_stream_++ % kPoolStreams);
  }
  Counts counts() {
    std::lock_guard lock(mutex_);
    return counts_;
  }
  void count_copy() {
    std::lock_guard lock(mutex_);
    ++counts_.copies;
  }

 private:
  using Key = std::pair<int, c10::StreamId>;
  struct Memory {
    std::vector<uint8_t> bytes;  // kept for ever: kernels that were given earlier may still look at it
    c10::Stream owner;
    std::vector<c10::Stream> users;
  };

  static Key key(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }
  bool run_one(const c10::Stream& stream) {
    auto& queue = queues_[key(stream)];
    if (queue.empty()) return false;
    const Kernel kernel = std::move(queue.front());
    queue.pop_front();
    kernel();
    return true;
  }
  void reach(const Recording& recording) {
    while (!recording.reached && run_one(recording.stream)) {
    }
    TORCH_CHECK(recording.reached, "an event that is in no queue");
  }

  std::recursive_mutex mutex_;  // kernels that wait run others
  std::map<Key, std::deque<Kernel>> queues_;
  std::map<void*, std::unique_ptr<Memory>> memory_;
  c10::StreamId last_pool_stream_ = 0;
  Counts counts_;
};

// What is current on this thread.
struct Current {
  int device = 0;
  std::array<c10::StreamId, kDevices> streams{};
};
inline thread_local Current current;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return device(current.device); }
  void setDevice(c10::Device to) const override { current.device = to.index(); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current.device = to.index(); }
  c10::Stream getStream(c10::Device of) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, of, current.streams[static_cast<size_t>(of.index())]);
  }
  c10::Stream getDefaultStream(c10::Device of) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool = false) const override {
    return Machine::instance().next_pool_stream(of);
  }
  c10::Stream exchangeStream(c10::Stream to) const noexcept override {
    const c10::Stream before = getStream(to.device());
    current.streams[static_cast<size_t>(to.device_index())] = to.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Machine::RecordingPtr;
    *static_cast<Machine::RecordingPtr*>(*event) = Machine::instance().record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    Machine::instance().wait(stream, *static_cast<Machine::RecordingPtr*>(event));
  }
  bool queryEvent(void* event) const override {
    return Machine::instance().is_reached(**static_cast<Machine::RecordingPtr*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Machine::RecordingPtr*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return Machine::instance().is_empty(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { Machine::instance().run_all(stream); }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    Machine::instance().use(memory.get(), stream);
  }
};

inline c10::Stream current_stream(int index) { return c10::impl::VirtualGuardImpl(kType).getStream(device(index)); }

inline void delete_memory(void* at) { Machine::instance().give_back(at); }

// ---- what differs between versions of libtorch

#if TORCH_VERSION_MAJOR >= 2
#define HOLDFAST_FAKE_ALLOCATE allocate(size_t bytes) override
#else
#define HOLDFAST_FAKE_ALLOCATE allocate(size_t bytes) const override
#endif

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr HOLDFAST_FAKE_ALLOCATE {
    void* at = Machine::instance().make_memory(bytes, current_stream(current.device));
    return {at, at, &delete_memory, device(current.device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_memory; }
#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
#endif
};
#undef HOLDFAST_FAKE_ALLOCATE

inline c10::Allocator* allocator() {
  static auto* allocator = new Allocator;
  return allocator;
}

// ---- the few operators that it has

inline at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                        c10::optional<at::Device> on, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(on.value_or(device(current.device)));
  return at::detail::empty_generic(sizes, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

inline at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::optional<at::ScalarType> type,
                                c10::optional<at::Layout>, c10::optional<at::Device> on, c10::optional<bool>) {
  const c10::DeviceGuard guard(on.value_or(device(current.device)));
  return at::detail::empty_strided_generic(
      sizes, strides, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(from.is_contiguous() && to.is_contiguous() && from.nbytes() == to.nbytes(), "not so simple a copy");
  const c10::Stream stream = current_stream((from.is_cpu() ? to : from).device().index());
  Machine::instance().count_copy();
  Machine::instance().give(stream, [source = from.data_ptr(), target = to.data_ptr(), bytes = from.nbytes()] {
    std::memcpy(target, source, bytes);
  });
  if (!non_blocking) stream.synchronize();
  return to;
}

inline bool is_registered = [] {
  static c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);
  return true;
}();

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
}

// ---- kernels of a program, on bytes: given to the current stream, not run

inline at::Tensor make(int index, int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device(index)));
}

inline void fill(const at::Tensor& bytes, uint8_t value) {
  Machine::instance().give(current_stream(bytes.device().index()),
                           [at = bytes.data_ptr(), size = bytes.nbytes(), value] { std::memset(at, value, size); });
}
inline void add(const at::Tensor& bytes, uint8_t amount) {
  Machine::instance().give(current_stream(bytes.device().index()),
                           [at = static_cast<uint8_t*>(bytes.data_ptr()), size = bytes.nbytes(), amount] {
                             for (size_t i = 0; i < size; ++i) at[i] = static_cast<uint8_t>(at[i] + amount);
                           });
}

}  // namespace holdfast::fake
