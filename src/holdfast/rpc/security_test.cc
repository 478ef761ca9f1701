// Workers that have a secret or certificates: calls, cuts, strangers, and those that do not belong.
#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/rpc/proxy_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/transport/tls_test_support.h>

namespace holdfast::security_test {
namespace {

using namespace test;

Bytes turned(Bytes bytes) {
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}
int64_t doubled(int64_t value) { return value * 2; }

const Security kSecret{.mode = SecurityMode::secret, .secret = Secret("the secret of this job")};
const Security kLocal{.secret = Secret("the secret of this job")};

Bytes numbered(size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(i * 31 + (i >> 9));
  return out;
}

void call_both_ways(Worker& a, Worker& b, int count, size_t bytes) {
  for (int i = 0; i < count; ++i) {
    Bytes payload = numbered(bytes);
    for (Worker* from : {&a, &b}) {
      const Bytes back = from->peer(from == &a ? 1 : 0).call<turned>(payload);
      EXPECT_TRUE(back == turned(payload)) << i;
    }
  }
}

std::vector<std::unique_ptr<Worker>> join_two(TestCoordinator& coordinator, bool shared_memory) {
  Options first = coordinator.options(0), second = coordinator.options(1);
  first.shared_memory = second.shared_memory = shared_memory;
  return join({first, second});
}

TEST(SecurityOfWorkers, LargeAndSmallCallsBothWays) {
  TestFolder folder;
  const TestAuthority authority(folder, "ca");
  for (const Security& security : {kSecret, kLocal, authority.worker("node")}) {
    for (const bool shared_memory : {false, true}) {
      TestCoordinator coordinator(2, 30s, "test", security);
      auto workers = join_two(coordinator, shared_memory);
      call_both_ways(*workers[0], *workers[1], 2, test::kSanitizer ? 1 << 20 : 8 << 20);
      call_both_ways(*workers[0], *workers[1], 200, 64);
      for (const auto& worker : workers) EXPECT_EQ(worker->stats().shared_memory, shared_memory ? 1u : 0u);
      shut_down({workers[0].get(), workers[1].get()});
    }
  }
}

// Many threads call at once: they read, write and help on one connection.
void call_from_many_threads(bool shared_memory) {
  TestCoordinator coordinator(2, 30s, "test", kSecret);
  auto workers = join_two(coordinator, shared_memory);
  std::vector<std::function<void()>> callers;
  for (int side = 0; side < 2; ++side) {
    for (int64_t thread = 0; thread < 3; ++thread) {
      callers.emplace_back([&, side, thread] {
        Peer peer = workers[static_cast<size_t>(side)]->peer(1 - side);
        for (int64_t i = 0; i < 200; ++i) {
          if (peer.call<doubled>(thread * 1000 + i) != 2 * (thread * 1000 + i)) throw std::logic_error("wrong");
          if (i % 50 == 0 && peer.call<turned>(numbered(300'000)).size() != 300'000) throw std::logic_error("wrong");
        }
      });
    }
  }
  EXPECT_NO_THROW(run_together(callers));
  shut_down({workers[0].get(), workers[1].get()});
}

TEST(SecurityOfWorkers, ManyThreadsOnOneConnection) { call_from_many_threads(false); }
TEST(SecurityOfWorkers, ManyThreadsOnSharedMemory) { call_from_many_threads(true); }

TEST(SecurityOfWorkers, ConnectionsAreMadeAgainAfterCuts) {
  for (const Security& security : {kSecret, kLocal}) {
    TestCoordinator coordinator(2, 30s, "test", security);
    std::vector<std::unique_ptr<Proxy>> proxies;
    std::vector<Options> all;
    for (int rank = 0; rank < 2; ++rank) {
      Options options = coordinator.options(rank);
      options.port_first = free_port();
      proxies.push_back(
          std::make_unique<Proxy>("127.0.0.1:" + std::to_string(options.port_first), static_cast<uint64_t>(rank) + 5));
      options.advertise = proxies.back()->address();
      all.push_back(options);
    }
    auto workers = join(all);
    for (auto& proxy : proxies) proxy->cut_after_bytes(3 << 20);
    call_both_ways(*workers[0], *workers[1], 10, 1 << 20);
    EXPECT_GE(proxies[0]->cuts() + proxies[1]->cuts(), 1);
    for (auto& proxy : proxies) proxy->cut_after_bytes(0);
    shut_down({workers[0].get(), workers[1].get()});
  }
}

TEST(SecurityOfWorkers, WhoDoesNotBelongIsNotLetIn) {
  TestCoordinator coordinator(1, 30s, "test", kSecret);
  const std::pair<Security, std::string> cases[] = {
      {{.mode = SecurityMode::secret, .secret = Secret("the secret of another job")}, "another secret"},
      {{.mode = SecurityMode::plain}, ""},
  };
  for (const auto& [security, part] : cases) {
    Options options = coordinator.options(0);
    options.security = security;
    options.join_timeout = 300ms;
    EXPECT_CONTAINS(expect_throw<Timeout>([&] { Worker worker(options); }).what(), part);
  }
  EXPECT_EQ(coordinator.server().member_count(), 0u);
  Worker worker(coordinator.options(0));  // and nobody else was disturbed
  worker.shutdown();
}

TEST(SecurityOfWorkers, IdleStrangersDoNotDisturbCalls) {
  TestCoordinator coordinator(2, 30s, "test", kSecret);
  auto workers = join({coordinator.options(0), coordinator.options(1)});
  Peer peer = workers[0]->peer(1);
  std::vector<Socket> idle;
  for (int64_t i = 0; i < 300; ++i) {
    idle.push_back(Socket::connect(workers[1]->info().address));
    idle.push_back(Socket::connect(coordinator.address()));
    EXPECT_EQ(peer.call<doubled>(i), 2 * i);
  }
  EXPECT_TRUE(idle[0].wait_for_close());
  EXPECT_TRUE(idle[1].wait_for_close());
  shut_down({workers[0].get(), workers[1].get()});
}

}  // namespace
}  // namespace holdfast::security_test
