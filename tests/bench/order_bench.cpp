// SPDX-License-Identifier: Apache-2.0
// Tensors beside bulk on one port: a hub process has a link and a group with OTHERS more replicas,
// which a far process holds, or moves state to or from it ("move"). The link carries a message each
// period, the bulk goes on without pause; both leave the hub (out) or come to it (in) through its
// port, which the caller limits. The sender of the link prints how long messages took, and it or
// the one that fetches what the bulk got.
//   order_bench hub|far out|in OWN_IP PEER_IP OTHERS|move yes|no BYTES MESSAGES PERIOD_MS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/base/units.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace {

using namespace weir;
using namespace weir::transport;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kPort = 7100;  // of the hub, and of the far end of the link; then those of replicas
constexpr std::size_t kNumbers = 125'000;  // of a sum
constexpr int kWindow = 3;
constexpr int kWarmUp = 5;  // messages that are not counted: nothing is known of the port yet

struct Setting {
  bool hub = false, out = false, order = false;
  std::string own, peer;
  int others = 0;
  bool moves = false;
  std::size_t bytes = 0;
  int messages = 0;
  std::chrono::milliseconds period{0};
};

template <class T>
T or_die(Result<T> result, const char* what) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "order_bench: %s: %s\n", what, result.error().message.c_str());
  std::exit(1);
}

std::unique_ptr<TcpTransport> transport(const Setting& setting, int port) {
  return or_die(make_tcp_transport(
                    {.listen_ip = setting.own, .data_port = port, .order_traffic = setting.order}),
                "data port");
}

// A replica that adds without pause.
class Adder {
 public:
  Adder(const Setting& setting, TcpTransport& transport, int replica) : replica_(replica) {
    ReplicaGroupGeneration group{
        .job_uid = "bench", .job_key = "key", .revision = 1, .replica = replica, .stage = 9};
    for (int r = 0; r <= setting.others; ++r) {
      members_.push_back(r);
      if (r == replica) continue;
      const bool here = setting.hub == (r == 0);
      group.others.push_back({.replica = r,
                              .ip = here ? setting.own : setting.peer,
                              .data_port = r == 0 ? kPort : kPort + r});
    }
    connecting_ = std::async(std::launch::async, [group, &transport] {
      return or_die(transport.connect_replica_group(group, Clock::now() + 30s, {}), "group");
    });
  }
  void start() {
    group_ = connecting_.get();
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Adder() {
    thread_.request_stop();
    if (group_) group_->abort("the bench is over");
  }
  std::int64_t sent() const { return group_->counters().bytes_sent; }
  std::int64_t received() const {
    std::int64_t bytes = 0;
    for (const auto& [from, one] : group_->counters().received) bytes += one.bytes;
    return bytes;
  }

 private:
  void run(const std::stop_token& stop) {
    std::vector<double> in(kNumbers, 0.3);
    std::vector<float> out(kNumbers);
    for (std::uint64_t step = 1; !stop.stop_requested(); ++step) {
      group_->all_reduce({.tag = {.step = step},
                          .members = members_,
                          .count = kNumbers,
                          .in = std::as_bytes(std::span(in)),
                          .out = std::as_writable_bytes(std::span(out)),
                          .combine = sum_doubles_to_floats()});
      const auto done = group_->wait(Clock::now() + 600s, stop);
      if (!done || !*done) break;
    }
    // The memory of the sums must last as long as they.
    group_->abort("the bench is over");
  }

  const int replica_;
  std::vector<int> members_;
  std::future<std::unique_ptr<Collective>> connecting_;
  std::unique_ptr<Collective> group_;
  std::jthread thread_;
};

// State that moves again and again, from where the port is left to where it is not.
class Mover {
 public:
  Mover(const Setting& setting, TcpTransport& transport)
      : setting_(setting),
        transport_(transport),
        layer_{.layer = 0, .parts = {std::span(memory_)}} {
    if (setting.hub == setting.out) {
      transport.state().offer(kKey, {layer_});
    } else {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }
  }
  ~Mover() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    std::printf("    the move: %.1f Mbit/s\n", moved_ * 8 / 1e6 / seconds_);
  }

 private:
  void run(const std::stop_token& stop) {
    const auto begin = Clock::now();
    while (!stop.stop_requested()) {
      const PeerAddress from{
          .stage = 0, .ip = setting_.peer, .data_port = setting_.hub ? kPort + 1 : kPort};
      const auto bytes = transport_.state().fetch(kKey, {{.from = from, .layers = {layer_}}},
                                                  Clock::now() + 600s, stop);
      if (!bytes) return;
      moved_ += static_cast<double>(*bytes);
      seconds_ = to_seconds(Clock::now() - begin);
    }
  }

