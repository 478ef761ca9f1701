// How a C++ function becomes callable from elsewhere: its types, its name, its signature in the wire's words,
// and the code that decodes arguments, runs it and encodes the result.
//
// A function is a template argument: a free function, a captureless lambda, or a member function (which then
// takes its object by value, as its first argument). Naming one in a call registers it before main().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <holdfast/base/future.h>
#include <holdfast/base/task.h>
#include <holdfast/rpc/object_name.h>
#include <holdfast/rpc/served_call.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

template <auto F>
struct FunctionTag {};

// What a function that returns nothing leaves behind if its result stays where it ran.
struct Nothing {};

namespace rpc_detail {

template <class T>
using Stored = std::conditional_t<std::is_void_v<T>, Nothing, T>;

template <class R, class... Args>
struct Types {
  using Returned = R;
  using Arguments = std::tuple<std::remove_cvref_t<Args>...>;
};

template <class T>
struct TypesOf : TypesOf<decltype(&T::operator())> {};  // a lambda: see below

template <class R, class... Args>
struct TypesOf<R (*)(Args...)> : Types<R, Args...> {};
template <class R, class... Args>
struct TypesOf<R (*)(Args...) noexcept> : Types<R, Args...> {};

#define HOLDFAST_MEMBER_TYPES(Qualifiers)                               \
  template <class R, class C, class... Args>                            \
  struct TypesOf<R (C::*)(Args...) Qualifiers> : Types<R, C, Args...> { \
    using WithoutObject = Types<R, Args...>;                            \
  }
HOLDFAST_MEMBER_TYPES();
HOLDFAST_MEMBER_TYPES(const);
HOLDFAST_MEMBER_TYPES(noexcept);
HOLDFAST_MEMBER_TYPES(const noexcept);
HOLDFAST_MEMBER_TYPES(&);
HOLDFAST_MEMBER_TYPES(const&);
HOLDFAST_MEMBER_TYPES(&noexcept);
HOLDFAST_MEMBER_TYPES(const& noexcept);
#undef HOLDFAST_MEMBER_TYPES

template <auto F, class T = std::remove_cvref_t<decltype(F)>>
struct FunctionTypes : TypesOf<T> {};
template <auto F, class T>
requires std::is_class_v<T>
struct FunctionTypes<F, T> : TypesOf<decltype(&T::operator())>::WithoutObject {
};

// What arrives at the caller: Future<T> and Task<T> on the callee are T here.
template <class R>
struct ResultOf {
  using Type = std::remove_cvref_t<R>;
  static constexpr bool asynchronous = false;
};
template <class T>
struct ResultOf<Future<T>> {
  using Type = T;
  static constexpr bool asynchronous = true;
};
template <class T>
struct ResultOf<Task<T>> {
  using Type = T;
  static constexpr bool asynchronous = true;
};

template <class T>
std::string result_name() {
  if constexpr (std::is_void_v<T>) {
    return "nil";
  } else {
    return wire::type_name<T>();
  }
}

template <class... Args>
std::string arguments_text(std::tuple<Args...>*) {
  std::string text = "(";
  ((text += (text.size() == 1 ? "" : ", ") + wire::type_name<Args>()), ...);
  return text + ")";
}

template <class Result, class Arguments>
std::string signature_text(Arguments* arguments) {
  return arguments_text(arguments) + " -> " + result_name<Result>();
}

// Of a call whose result stays where it ran: it may be of any type.
template <class Result, class Arguments>
std::string kept_signature_text(Arguments* arguments) {
  return arguments_text(arguments) + " -> rref<" + object_name<Result>() + ">";
}

inline std::shared_ptr<Message> begin_reply(const ServedCall& call) {
  auto message = std::make_shared<Message>();
  message->kind = kReply;
  wire::Writer writer(*message);
  write_reply_header(writer, call.id);
  return message;
}

// Responds with what `produce` returns, or with what it throws.
template <class T, class Produce>
void respond_with(ServedCall& call, Produce&& produce) {
  try {
    if constexpr (std::is_void_v<T>) {
      produce();
      std::shared_ptr<Message> reply = begin_reply(call);
      wire::Writer(*reply).nil();
      call.respond(std::move(reply));
    } else {
      const T& result = produce();  // a value lives as long as this reference
      std::shared_ptr<Message> reply = begin_reply(call);
      SendContext context(call.host, call.caller, kReply);
      wire::Writer writer(*reply, &context);
      wire::encode(writer, result);
      context.finish(*reply);
      call.respond(std::move(reply));
    }
  } catch (...) {
    call.respond_with_current_exception();
  }
}

// What stays where it ran. Built in place: the type need not be movable.
template <class T, class Produce>
KeptValue make_kept(Produce&& produce) {
  using Value = Stored<T>;
  KeptValue kept{.object = nullptr, .type = &typeid(Value), .trivial = std::is_trivially_destructible_v<Value>};
  if constexpr (std::is_void_v<T>) {
    produce();
    kept.object = std::make_shared<Value>();
  } else if constexpr (std::is_move_constructible_v<T>) {
    kept.object = std::make_shared<T>(produce());
  } else {
    kept.object = std::shared_ptr<T>(new T(produce()));
  }
  return kept;
}

// The same for a call whose result stays here.
template <class T, class Produce>
void keep_result(ServedCall& call, Produce&& produce) {
  try {
    call.keep(make_kept<T>(produce));
  } catch (...) {
    call.respond_with_current_exception();
  }
}

// Decodes the arguments; if that fails, the call is answered.
template <class Arguments>
bool decode_arguments(ServedCall& call, Arguments& arguments) {
  ReceiveContext context(call.host, call.caller, call.message);
  wire::Reader reader(call.arguments(), call.message.attachments, &context);
  std::apply([&](auto&... argument) { (wire::decode(reader, argument), ...); }, arguments);
  reader.finish();
  if (reader.ok()) return true;
  call.respond(Failure{.code = Code::corrupt, .message = "the arguments do not decode: " + reader.error()});
  return false;
}

// Runs what returns R, an R of its own, a Future or a Task, and hands the result on: `finish(call, produce)`.
template <class Returned, class Apply, class Finish>
void run_call(const std::shared_ptr<ServedCall>& call, Apply&& apply, Finish finish) {
  using Result = typename ResultOf<Returned>::Type;
  if constexpr (!ResultOf<Returned>::asynchronous) {
    finish(*call, apply);
  } else {
    try {
      Future<Result> future;
      if constexpr (std::is_same_v<Returned, Task<Result>>) {
        future = start(apply(), call->host.executor());
      } else {
        future = apply();
      }
      call->on_cancel([future] { future.cancel(); });
      future.then([call, finish](Future<Result> done) { finish(*call, [&]() -> Result { return done.take(); }); });
    } catch (...) {
      call->respond_with_current_exception();
    }
  }
}

enum class Outcome { replied, kept };

// A result that stays needs a call that keeps it, and only that: anybody can ask for either entry by its name. If it
// does not fit, the call is answered.
inline bool outcome_fits(ServedCall& call, Outcome outcome) {
  if (call.kept() == (outcome == Outcome::kept)) return true;
  call.respond(Failure{.code = Code::invalid_argument,
                       .message = outcome == Outcome::kept ? "that for remote() only: its result stays there"
                                                           : "that for call() only: its result does not stay"});
  return false;
}

template <Outcome kOutcome, auto F, class Arguments, class Returned>
void invoke(const std::shared_ptr<ServedCall>& call) {
  using Result = typename ResultOf<Returned>::Type;
  Arguments arguments;
  if (!outcome_fits(*call, kOutcome) || !decode_arguments(*call, arguments)) return;
  const auto apply = [&]() -> Returned {
    return std::apply([](auto&&... argument) -> Returned { return std::invoke(F, std::move(argument)...); },
                      std::move(arguments));
  };
  run_call<Returned>(call, apply, [](ServedCall& call, auto&& produce) {
    if constexpr (kOutcome == Outcome::kept) {
      keep_result<Result>(call, produce);
    } else {
      respond_with<Result>(call, produce);
    }
  });
}

}  // namespace rpc_detail

