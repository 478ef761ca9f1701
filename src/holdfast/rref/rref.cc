#include <holdfast/rref/rref.h>

#include <fmt/format.h>

namespace holdfast::rref_detail {

namespace {

constexpr int8_t kRRefExtension = 2;

// Completes a promise.
class CompletePromise final : public Work {
 public:
  explicit CompletePromise(Promise<void> promise) : promise_(std::move(promise)) {}
  void run() override { promise_.set_value(); }
  bool quick() const override { return true; }
  bool has_waited() const override { return true; }

 private:
  Promise<void> promise_;
};

}  // namespace

ReferencePtr start_remote(const std::shared_ptr<const rpc_detail::PeerState>& peer, const Function& function,
                          std::shared_ptr<Message> message, Duration timeout) {
  References& references = References::of(*peer->host);
  ReferencePtr reference = references.new_object(peer);
  auto cargo = std::static_pointer_cast<ReferenceCargo>(std::move(message->cargo));
  if (!cargo) cargo = std::make_shared<ReferenceCargo>(references);
  cargo->set_created(reference);
  message->cargo = std::move(cargo);
  peer->host->start_kept_call(peer->worker, function, std::move(message), timeout,
                              [&](Failure failure) { reference->set_failure(std::move(failure)); });
  return reference;
}

ReferencePtr never_sent(const std::shared_ptr<const rpc_detail::PeerState>& peer, const Failure& why) {
  ReferencePtr reference = References::of(*peer->host).new_object(peer);
  reference->set_failure(why);
  return reference;
}

std::shared_ptr<void> wait_for_value(const Reference& reference, const std::type_info& type) {
  Promise<void> promise(reference.host->executor());
  const Future<void> future = promise.future();
  {
    // Not held any longer than this: that it is destroyed instead of run (the worker ends) must end the waiting too.
    const auto work = std::make_shared<CompletePromise>(std::move(promise));
    if (auto value = reference.references.value(reference, type, work)) return value->take();
  }
  future.wait();
  if (auto value = reference.references.value(reference, type, nullptr)) return value->take();
  throw_failure({.code = Code::cancelled, .message = fmt::format("object {} is not there", text_of(reference.rref))});
}

std::string made_here(const char* file, int line) { return fmt::format("own() at {}:{}", file, line); }

void throw_empty() { throw_failure({.code = Code::invalid_argument, .message = "this RRef refers to nothing"}); }

void encode_reference(wire::Writer& writer, const ReferencePtr& reference) {
  if (!reference) return writer.nil();
  auto* context = dynamic_cast<SendContext*>(writer.context());
  if (context == nullptr) {
    throw_failure({.code = Code::invalid_argument, .message = "an RRef can be sent only in a call or its result"});
  }
  if (&context->host != reference->host.get()) {
    throw_failure({.code = Code::invalid_argument,
                   .message = fmt::format("this RRef belongs to {}: another worker of the same process cannot send it",
                                          reference->host->name())});
  }
  if (const Failure* failure = reference->failure()) throw_failure(*failure);
  if (!context->cargo) context->cargo = std::make_shared<ReferenceCargo>(reference->references);
  const size_t index = static_cast<ReferenceCargo&>(*context->cargo).add(reference);
  const std::array<uint8_t, 4> bytes = {static_cast<uint8_t>(index >> 24), static_cast<uint8_t>(index >> 16),
                                        static_cast<uint8_t>(index >> 8), static_cast<uint8_t>(index)};
  writer.extension(kRRefExtension, bytes);
}

ReferencePtr decode_reference(wire::Reader& reader) {
  if (reader.try_nil()) return nullptr;
  const ByteView bytes = reader.extension(kRRefExtension);
  if (!reader.ok()) return nullptr;
  auto* context = dynamic_cast<ReceiveContext*>(reader.context());
  auto* arrived = context != nullptr ? dynamic_cast<ArrivedReferences*>(context->cargo) : nullptr;
  ReferencePtr reference;
  if (bytes.size() == 4 && arrived != nullptr) {
    reference = arrived->take(uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3]);
  }
  if (!reference) reader.fail("a reference that did not come with the message");
  return reference;
}

}  // namespace holdfast::rref_detail
