#include <holdfast/transport/doorkeeper.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include <holdfast/transport/tcp_connection.h>

namespace holdfast {

namespace {

// More kinds of refusals than this are not told apart any more.
constexpr size_t kToldMax = 256;

void to_stderr(const std::string& line) { std::fprintf(stderr, "holdfast: %s\n", line.c_str()); }

}  // namespace

Doorkeeper::Doorkeeper(size_t strangers_max, Duration patience, Log log)
    : strangers_max_(strangers_max), patience_(patience), log_(log ? std::move(log) : to_stderr) {}

bool Doorkeeper::is_settled(const Waiting& waiting) {
  const Connection connection = waiting.connection.lock();
  return !connection || connection->proved();
}

void Doorkeeper::drop_settled() { std::erase_if(waiting_, is_settled); }

std::vector<Doorkeeper::Connection> Doorkeeper::admit(const Connection& stranger, Time now) {
  std::vector<Connection> crowded_out;
  // Looked through only when it is long, so a stranger costs little.
  if (waiting_.size() >= strangers_max_) drop_settled();
  size_t strangers = 0;
  for (const Waiting& waiting : waiting_) strangers += waiting.is_stranger ? 1 : 0;
  for (auto at = waiting_.begin(); at != waiting_.end() && strangers >= strangers_max_;) {
    if (!at->is_stranger) {
      ++at;
      continue;
    }
    if (Connection connection = at->connection.lock()) crowded_out.push_back(std::move(connection));
    at = waiting_.erase(at);
    --strangers;
  }
  waiting_.push_back({after(now, patience_), true, stranger});
  return crowded_out;
}

void Doorkeeper::watch(const Connection& dialled, Time now) {
  if (waiting_.size() >= 2 * strangers_max_) drop_settled();
  waiting_.push_back({after(now, patience_), false, dialled});
}

std::vector<Doorkeeper::Connection> Doorkeeper::take_late(Time now) {
  std::vector<Connection> late;
  while (!waiting_.empty() && (waiting_.front().until <= now || is_settled(waiting_.front()))) {
    Connection connection = waiting_.front().connection.lock();
    if (connection && !connection->proved()) late.push_back(std::move(connection));
    waiting_.pop_front();
  }
  return late;
}

void Doorkeeper::tell_refused(const std::string& address, const std::string& cause) {
  // A host comes from another port each time.
  const std::string host = address.substr(0, address.rfind(':'));
  const std::lock_guard lock(told_mutex_);
  if (told_.size() > kToldMax || !told_.emplace(host, cause).second) return;
  if (told_.size() > kToldMax) return log_("more connections were refused; no more is said about that");
  log_(fmt::format("refused: {} {} (told once for each host and reason)", address, cause));
}

}  // namespace holdfast