// The entry of F in the program's table. Using it anywhere puts F into the table before main().
template <auto F>
struct Registered {
  using Types = rpc_detail::FunctionTypes<F>;
  using Arguments = typename Types::Arguments;
  using Result = typename rpc_detail::ResultOf<typename Types::Returned>::Type;

  static const Function& add(std::string name) {
    return add_function(std::move(name), rpc_detail::signature_text<Result>(static_cast<Arguments*>(nullptr)),
                        &rpc_detail::invoke<rpc_detail::Outcome::replied, F, Arguments, typename Types::Returned>);
  }
  static inline const Function& entry = add(function_name_from_tag(typeid(FunctionTag<F>)));
};

// The same for calls of F whose result stays where it ran (Peer::remote): another entry under the same name.
template <auto F>
struct RegisteredKept {
  using Types = rpc_detail::FunctionTypes<F>;
  using Arguments = typename Types::Arguments;
  using Result = typename rpc_detail::ResultOf<typename Types::Returned>::Type;

  static const Function& add(std::string name) {
    return add_function(std::move(name), rpc_detail::kept_signature_text<Result>(static_cast<Arguments*>(nullptr)),
                        &rpc_detail::invoke<rpc_detail::Outcome::kept, F, Arguments, typename Types::Returned>);
  }
  static inline const Function& entry = add(function_name_from_tag(typeid(FunctionTag<F>)));
};

namespace rpc_detail {

template <class T>
inline constexpr bool kCanBeResult = wire::Encodable<T>;
template <>
inline constexpr bool kCanBeResult<void> = true;

// Both entries, as far as the function's types allow.
template <auto F>
bool export_function() {
  using Kept = RegisteredKept<F>;
  (void)&Kept::entry;
  if constexpr (kCanBeResult<typename Kept::Result>) (void)&Registered<F>::entry;
  return true;
}
template <auto F>
bool export_function_as(const std::string& name) {
  using Kept = RegisteredKept<F>;
  Kept::add(name);
  if constexpr (kCanBeResult<typename Kept::Result>) Registered<F>::add(name);
  return true;
}

}  // namespace rpc_detail

}  // namespace holdfast

// In a program that only serves: makes a function callable though no call in this program names it.
// HOLDFAST_EXPORT_AS gives it a name of your choice, for callers in other programs (Peer::call_named).
#define HOLDFAST_EXPORT(function) HOLDFAST_EXPORT_2_(function, __COUNTER__)
#define HOLDFAST_EXPORT_AS(function, name) HOLDFAST_EXPORT_AS_2_(function, name, __COUNTER__)
#define HOLDFAST_EXPORT_2_(function, number) HOLDFAST_EXPORT_3_(function, number)
#define HOLDFAST_EXPORT_3_(function, number) \
  [[maybe_unused]] static const bool holdfast_export_##number = ::holdfast::rpc_detail::export_function<function>()
#define HOLDFAST_EXPORT_AS_2_(function, name, number) HOLDFAST_EXPORT_AS_3_(function, name, number)
#define HOLDFAST_EXPORT_AS_3_(function, name, number)           \
  [[maybe_unused]] static const bool holdfast_export_##number = \
      ::holdfast::rpc_detail::export_function_as<function>(name)
