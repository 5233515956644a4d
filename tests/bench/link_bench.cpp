// SPDX-License-Identifier: Apache-2.0
// One end of a link that the system limits: stage 0 sends messages, stage 1 receives them; stage 0
// prints the bandwidth that the link's counters tell. With a period, a message starts only that
// often, as in a pipeline that computes; with a late receiver, stage 1 grants its slots late.
// With a number of connections (0: chosen by measuring) it prints the bandwidth of the second half.
// CONTROL: of congestion, of the link; by default the kernel's.
//   link_bench STAGE OWN_IP PEER_IP PORT BYTES MESSAGES PERIOD_MS LATE_MS [CONNECTIONS [CONTROL]]
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "worker/base/units.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace {

using namespace weir;
using namespace weir::transport;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kWindow = 3;

struct Setting {
  int stage = 0;
  std::string own, peer;
  int port = 0;
  std::size_t bytes = 0;
  int messages = 0;
  std::chrono::milliseconds period{0}, late{0};
  std::optional<int> connections;
  std::string control;
};

bool next(Communicator& rank) {
  const auto completion = rank.wait(Clock::now() + 60s, {});
  if (completion && completion->kind != Completion::Kind::kFailed) return true;
  std::fprintf(stderr, "link_bench: %s\n",
               completion ? completion->reason.c_str() : "nothing came");
  return false;
}

device::Buffer make_buffer(std::size_t bytes) {
  return {std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>()),
          bytes};
}

bool receive(const Setting& setting, Communicator& rank) {
  const LinkEnd end{.peer_stage = 0, .channel = Channel::kForward, .sending = false};
  const device::Buffer buffer = make_buffer(setting.bytes);
  int posted = 0;
  while (posted < std::min(kWindow, setting.messages)) {
    rank.receive(end, buffer, setting.bytes);
    ++posted;
  }
  for (int done = 0; done < setting.messages; ++done) {
    if (!next(rank)) return false;
    std::this_thread::sleep_for(setting.late);
    if (posted++ < setting.messages) rank.receive(end, buffer, setting.bytes);
  }
  return true;
}

// half: the counters when half of the messages were there.
bool send(const Setting& setting, Communicator& rank, LinkCounters& half) {
  const LinkEnd end{.peer_stage = 1, .channel = Channel::kForward, .sending = true};
  const device::Buffer buffer = make_buffer(setting.bytes);
  const auto begin = Clock::now();
  int posted = 0;
  for (int done = 0; done < setting.messages; ++done) {
    while (posted < setting.messages && posted - done < kWindow) {
      std::this_thread::sleep_until(begin + posted * setting.period);
      rank.send(end, buffer, setting.bytes);
      ++posted;
    }
    if (!next(rank)) return false;
    if (done == setting.messages / 2) half = rank.reports().at(0).counters;
  }
  return true;
}

double megabits(const LinkCounters& counters, const LinkCounters& before = {}) {
  const double busy = to_seconds(counters.busy - before.busy);
  return busy > 0 ? static_cast<double>(counters.bytes - before.bytes) * 8 / 1e6 / busy : 0;
}

void print(const LinkCounters& counters, std::chrono::nanoseconds took) {
  const double busy = to_seconds(counters.busy);
  std::printf(
      "%.2f Mbit/s by the counters (%.1f of %lld MB in %.3f s busy; %.3f s in all, "
      "credit wait %.3f s, rtt %.3f ms)\n",
      megabits(counters), static_cast<double>(counters.bytes) / 1e6,
      static_cast<long long>(counters.transfers), busy, to_seconds(took),
      to_seconds(counters.credit_wait), counters.rtt_seconds * 1e3);
}

int run(const Setting& setting) {
  auto transport = make_tcp_transport({.listen_ip = setting.own,
                                       .data_port = setting.port,
                                       .connections = setting.connections.value_or(1),
                                       .congestion_control = setting.control});
  if (!transport) {
    std::fprintf(stderr, "link_bench: %s\n", transport.error().message.c_str());
    return 1;
  }
  Generation generation{.job_uid = "bench", .job_key = "key", .stage = setting.stage};
  (setting.stage == 0 ? generation.next : generation.previous) =
      PeerAddress{.stage = 1 - setting.stage, .ip = setting.peer, .data_port = setting.port};
  auto connected = (*transport)->connect(generation, Clock::now() + 30s, {});
  if (!connected) {
    std::fprintf(stderr, "link_bench: %s\n", connected.error().message.c_str());
    return 1;
  }
  Communicator& rank = **connected;
  if (setting.stage == 1) return receive(setting, rank) ? 0 : 1;
  const auto begin = Clock::now();
  LinkCounters half;
  if (!send(setting, rank, half)) return 1;
  const LinkCounters counters = rank.reports().at(0).counters;
  if (!setting.connections) {
    print(counters, Clock::now() - begin);
    return 0;
  }
  const ConnectionProbes& probes = counters.connection_probes;
  std::printf("%.1f Mbit/s on %d connections (raised %lld, kept %lld, shared %lld)\n",
              megabits(counters, half), counters.connections, static_cast<long long>(probes.raised),
              static_cast<long long>(probes.kept), static_cast<long long>(probes.shared));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9 || argc > 11) {
    std::fprintf(stderr,
                 "usage: link_bench STAGE OWN_IP PEER_IP PORT BYTES MESSAGES PERIOD_MS LATE_MS "
                 "[CONNECTIONS [CONTROL]]\n");
    return 2;
  }
  return run({.stage = std::atoi(argv[1]),
              .own = argv[2],
              .peer = argv[3],
              .port = std::atoi(argv[4]),
              .bytes = static_cast<std::size_t>(std::atoll(argv[5])),
              .messages = std::atoi(argv[6]),
              .period = std::chrono::milliseconds(std::atoi(argv[7])),
              .late = std::chrono::milliseconds(std::atoi(argv[8])),
              .connections = argc > 9 ? std::optional(std::atoi(argv[9])) : std::nullopt,
              .control = argc > 10 ? argv[10] : ""});
}
