// SPDX-License-Identifier: Apache-2.0
// The TCP transport against a raw pair of blocking sockets, between two processes over loopback:
// same messages, same SO_SNDBUF, TCP_NODELAY, one connection per direction, alternating rounds.
// Prints medians and spread. Stream: from the first send until the peer has confirmed the last
// message. Round trip: a message there and one of the same size back. A third argument, a number of
// connections: the transport with so many against itself with one. A longer file than usual: both
// ends of both candidates are best read side by side.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "worker/base/check.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace {

using namespace weir;
using namespace weir::transport;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kSendBuffer = 128 * 1024;
constexpr auto kLimit = 60s;

struct Case {
  std::size_t bytes;
  int stream_messages;  // of one round
  int round_trips;
  int window;  // sends not confirmed yet, and receives posted
};
constexpr std::array kCases{Case{4, 20'000, 2'000, 64}, Case{65'536, 4'000, 1'000, 8},
                            Case{1'000'000, 600, 200, 4}, Case{17'000'000, 40, 12, 4}};

device::Buffer make_buffer(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
  std::memset(memory, 1, bytes);  // mapped before the clock runs
  return {std::shared_ptr<std::byte>(
              memory, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); }),
          bytes};
}

void write_all(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::send(fd, at, bytes, MSG_NOSIGNAL);
    WEIR_CHECK(count > 0, "raw send");
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

void read_all(int fd, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::recv(fd, at, bytes, 0);
    WEIR_CHECK(count > 0, "raw recv");
    at += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

// One of the two processes. The control socket keeps them in step.
struct Side {
  bool first = true;
  int control = -1;

  void meet() const {
    char byte = 'x';
    write_all(control, &byte, 1);
    read_all(control, &byte, 1);
  }
  int exchange(int value) const {
    int other = 0;
    write_all(control, &value, sizeof value);
    read_all(control, &other, sizeof other);
    return other;
  }
};

class Pair {
 public:
  virtual ~Pair() = default;
  // The first process sends `count` messages, the second takes them and confirms the last.
  virtual void stream(const Case& c) = 0;
  virtual void round_trips(const Case& c) = 0;
};

class RawPair final : public Pair {
 public:
  explicit RawPair(const Side& side) : side_(side) {
    const int forward = connected(side.first);
    const int backward = connected(!side.first);
    out_ = side.first ? forward : backward;
    in_ = side.first ? backward : forward;
  }
  ~RawPair() override {
    ::close(out_);
    ::close(in_);
  }
  RawPair(const RawPair&) = delete;
  RawPair& operator=(const RawPair&) = delete;

  void stream(const Case& c) override {
    prepare(c);
    for (int i = 0; i < c.stream_messages; ++i) {
      std::byte* data = buffers_[static_cast<std::size_t>(i % c.window)].data();
      if (side_.first) {
        write_all(out_, data, c.bytes);
      } else {
        read_all(in_, data, c.bytes);
      }
    }
    char confirmation = 0;
    if (side_.first) {
      read_all(in_, &confirmation, 1);
    } else {
      write_all(out_, &confirmation, 1);
    }
  }

  void round_trips(const Case& c) override {
    prepare(c);
    for (int i = 0; i < c.round_trips; ++i) {
      if (side_.first) write_all(out_, buffers_[0].data(), c.bytes);
      read_all(in_, buffers_[1].data(), c.bytes);
      if (!side_.first) write_all(out_, buffers_[0].data(), c.bytes);
    }
  }

 private:
  // The process that sends over it listens.
  int connected(bool listening) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    if (listening) {
      ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
      ::listen(fd, 1);
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
      side_.exchange(ntohs(address.sin_port));
      const int accepted = ::accept(fd, nullptr, nullptr);
      ::close(fd);
      fd = accepted;
    } else {
      address.sin_port = htons(static_cast<std::uint16_t>(side_.exchange(0)));
      WEIR_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0, "raw connect");
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    return fd;
  }

  void prepare(const Case& c) {
    if (!buffers_.empty() && buffers_[0].size() == c.bytes) return;
    buffers_.clear();
    for (int i = 0; i < c.window; ++i) buffers_.push_back(make_buffer(c.bytes));
  }

  const Side side_;
  int out_ = -1;
  int in_ = -1;
  std::vector<device::Buffer> buffers_;
};

class WeirPair final : public Pair {
 public:
  WeirPair(const Side& side, int connections) : side_(side) {
    auto transport =
        make_tcp_transport({.listen_ip = "127.0.0.1", .data_port = 0, .connections = connections});
    WEIR_CHECK(transport.ok(), "transport");
    transport_ = *std::move(transport);
    const int port = side.exchange(transport_->data_port());
    Generation generation{.job_uid = "bench", .job_key = "key", .stage = side.first ? 0 : 1};
    const PeerAddress peer{
        .stage = side.first ? 1 : 0, .ip = "127.0.0.1", .data_port = port, .node = "local"};
    (side.first ? generation.next : generation.previous) = peer;
    auto connected = transport_->connect(generation, Clock::now() + kLimit, {});
    WEIR_CHECK(connected.ok(), "connect");
    ranks_ = *std::move(connected);
    out_ = {.peer_stage = peer.stage,
            .channel = side.first ? Channel::kForward : Channel::kBackward,
            .sending = true};
    in_ = {.peer_stage = peer.stage,
           .channel = side.first ? Channel::kBackward : Channel::kForward,
           .sending = false};
  }

  void stream(const Case& c) override {
    prepare(c);
    const auto post = [&](int i) {
      const device::Buffer& buffer = buffers_[static_cast<std::size_t>(i % c.window)];
      if (side_.first) {
        ranks_->send(out_, buffer, c.bytes);
      } else {
        ranks_->receive(in_, buffer, c.bytes);
      }
    };
    int posted = 0;
    while (posted < c.window) post(posted++);
    for (int done = 0; done < c.stream_messages; ++done) {
      next();
      if (posted < c.stream_messages) post(posted++);
    }
  }

  void round_trips(const Case& c) override {
    prepare(c);
    for (int i = 0; i < c.round_trips; ++i) {
      ranks_->receive(in_, buffers_[1], c.bytes);
      if (side_.first) ranks_->send(out_, buffers_[0], c.bytes);
      while (next().kind != Completion::Kind::kReceived) {
      }
      if (!side_.first) ranks_->send(out_, buffers_[0], c.bytes);
    }
    // All confirmations of this round, before the next one counts its own.
    for (; sent_ < c.round_trips;) next();
    sent_ = 0;
  }

 private:
  Completion next() {
    auto completion = ranks_->wait(Clock::now() + kLimit, {});
    WEIR_CHECK(completion && completion->kind != Completion::Kind::kFailed, "a completion");
    if (completion->kind == Completion::Kind::kSent) ++sent_;
    return *std::move(completion);
  }

  void prepare(const Case& c) {
    sent_ = 0;
    if (!buffers_.empty() && buffers_[0].size() == c.bytes) return;
    buffers_.clear();
    for (int i = 0; i < c.window; ++i) buffers_.push_back(make_buffer(c.bytes));
  }

  const Side side_;
  std::unique_ptr<TcpTransport> transport_;
  std::unique_ptr<Communicator> ranks_;
  LinkEnd out_, in_;
  std::vector<device::Buffer> buffers_;
  int sent_ = 0;
};

struct Figures {
  double median = 0, low = 0, high = 0;  // low, high: 10 % and 90 %
};

Figures figures(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

double seconds_of(const Side& side, const std::function<void()>& run) {
  side.meet();
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void print_row(const Case& c, const char* what, const char* unit, const Figures& raw,
               const Figures& ours, double ratio) {
  std::printf("| %10zu | %-10s | %10.2f (%.2f..%.2f) %s | %10.2f (%.2f..%.2f) %s | %.3f |\n",
              c.bytes, what, raw.median, raw.low, raw.high, unit, ours.median, ours.low, ours.high,
              unit, ratio);
  std::fflush(stdout);
}

void measure(const Side& side, const Case& c, int rounds, Pair& raw, Pair& ours) {
  std::vector<double> raw_rate, our_rate, raw_trip, our_trip;
  const double total = static_cast<double>(c.bytes) * c.stream_messages;
  for (int i = -1; i < rounds; ++i) {  // the first one warms up
    const double a = seconds_of(side, [&] { raw.stream(c); });
    const double b = seconds_of(side, [&] { ours.stream(c); });
    const double t = seconds_of(side, [&] { raw.round_trips(c); });
    const double u = seconds_of(side, [&] { ours.round_trips(c); });
    if (i < 0) continue;
    raw_rate.push_back(total / a / 1e6);
    our_rate.push_back(total / b / 1e6);
    raw_trip.push_back(t / c.round_trips * 1e6);
    our_trip.push_back(u / c.round_trips * 1e6);
  }
  if (!side.first) return;
  const Figures ra = figures(raw_rate), rb = figures(our_rate);
  print_row(c, "stream", "MB/s", ra, rb, rb.median / ra.median);
  const Figures ta = figures(raw_trip), tb = figures(our_trip);
  print_row(c, "round trip", "us", ta, tb, tb.median / ta.median);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const std::size_t only = argc > 2 ? static_cast<std::size_t>(std::atoll(argv[2])) : 0;
  const int connections = argc > 3 ? std::clamp(std::atoi(argv[3]), 0, kMostConnections) : 0;
  std::array<int, 2> control{};
  WEIR_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, control.data()) == 0, "socketpair");
  const pid_t child = ::fork();
  const Side side{.first = child != 0, .control = control[child != 0 ? 0 : 1]};
  {
    std::unique_ptr<Pair> other;
    if (connections == 0) {
      other = std::make_unique<RawPair>(side);
    } else {
      other = std::make_unique<WeirPair>(side, 1);
    }
    WeirPair ours(side, std::max(1, connections));
    if (side.first) {
      std::printf("| bytes | what | %s: median (10 %%..90 %%) | weir | ratio |\n",
                  connections == 0 ? "raw socket pair" : "one connection");
      std::printf("|---|---|---|---|---|\n");
    }
    for (const Case& c : kCases) {
      if (only == 0 || only == c.bytes) measure(side, c, rounds, *other, ours);
    }
    side.meet();
  }
  if (!side.first) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
