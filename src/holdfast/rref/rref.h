// RRef<T>: a distributed shared_ptr. It refers to an object that lives on one worker, its owner; it can be copied,
// sent to other workers in calls and results, and dropped. The object is destroyed, on its owner, when no worker
// holds a reference any more. docs/rref.md tells how.
//
// Any thread may use it; a copy is cheap. What went wrong with the object's creation appears at every use.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <holdfast/rpc/worker.h>
#include <holdfast/rref/on_object.h>

namespace holdfast {

namespace rref_detail {

// A program that includes this has references in each of its workers.
inline const size_t kProtocolIndex = RegisteredProtocol<References>::index();

// The reference that `message` is to create the object of, and the call itself, which begins here.
ReferencePtr start_remote(const std::shared_ptr<const rpc_detail::PeerState>& peer, const Function& function,
                          std::shared_ptr<Message> message, Duration timeout);
// A reference whose creation is not even tried.
ReferencePtr never_sent(const std::shared_ptr<const rpc_detail::PeerState>& peer, const Failure& why);
// Waits for the object, which is this worker's. Throws why it is not there.
std::shared_ptr<void> wait_for_value(const Reference& reference, const std::type_info& type);
std::string made_here(const char* file, int line);
[[noreturn]] void throw_empty();

// What the context's own layer, which is above this one, makes of it.
template <class Tensor, class Context>
void begin_backward(const Tensor& rref, const Context& context, typename Context::Options options) {
  backward(rref, context, std::move(options));
}

}  // namespace rref_detail

template <class T>
class RRef {
 public:
  using Object = rpc_detail::Stored<T>;

  // Refers to nothing: every use but assignment and sending throws InvalidArgument.
  RRef() = default;
  // For the library.
  RRef(ReferencePtr reference, Duration timeout) : reference_(std::move(reference)), timeout_(timeout) {}

  explicit operator bool() const { return reference_ != nullptr; }
  friend bool operator==(const RRef& a, const RRef& b) {
    return a.reference_ == b.reference_ || (a.reference_ && b.reference_ && a.reference_->rref == b.reference_->rref);
  }

  const WorkerInfo& owner() const { return *get().owner; }
  bool is_owner() const { return get().is_owner(); }
  // The owner knows this reference. True on the owner.
  bool confirmed_by_owner() const { return get().references.confirmed(get()); }
  RRefId id() const { return get().rref; }

  // The same reference, with another timeout for what is done through it. kForever: none.
  RRef with_timeout(Duration timeout) const { return {reference_, timeout}; }

  // A copy of the object. Waits until it is there. Throws why it is not, or will not be.
  auto to_here() const requires(std::is_void_v<T> || wire::Encodable<T>) { return fetch().take(); }
  auto to_here(Duration timeout) const requires(std::is_void_v<T> || wire::Encodable<T>) {
    return with_timeout(timeout).fetch().take();
  }
  // The same, without waiting.
  Future<T> fetch() const requires(std::is_void_v<T> || wire::Encodable<T>);

  // The same with what F, a function of the object, makes of it there: for objects that have no codec.
  template <auto F>
  Future<typename RegisteredOnObject<F, Object>::Types::Result> fetch_with() const {
    return start<F>(kRRefFetch);
  }

  // The object itself, on its owner only; waits until it is there. Good as long as this reference, or a copy, lives.
  // The caller sees to it that nobody else changes it meanwhile.
  std::add_lvalue_reference_t<T> local_value() const;

  // Runs F, a member function of T or a function whose first parameter is a T&, on the object, where it is.
  template <auto F, class... Args>
  auto call(const Args&... args) const {
    return async<F>(args...).take();
  }
  template <auto F, class... Args>
  Future<typename RegisteredOnObject<F, Object>::Types::Result> async(const Args&... args) const {
    return start<F>(kCall, args...);
  }
  // The same; the result stays there too.
  template <auto F, class... Args>
  RRef<typename RegisteredKeptOnObject<F, Object>::Types::Result> remote(const Args&... args) const;

  // Of a tensor: a distributed backward pass that begins there, at the owner. Defined with autograd::Context.
  template <class Context>
  void backward(const Context& context, typename Context::Options options = {}) const {
    rref_detail::begin_backward(*this, context, std::move(options));
  }

  // For the library: null if this refers to nothing.
  const ReferencePtr& reference() const { return reference_; }

 private:
  const Reference& get() const {
    if (!reference_) rref_detail::throw_empty();
    return *reference_;
  }
  // The message of a call of F on this object; the function's first parameter is the reference.
  template <auto F, class... Args>
  std::shared_ptr<Message> message(Kind kind, const Function& function, const Args&... args) const {
    return rpc_detail::call_message(*get().peer(), kind, function,
                                    static_cast<typename rref_detail::ObjectTypes<F, Object>::Arguments*>(nullptr),
                                    RRef<Object>(reference_, timeout_), args...);
  }
  template <auto F, class... Args>
  Future<typename RegisteredOnObject<F, Object>::Types::Result> start(Kind kind, const Args&... args) const;

