// SPDX-License-Identifier: Apache-2.0
// Engines whose replicas meet by NCCL, a fake one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/engine/group.h"
#include "tests/worker/transport/nccl/fake_nccl.h"
#include "worker/transport/nccl/nccl_transport.h"

namespace weir::engine::test {

// One fake for each rank.
struct Fakes {
  std::vector<std::shared_ptr<transport::test::FakeNccl>> apis;
  std::vector<std::unique_ptr<device::Device>> devices;
  std::vector<std::unique_ptr<transport::NcclTransport>> transports;

  explicit Fakes(int ranks) {
    const auto world = std::make_shared<transport::test::FakeWorld>();
    for (int i = 0; i < ranks; ++i) {
      apis.push_back(
          std::make_shared<transport::test::FakeNccl>(world, "GPU-" + std::to_string(i)));
      devices.push_back(device::make_host_device());
      transports.push_back(*transport::NcclTransport::make(
          apis.back(), *devices.back(), {.watch_interval = std::chrono::milliseconds(20)}));
    }
  }
  Group::Over over() {
    return [this](int rank, const transport::ReplicaGroupGeneration& generation,
                  Group::Collective tcp, SteadyTime deadline, const std::stop_token& stop) {
      return transports[static_cast<std::size_t>(rank)]->connect_replica_group(
          generation, std::move(tcp), deadline, stop);
    };
  }
};

}  // namespace weir::engine::test
