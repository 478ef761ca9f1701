// UniqueFunction: a move-only function object with room for small captures inside itself.
// (std::move_only_function is C++23.) Closure is the one without arguments: work to be done later.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace holdfast {

template <class Signature>
class UniqueFunction;

template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}

  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, UniqueFunction> && std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      UniqueFunction(F&& function) {
    using Held = std::decay_t<F>;
    if constexpr (sizeof(Held) <= kInlineBytes && alignof(Held) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Held>) {
      ::new (static_cast<void*>(storage_)) Held(std::forward<F>(function));
      operations_ = &kInline<Held>;
    } else {
      ::new (static_cast<void*>(storage_)) Held*(new Held(std::forward<F>(function)));
      operations_ = &kOnHeap<Held>;
    }
  }

  UniqueFunction(UniqueFunction&& other) noexcept : operations_(std::exchange(other.operations_, nullptr)) {
    if (operations_ != nullptr) operations_->move(storage_, other.storage_);
  }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      operations_ = std::exchange(other.operations_, nullptr);
      if (operations_ != nullptr) operations_->move(storage_, other.storage_);
    }
    return *this;
  }
  ~UniqueFunction() { reset(); }

  explicit operator bool() const { return operations_ != nullptr; }
  R operator()(Args... args) { return operations_->call(storage_, std::forward<Args>(args)...); }

  // Destroys what is held, now.
  void reset() {
    if (const Operations* operations = std::exchange(operations_, nullptr)) operations->destroy(storage_);
  }

 private:
  static constexpr size_t kInlineBytes = 64;

  struct Operations {
    R (*call)(void*, Args&&...);
    void (*move)(void* to, void* from);  // constructs at `to`, destroys at `from`
    void (*destroy)(void*);
  };

  template <class Held>
  static constexpr Operations kInline = {
      [](void* at, Args&&... args) -> R { return (*static_cast<Held*>(at))(std::forward<Args>(args)...); },
      [](void* to, void* from) {
        ::new (to) Held(std::move(*static_cast<Held*>(from)));
        static_cast<Held*>(from)->~Held();
      },
      [](void* at) { static_cast<Held*>(at)->~Held(); }};

  template <class Held>
  static constexpr Operations kOnHeap = {
      [](void* at, Args&&... args) -> R { return (**static_cast<Held**>(at))(std::forward<Args>(args)...); },
      [](void* to, void* from) { ::new (to) Held*(*static_cast<Held**>(from)); },
      [](void* at) { delete *static_cast<Held**>(at); }};

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) unsigned char storage_[kInlineBytes];
};

using Closure = UniqueFunction<void()>;

}  // namespace holdfast
