// A peer for ./bench peers: gRPC, callback API.
#include <grpcpp/grpcpp.h>

#include <future>
#include <mutex>

#include "echo.grpc.pb.h"
#include "rounds.h"

namespace {

class Service final : public peer::Echo::CallbackService {
  grpc::ServerUnaryReactor* Back(grpc::CallbackServerContext* context, const peer::Blob* in, peer::Blob* out) override {
    out->set_data(in->data());
    return done(context);
  }
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context, const peer::Blob* in, peer::Size* out) override {
    out->set_bytes(in->data().size());
    return done(context);
  }
  static grpc::ServerUnaryReactor* done(grpc::CallbackServerContext* context) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

void serve(const std::function<void(uint16_t)>& say_port) {
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  say_port(static_cast<uint16_t>(port));
  server->Wait();
}

class GrpcRounds final : public holdfast::bench::Rounds {
 public:
  explicit GrpcRounds(uint16_t port) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = peer::Echo::NewStub(
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
  }

  double latency_us(size_t bytes, size_t count) override {
    const auto request = blob(bytes);
    return holdfast::bench::median_us(count, [&] {
      std::promise<void> done;
      Call<peer::Blob> call;
      stub_->async()->Back(&call.context, &request, &call.reply, [&](const grpc::Status& status) {
        check(status);
        done.set_value();
      });
      done.get_future().wait();
    });
  }
  double calls_per_second(size_t bytes, size_t count, size_t in_flight) override {
    return static_cast<double>(count) / many<peer::Blob>(bytes, count, in_flight, [this](auto&... arguments) {
             stub_->async()->Back(arguments...);
           });
  }
  double gigabytes_per_second(size_t bytes, size_t count, size_t in_flight) override {
    return static_cast<double>(bytes * count) / 1e9 /
           many<peer::Size>(bytes, count, in_flight,
                            [this](auto&... arguments) { stub_->async()->Take(arguments...); });
  }

 private:
  template <class Reply>
  struct Call {
    grpc::ClientContext context;
    Reply reply;
  };

  static peer::Blob blob(size_t bytes) {
    peer::Blob request;
    request.set_data(std::string(bytes, 'x'));
    return request;
  }
  static void check(const grpc::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.error_message());
  }

  // Each call that ends starts another. Answers the seconds.
  template <class Reply, class Start>
  double many(size_t bytes, size_t count, size_t in_flight, Start start) {
    const auto request = blob(bytes);
    std::mutex mutex;
    size_t started = 0, ended = 0;
    std::promise<void> all;
    std::function<void()> next = [&] {
      {
        const std::lock_guard lock(mutex);
        if (started == count) return;
        ++started;
      }
      auto* call = new Call<Reply>;
      auto* context = &call->context;
      auto* in = &request;
      auto* out = &call->reply;
      std::function<void(grpc::Status)> done = [&, call](const grpc::Status& status) {
        check(status);
        delete call;
        next();
        const std::lock_guard lock(mutex);
        if (++ended == count) all.set_value();
      };
      start(context, in, out, done);
    };
    return holdfast::bench::seconds_of([&] {
      for (size_t i = 0; i < in_flight; ++i) next();
      all.get_future().wait();
    });
  }

  std::unique_ptr<peer::Echo::Stub> stub_;
};

}  // namespace

int main() {
  const uint16_t port = holdfast::bench::start_server(serve);
  GrpcRounds rounds(port);
  return holdfast::bench::answer(rounds);
}
