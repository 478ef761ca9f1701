// when_all and when_any: one future for many. The result takes its executor and wait helper from the first
// input, and to cancel it cancels all inputs. Any thread may call them.
#pragma once

#include <holdfast/base/future.h>

#include <cstddef>
#include <tuple>
#include <vector>

namespace holdfast {

namespace future_detail {

using Sources = std::vector<StateRef<FutureStateBase>>;

// The state of a result that depends on many inputs. Derived::on_input(index) is called once for each input
// when it is complete, on the thread that completed it. Each pending input holds one reference.
template <class R, class Derived>
class ManyState : public FutureState<R> {
 public:
  explicit ManyState(Sources sources)
      : FutureState<R>(sources[0]->executor()),
        sources_(std::move(sources)),
        inputs_(std::make_unique<Input[]>(sources_.size())) {
    this->set_helper(sources_[0]->helper());
    // The hook may keep a bare pointer: it runs only while the state is there.
    this->on_cancel([this] {
      for (const StateRef<FutureStateBase>& source : sources_) source->cancel();
    });
  }

  // The caller holds a reference meanwhile.
  void watch() {
    for (size_t i = 0; i < sources_.size(); ++i) {
      inputs_[i].owner = static_cast<Derived*>(this);
      inputs_[i].index = i;
      inputs_[i].always_inline = true;
      this->add_reference();
      sources_[i]->add(&inputs_[i]);
    }
  }

 protected:
  struct Input final : Continuation {
    void run() noexcept override {
      auto keep = StateRef<Derived>::adopt(owner);
      owner->on_input(index);
    }
    void abandon() noexcept override { run(); }
    Derived* owner = nullptr;
    size_t index = 0;
  };

  Sources sources_;
  const std::unique_ptr<Input[]> inputs_;
};

// `gather` makes the R out of the sources once all of them have a value.
template <class R, typename FutureState<R>::Stored (*gather)(const Sources&)>
class AllState final : public ManyState<R, AllState<R, gather>> {
 public:
  explicit AllState(Sources sources)
      : ManyState<R, AllState>(std::move(sources)), pending_(this->sources_.size() + 1) {}

  static Future<R> make(Sources sources) {
    auto self = StateRef<AllState>::adopt(new AllState(std::move(sources)));
    Future<R> result{StateRef<FutureState<R>>(self)};
    self->watch();
    self->one_done();  // the extra one in pending_: watch() still walks through sources_
    return result;
  }

  void on_input(size_t index) {
    if (this->sources_[index]->failed()) this->fail(this->sources_[index]->problem());
    one_done();
  }

 private:
  void one_done() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1 || this->ready()) return;
    const bool won = this->set_with([this] { return gather(this->sources_); });
    // Do not keep the inputs' values beside the result. Not if somebody else completed the state: the
    // cancel hook may be walking through them.
    if (won) this->sources_.clear();
  }

  std::atomic<size_t> pending_;
};

template <class R>
class AnyState final : public ManyState<std::pair<size_t, Future<R>>, AnyState<R>> {
 public:
  using ManyState<std::pair<size_t, Future<R>>, AnyState<R>>::ManyState;

  void on_input(size_t index) {
    // Every source is a FutureState<R>: when_any put them there.
    auto* state = static_cast<FutureState<R>*>(this->sources_[index].get());
    this->set_value(index, Future<R>(StateRef<FutureState<R>>(state)));
  }
};

template <class T>
Sources sources_of(const std::vector<Future<T>>& futures) {
  Sources sources;
  sources.reserve(futures.size());
  for (const Future<T>& future : futures) sources.push_back(future.state());
  return sources;
}

template <class T>
typename FutureState<T>::Stored read_source(const StateRef<FutureStateBase>& source) {
  return static_cast<FutureState<T>*>(source.get())->read();
}

template <class T>
std::vector<T> gather_vector(const Sources& sources) {
  std::vector<T> values;
  values.reserve(sources.size());
  for (const StateRef<FutureStateBase>& source : sources) values.push_back(read_source<T>(source));
  return values;
}

inline std::monostate gather_nothing(const Sources&) { return {}; }

template <class... T>
class Tuple {
 public:
  using Type = std::tuple<typename FutureState<T>::Stored...>;
  static Type gather(const Sources& sources) { return gather(sources, std::index_sequence_for<T...>()); }

 private:
  template <size_t... i>
  static Type gather(const Sources& sources, std::index_sequence<i...>) {
    return Type(read_source<T>(sources[i])...);
  }
};

}  // namespace future_detail

// The values of all, in the order of the inputs. Fails as soon as one input fails, with the first failure
// that came. Move-only values are moved out of the inputs.
template <class T>
requires(!std::is_void_v<T>) Future<std::vector<T>> when_all(const std::vector<Future<T>>& futures) {
  using namespace future_detail;
  if (futures.empty()) return make_ready_future(std::vector<T>());
  return AllState<std::vector<T>, &gather_vector<T>>::make(sources_of(futures));
}

inline Future<void> when_all(const std::vector<Future<void>>& futures) {
  using namespace future_detail;
  if (futures.empty()) return make_ready_future();
  return AllState<void, &gather_nothing>::make(sources_of(futures));
}

// The same for different types; a Future<void> gives a std::monostate.
template <class First, class... Rest>
auto when_all(const Future<First>& first, const Future<Rest>&... rest) {
  using Gather = future_detail::Tuple<First, Rest...>;
  return future_detail::AllState<typename Gather::Type, &Gather::gather>::make({first.state(), rest.state()...});
}

// The first input that completes, with a value or not: its index, and itself. Fails only when cancelled, or
// with InvalidArgument if there are no inputs.
template <class T>
Future<std::pair<size_t, Future<T>>> when_any(const std::vector<Future<T>>& futures) {
  using namespace future_detail;
  using R = std::pair<size_t, Future<T>>;
  if (futures.empty()) {
    return make_failed_future<R>({.code = Code::invalid_argument, .message = "when_any of no futures never ends"});
  }
  auto self = StateRef<AnyState<T>>::adopt(new AnyState<T>(sources_of(futures)));
  self->watch();
  return Future<R>(StateRef<FutureState<R>>(self));
}

}  // namespace holdfast
