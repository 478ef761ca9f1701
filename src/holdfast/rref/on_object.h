// How a function runs on an object that lives here: `rref.call<&Counter::add>(2)`, or a free function whose first
// parameter is the object. The call carries the reference as its first argument; it runs when the object is there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <holdfast/base/ambient.h>
#include <holdfast/rpc/signature.h>
#include <holdfast/rref/references.h>

namespace holdfast {

template <class T>
class RRef;

namespace rref_detail {

// The types of F, whose first argument is an object, or a base of it.
template <class Tuple>
struct Split;
template <class First, class... Args>
struct Split<std::tuple<First, Args...>> {
  using Object = First;
  template <class T>
  using WithReference = std::tuple<RRef<T>, Args...>;
};

template <auto F>
using ObjectOf = typename Split<typename rpc_detail::FunctionTypes<F>::Arguments>::Object;

// F on a T.
template <auto F, class T>
struct ObjectTypes {
  static_assert(std::is_base_of_v<ObjectOf<F>, T> || std::is_same_v<ObjectOf<F>, T>,
                "this function takes an object of another type");
  using Arguments = typename Split<typename rpc_detail::FunctionTypes<F>::Arguments>::template WithReference<T>;
  using Returned = typename rpc_detail::FunctionTypes<F>::Returned;
  using Result = typename rpc_detail::ResultOf<Returned>::Type;
};

// A coroutine has only a reference to its object, and runs on when its caller gives up and the call is over: the object
// stays until it has ended.
template <class T>
Task<T> hold_object([[maybe_unused]] std::shared_ptr<void> object, Task<T> task) {
  co_return co_await std::move(task);
}

// One call that runs when its object is there: at once, or as work of its own later.
template <rpc_detail::Outcome kOutcome, auto F, class Object>
class OnObject final : public Work, public std::enable_shared_from_this<OnObject<kOutcome, F, Object>> {
 public:
  using Types = ObjectTypes<F, Object>;

  explicit OnObject(std::shared_ptr<ServedCall> call) : call_(std::move(call)) {}

  typename Types::Arguments& arguments() { return arguments_; }
  const Reference& reference() const { return *std::get<0>(arguments_).reference(); }

  // Later: in the name of the call that it belongs to, if somebody still waits for that.
  void run() override {
    AmbientScope scope(ambient_);
    if (call_->cancelled || call_->host.now() >= call_->deadline) {
      return call_->respond(Failure{.code = call_->cancelled ? Code::cancelled : Code::timeout,
                                    .message = "its object was not there in time"});
    }
    run_if_there();
  }
  bool has_waited() const override { return true; }
  // Else it runs later; or never, if its caller gives up first.
  void run_if_there() {
    References& references = reference().references;
    std::optional<Result<std::shared_ptr<void>>> value = references.value(reference(), typeid(Object), nullptr);
    if (!value) {
      call_->on_cancel([weak = this->weak_from_this()] {
        if (auto self = weak.lock()) self->reference().references.stop_waiting(self->reference(), *self);
      });
      value = references.value(reference(), typeid(Object), this->shared_from_this());
      if (!value && call_->cancelled) references.stop_waiting(reference(), *this);  // just before
      if (!value) return;
    }
    if (!*value) return call_->respond(std::move(value->failure()));
    std::shared_ptr<void> pointer = std::move(**value);
    Object& object = *static_cast<Object*>(pointer.get());
    using Returned = typename Types::Returned;
    using Result = typename Types::Result;
    const auto invoke = [&]() -> Returned {
      return std::apply(
          [&](auto&&, auto&&... argument) -> Returned { return std::invoke(F, object, std::move(argument)...); },
          std::move(arguments_));
    };
    const auto apply = [&]() -> Returned {
      if constexpr (std::is_same_v<Returned, Task<Result>>) {
        return hold_object(pointer, invoke());
      } else {
        return invoke();
      }
    };
    // `pointer`: the object stays until a Future is there.
    rpc_detail::run_call<Returned>(call_, apply, [pointer](ServedCall& call, auto&& produce) {
      if constexpr (kOutcome == rpc_detail::Outcome::kept) {
        rpc_detail::keep_result<Result>(call, produce);
      } else {
        rpc_detail::respond_with<Result>(call, produce);
      }
    });
  }

 private:
  const std::shared_ptr<ServedCall> call_;  // its cargo holds the object until the call is over
  typename Types::Arguments arguments_;
  const Ambient ambient_ = current_ambient();
};

template <rpc_detail::Outcome kOutcome, auto F, class T>
void invoke_on_object(const std::shared_ptr<ServedCall>& call) {
  auto work = std::make_shared<OnObject<kOutcome, F, T>>(call);
  if (!rpc_detail::outcome_fits(*call, kOutcome) || !rpc_detail::decode_arguments(*call, work->arguments())) return;
  if (!std::get<0>(work->arguments()) || !work->reference().is_owner()) {
    return call->respond(Failure{.code = Code::corrupt, .message = "the object of the call is not here"});
  }
  work->run_if_there();
}

}  // namespace rref_detail

// The entries of F, as a function on objects of type T, in the program's table: with a reply, and with a result that
// stays.
template <auto F, class T = rref_detail::ObjectOf<F>>
struct RegisteredOnObject {
  using Types = rref_detail::ObjectTypes<F, T>;
  static const Function& add() {
    return add_function(
        function_name_from_tag(typeid(FunctionTag<F>)),
        rpc_detail::signature_text<typename Types::Result>(static_cast<typename Types::Arguments*>(nullptr)),
        &rref_detail::invoke_on_object<rpc_detail::Outcome::replied, F, T>);
  }
  static inline const Function& entry = add();
};
template <auto F, class T = rref_detail::ObjectOf<F>>
struct RegisteredKeptOnObject {
  using Types = rref_detail::ObjectTypes<F, T>;
  static const Function& add() {
    return add_function(
        function_name_from_tag(typeid(FunctionTag<F>)),
        rpc_detail::kept_signature_text<typename Types::Result>(static_cast<typename Types::Arguments*>(nullptr)),
        &rref_detail::invoke_on_object<rpc_detail::Outcome::kept, F, T>);
  }
  static inline const Function& entry = add();
};

namespace rref_detail {

// to_here is this function on the object.
template <class T>
const T& to_here(const T& object) {
  return object;
}
// to_here on the result of a function that returned nothing: it has returned.
inline void wait_for(const Nothing&) {}
// make<T> is this function.
template <class T, class... Args>
T make(Args... args) {
  return T(std::move(args)...);
}

}  // namespace rref_detail
}  // namespace holdfast