  inline static const StateKey kKey{
      .job_uid = "bench", .job_key = "key", .revision = 1, .incarnation = 0, .step = 1};
  const Setting setting_;
  TcpTransport& transport_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{2} << 20U);
  const LayerMemory layer_;
  double moved_ = 0, seconds_ = 1;
  std::jthread thread_;
};

device::Buffer make_buffer(std::size_t bytes) {
  return {std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>()),
          bytes};
}

// Milliseconds that each message took.
std::vector<double> send(const Setting& setting, Communicator& rank, const LinkEnd& end) {
  const device::Buffer buffer = make_buffer(setting.bytes);
  std::vector<double> times;
  const auto begin = Clock::now();
  for (int i = 0; i < setting.messages + kWarmUp; ++i) {
    std::this_thread::sleep_until(begin + i * setting.period);
    rank.send(end, buffer, setting.bytes);
    const auto sent = rank.wait(Clock::now() + 60s, {});
    if (!sent || sent->kind == Completion::Kind::kFailed) {
      std::fprintf(stderr, "order_bench: %s\n", sent ? sent->reason.c_str() : "nothing came");
      std::exit(1);
    }
    if (i >= kWarmUp)
      times.push_back(1e3 * to_seconds(sent->transfer->end - sent->transfer->begin));
  }
  std::ranges::sort(times);
  return times;
}

void receive(const Setting& setting, Communicator& rank, const LinkEnd& end) {
  const device::Buffer buffer = make_buffer(setting.bytes);
  for (int i = 0; i < kWindow; ++i) rank.receive(end, buffer, setting.bytes);
  for (;;) {  // until the sender goes
    const auto came = rank.wait(Clock::now() + 60s, {});
    if (!came || came->kind == Completion::Kind::kFailed) return;
    rank.receive(end, buffer, setting.bytes);
  }
}

int run(const Setting& setting) {
  const auto link = transport(setting, kPort);
  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<std::unique_ptr<Adder>> adders;
  // The sender is stage 0.
  const bool sends = setting.hub == setting.out;
  Generation generation{
      .job_uid = "bench", .job_key = "key", .revision = 1, .stage = sends ? 0 : 1};
  (sends ? generation.next : generation.previous) =
      PeerAddress{.stage = sends ? 1 : 0, .ip = setting.peer, .data_port = kPort};
  const auto rank = or_die(link->connect(generation, Clock::now() + 30s, {}), "link");
  if (setting.others > 0 && setting.hub) {
    adders.push_back(std::make_unique<Adder>(setting, *link, 0));
  }
  for (int r = 1; r <= setting.others && !setting.hub; ++r) {
    transports.push_back(transport(setting, kPort + r));
    adders.push_back(std::make_unique<Adder>(setting, *transports.back(), r));
  }
  for (const auto& one : adders) one->start();
  if (setting.moves && !setting.hub) transports.push_back(transport(setting, kPort + 1));
  std::optional<Mover> mover;
  if (setting.moves) mover.emplace(setting, setting.hub ? *link : *transports.back());
  const LinkEnd end{.peer_stage = sends ? 1 : 0, .channel = Channel::kForward, .sending = sends};
  if (!sends) {
    receive(setting, *rank, end);
    return 0;
  }
  const auto begin = Clock::now();
  const std::vector<double> times = send(setting, *rank, end);
  const double seconds = to_seconds(Clock::now() - begin);
  // What passed the port: all that the hub sent, or what the far replicas sent to it.
  double bytes = 0;
  for (const auto& one : adders) {
    bytes += setting.hub ? static_cast<double>(one->sent())
                         : static_cast<double>(one->sent()) / setting.others;
  }
  std::printf("%.1f ms, 90 %% within %.1f; sums %.1f Mbit/s\n", times[times.size() / 2],
              times[times.size() * 9 / 10], bytes * 8 / 1e6 / seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(
        stderr,
        "usage: order_bench hub|far out|in OWN_IP PEER_IP OTHERS|move yes|no BYTES MESSAGES "
        "PERIOD_MS\n");
    return 2;
  }
  return run({.hub = argv[1] == std::string("hub"),
              .out = argv[2] == std::string("out"),
              .order = argv[6] == std::string("yes"),
              .own = argv[3],
              .peer = argv[4],
              .others = std::atoi(argv[5]),
              .moves = argv[5] == std::string("move"),
              .bytes = static_cast<std::size_t>(std::atoll(argv[7])),
              .messages = std::atoi(argv[8]),
              .period = std::chrono::milliseconds(std::atoi(argv[9]))});
}
