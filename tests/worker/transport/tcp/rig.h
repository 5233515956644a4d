// SPDX-License-Identifier: Apache-2.0
// A pipeline of ranks in one process: a TcpTransport of its own for each, connected over loopback.
#pragma once

#include <cstring>
#include <future>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::test {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

inline Time soon(std::chrono::nanoseconds time = 30s) {
  return std::chrono::steady_clock::now() + time;
}

inline device::Buffer make_buffer(std::size_t bytes) {
  // An empty message has a buffer too.
  auto* memory = static_cast<std::byte*>(::operator new(bytes + 1, std::align_val_t(64)));
  return {std::shared_ptr<std::byte>(
              memory, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); }),
          bytes};
}

// Contents that depend on the seed at every byte.
inline device::Buffer pattern(std::size_t bytes, std::uint64_t seed) {
  device::Buffer buffer = make_buffer(bytes);
  Random random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t value = random.next();
    std::memcpy(buffer.data() + i, &value, std::min<std::size_t>(8, bytes - i));
  }
  return buffer;
}

inline bool equal(const device::Buffer& a, const device::Buffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

inline std::unique_ptr<TcpTransport> make_transport(TcpOptions options = {}) {
  options.listen_ip = "127.0.0.1";
  options.data_port = 0;
  auto transport = make_tcp_transport(options);
  EXPECT_TRUE(transport) << (transport ? "" : transport.error().message);
  return *std::move(transport);
}

// A port that answers nobody, as one behind a broken network: its queue of connections is full.
class SilentPort {
 public:
  SilentPort() {
    sockaddr_in any{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_, 0), 0);
    socklen_t size = sizeof any;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    port_ = ntohs(any.sin_port);
    EXPECT_EQ(::connect(waits_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  }
  ~SilentPort() {
    ::close(waits_);
    ::close(listener_);
  }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  int port() const { return port_; }

 private:
  int listener_ = ::socket(AF_INET, SOCK_STREAM, 0), waits_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

inline PeerAddress address(int stage, int port) {
  return {.stage = stage,
          .ip = "127.0.0.1",
          .data_port = port,
          .node = "node-" + std::to_string(stage)};
}

inline Generation generation(int stage, const std::vector<int>& ports) {
  Generation result{.job_uid = "job-1",
                    .job_key = "a key of this job",
                    .revision = 1,
                    .stage = stage,
                    .node = "node-" + std::to_string(stage)};
  const auto s = static_cast<std::size_t>(stage);
  if (stage > 0) result.previous = address(stage - 1, ports[s - 1]);
  if (s + 1 < ports.size()) result.next = address(stage + 1, ports[s + 1]);
  return result;
}

using Connected = Result<std::unique_ptr<Communicator>>;

inline std::future<Connected> connect_async(TcpTransport& transport, Generation generation,
                                            std::chrono::nanoseconds limit = 30s) {
  return std::async(std::launch::async, [&transport, generation = std::move(generation), limit] {
    return transport.connect(generation, soon(limit), {});
  });
}

struct Pipeline {
  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<std::unique_ptr<Communicator>> ranks;

  explicit Pipeline(int stages, const std::vector<TcpOptions>& options = {}) {
    std::vector<int> ports;
    for (std::size_t s = 0; s < static_cast<std::size_t>(stages); ++s) {
      transports.push_back(make_transport(s < options.size() ? options[s] : TcpOptions{}));
      ports.push_back(transports.back()->data_port());
    }
    std::vector<std::future<Connected>> connecting;
    for (int s = 0; s < stages; ++s) {
      connecting.push_back(
          connect_async(*transports[static_cast<std::size_t>(s)], generation(s, ports)));
    }
    for (auto& one : connecting) {
      Connected connected = one.get();
      EXPECT_TRUE(connected) << (connected ? "" : connected.error().message);
      ranks.push_back(connected ? *std::move(connected) : nullptr);
    }
  }
};

inline LinkEnd to(int stage, Channel channel = Channel::kForward) {
  return {.peer_stage = stage, .channel = channel, .sending = true};
}
inline LinkEnd from(int stage, Channel channel = Channel::kForward) {
  return {.peer_stage = stage, .channel = channel, .sending = false};
}

inline Completion next(Communicator& rank, std::chrono::nanoseconds limit = 30s) {
  const auto completion = rank.wait(soon(limit), {});
  return completion.value_or(Completion{Completion::Kind::kFailed, {}, -1, "nothing happened"});
}

}  // namespace weir::transport::test
