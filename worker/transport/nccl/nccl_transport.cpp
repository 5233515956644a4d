// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/nccl_transport.h"

#include <utility>

#include "worker/base/log.h"
#include "worker/transport/nccl/group_introduction.h"
#include "worker/transport/nccl/introduction.h"
#include "worker/transport/nccl/nccl_collective.h"
#include "worker/transport/nccl/nccl_communicator.h"
#include "worker/transport/nccl/start_checks.h"
#include "worker/transport/staged_collective.h"

namespace weir::transport {

Result<std::unique_ptr<NcclTransport>> NcclTransport::make(std::shared_ptr<nccl::NcclApi> api,
                                                           device::Device& device,
                                                           const nccl::Limits& limits) {
  WEIR_OK(nccl::check_start(api->facts()));
  return std::unique_ptr<NcclTransport>(new NcclTransport(std::move(api), device, limits));
}

Result<std::unique_ptr<Communicator>> NcclTransport::connect(
    const Generation& generation, std::unique_ptr<Communicator> tcp,
    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  nccl::Introduction introduction(*api_, device_, generation, std::move(tcp));
  WEIR_TRY(nccl::LinksUp up, introduction.run(deadline, stop));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log_info("transport", "NCCL links", {{"links", up.links.size()}, {"link_seconds", took.count()}});
  return std::unique_ptr<Communicator>(
      std::make_unique<nccl::NcclCommunicator>(api_, std::move(up), limits_));
}

Result<std::unique_ptr<Collective>> NcclTransport::connect_replica_group(
    const ReplicaGroupGeneration& generation, std::unique_ptr<Collective> tcp,
    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  if (generation.others.size() >= nccl::kMostRanks) {
    log_warn("transport", "too many replicas for one communicator: sums go by TCP",
             {{"replicas", generation.others.size() + 1}, {"most", nccl::kMostRanks}});
    return staged(device_, std::move(tcp));
  }
  const auto begin = std::chrono::steady_clock::now();
  nccl::GroupIntroduction introduction(*api_, device_, generation, std::move(tcp));
  WEIR_TRY(nccl::GroupUp up, introduction.run(deadline, stop));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log_info("transport", "NCCL between replicas",
           {{"replicas", up.replicas.size()}, {"group_seconds", took.count()}});
  return std::unique_ptr<Collective>(
      std::make_unique<nccl::NcclCollective>(api_, device_, std::move(up), limits_));
}

}  // namespace weir::transport