  ReferencePtr reference_;
  Duration timeout_{};
};

// An RRef on the wire is its index in the message's cargo; one that refers to nothing is nil.
template <class T>
struct wire::Codec<RRef<T>> {
  static constexpr bool kMayBeNil = true;
  static void encode(Writer& writer, const RRef<T>& rref);
  static void decode(Reader& reader, RRef<T>& out);
  static std::string type_name() { return "rref<" + object_name<T>() + ">"; }
};

// ---- how

namespace rref_detail {

// Untyped, so that there is one of each.
void encode_reference(wire::Writer& writer, const ReferencePtr& reference);
ReferencePtr decode_reference(wire::Reader& reader);

}  // namespace rref_detail

template <class T>
void wire::Codec<RRef<T>>::encode(Writer& writer, const RRef<T>& rref) {
  rref_detail::encode_reference(writer, rref.reference());
}

template <class T>
void wire::Codec<RRef<T>>::decode(Reader& reader, RRef<T>& out) {
  ReferencePtr reference = rref_detail::decode_reference(reader);
  const Duration timeout = reference ? reference->host->call_timeout() : Duration();
  out = RRef<T>(std::move(reference), timeout);
}

template <class T>
template <auto F, class... Args>
Future<typename RegisteredOnObject<F, typename RRef<T>::Object>::Types::Result> RRef<T>::start(
    Kind kind, const Args&... args) const {
  using Result = typename RegisteredOnObject<F, Object>::Types::Result;
  if (const Failure* failure = get().failure()) {
    Promise<Result> promise(get().host->executor());
    promise.set_failure(*failure);
    return promise.future();
  }
  const Function& function = RegisteredOnObject<F, Object>::entry;
  std::shared_ptr<Message> call = message<F>(kind, function, args...);
  return rpc_detail::finish_call<Result>(*get().peer(), function, std::move(call), timeout_);
}

template <class T>
Future<T> RRef<T>::fetch() const requires(std::is_void_v<T> || wire::Encodable<T>) {
  if constexpr (std::is_void_v<T>) {
    return start<rref_detail::wait_for>(kRRefFetch);
  } else {
    return start<rref_detail::to_here<T>>(kRRefFetch);
  }
}

template <class T>
std::add_lvalue_reference_t<T> RRef<T>::local_value() const {
  if (!is_owner()) {
    throw_failure({.code = Code::invalid_argument,
                   .message = "local_value() was called on " + get().host->name() + ", but the object is on " +
                              owner().name + ": use to_here(), or call a function on it"});
  }
  std::shared_ptr<void> value = rref_detail::wait_for_value(get(), typeid(Object));
  if constexpr (!std::is_void_v<T>) return *static_cast<T*>(value.get());
}

template <class T>
template <auto F, class... Args>
RRef<typename RegisteredKeptOnObject<F, typename RRef<T>::Object>::Types::Result> RRef<T>::remote(
    const Args&... args) const {
  if (const Failure* failure = get().failure()) return {rref_detail::never_sent(get().peer(), *failure), timeout_};
  const Function& function = RegisteredKeptOnObject<F, Object>::entry;
  return {rref_detail::start_remote(get().peer(), function, message<F>(kRemoteCall, function, args...), timeout_),
          timeout_};
}

template <auto F, class... Args>
RRef<typename RegisteredKept<F>::Result> Peer::remote(const Args&... args) const {
  const Function& function = RegisteredKept<F>::entry;
  std::shared_ptr<Message> message = rpc_detail::call_message(
      *state_, kRemoteCall, function, static_cast<typename RegisteredKept<F>::Arguments*>(nullptr), args...);
  return {rref_detail::start_remote(state_, function, std::move(message), timeout_), timeout_};
}

template <class T, class... Args>
RRef<T> Peer::make(const Args&... args) const {
  return remote<rref_detail::make<T, rpc_detail::AsArgument<Args>...>>(args...);
}

template <class T>
RRef<T> Worker::own(T value, const char* file, int line) {
  Host& worker = host();
  KeptValue kept = rpc_detail::make_kept<T>([&] { return std::move(value); });
  return {References::of(worker).own(std::move(kept), rref_detail::made_here(file, line)), worker.call_timeout()};
}

}  // namespace holdfast

// In a program that only serves: makes a function callable on objects that live here, and a class makeable here.
#define HOLDFAST_EXPORT_METHOD(function) HOLDFAST_EXPORT_METHOD_2_(function, __COUNTER__)
#define HOLDFAST_EXPORT_METHOD_2_(function, number) HOLDFAST_EXPORT_METHOD_3_(function, number)
#define HOLDFAST_EXPORT_METHOD_3_(function, number)                          \
  [[maybe_unused]] static const auto& holdfast_export_method_##number =      \
      ::holdfast::RegisteredOnObject<function>::entry;                       \
  [[maybe_unused]] static const auto& holdfast_export_kept_method_##number = \
      ::holdfast::RegisteredKeptOnObject<function>::entry
// The class, then the types of the constructor's arguments.
#define HOLDFAST_EXPORT_CLASS(...) HOLDFAST_EXPORT_CLASS_2_(__COUNTER__, __VA_ARGS__)
#define HOLDFAST_EXPORT_CLASS_2_(number, ...) HOLDFAST_EXPORT_CLASS_3_(number, __VA_ARGS__)
#define HOLDFAST_EXPORT_CLASS_3_(number, ...)                          \
  [[maybe_unused]] static const auto& holdfast_export_class_##number = \
      ::holdfast::RegisteredKept<::holdfast::rref_detail::make<__VA_ARGS__>>::entry
