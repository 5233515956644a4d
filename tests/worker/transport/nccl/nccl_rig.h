// SPDX-License-Identifier: Apache-2.0
// A pipeline of ranks in one process whose tensors go by a fake NCCL, beside real TCP.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/transport/nccl/fake_nccl.h"
#include "tests/worker/transport/tcp/rig.h"
#include "worker/transport/nccl/nccl_transport.h"

namespace weir::transport::test {

inline device::Buffer on_device(const device::Buffer& host) {
  return {std::shared_ptr<std::byte>(host.data(), [host](std::byte*) {}), host.size(),
          device::Buffer::Place::kDevice};
}
inline device::Buffer tensor(std::size_t bytes, std::uint64_t seed) {
  return on_device(pattern(bytes, seed));
}
inline device::Buffer empty_tensor(std::size_t bytes) {
  return on_device(make_buffer(bytes));
}

// One rank: both transports, and the fake that a test can spoil.
struct NcclRank {
  std::unique_ptr<device::Device> device = device::make_host_device();
  std::shared_ptr<FakeNccl> api;
  std::unique_ptr<TcpTransport> tcp = make_transport();
  std::unique_ptr<NcclTransport> links;

  NcclRank(const std::shared_ptr<FakeWorld>& world, int number, const nccl::Limits& limits)
      : api(std::make_shared<FakeNccl>(world, "GPU-" + std::to_string(number))) {
    links = *NcclTransport::make(api, *device, limits);
  }

  Connected connect(const Generation& generation, std::chrono::nanoseconds limit = 30s) {
    WEIR_TRY(std::unique_ptr<Communicator> side, tcp->connect(generation, soon(limit), {}));
    return links->connect(generation, std::move(side), soon(limit), {});
  }
};

struct NcclPipeline {
  std::shared_ptr<FakeWorld> world = std::make_shared<FakeWorld>();
  std::vector<std::unique_ptr<NcclRank>> hosts;
  std::vector<std::unique_ptr<Communicator>> ranks;

  explicit NcclPipeline(int stages, const nccl::Limits& limits = {}) {
    for (int s = 0; s < stages; ++s) {
      hosts.push_back(std::make_unique<NcclRank>(world, s, limits));
    }
  }
  // All ranks at once; what connect() said of each.
  std::vector<Connected> join(std::uint32_t revision = 1, std::chrono::nanoseconds limit = 30s) {
    std::vector<int> ports;
    for (const auto& host : hosts) ports.push_back(host->tcp->data_port());
    std::vector<std::future<Connected>> joining;
    for (std::size_t s = 0; s < hosts.size(); ++s) {
      Generation own = generation(static_cast<int>(s), ports);
      own.revision = revision;
      joining.push_back(std::async(std::launch::async, [host = hosts[s].get(), own, limit] {
        return host->connect(own, limit);
      }));
    }
    std::vector<Connected> joined;
    for (auto& one : joining) joined.push_back(one.get());
    return joined;
  }
  void connect(std::uint32_t revision = 1) {
    ranks.clear();
    for (Connected& one : join(revision)) {
      ASSERT_TRUE(one) << one.error().message;
      ranks.push_back(*std::move(one));
    }
  }
};

}  // namespace weir::transport::test
