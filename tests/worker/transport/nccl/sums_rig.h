// SPDX-License-Identifier: Apache-2.0
// The replicas of a stage in one process, whose sums go by a fake NCCL, beside real TCP.
#pragma once

#include <future>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "tests/worker/transport/nccl/nccl_rig.h"

namespace weir::transport::test {

// One replica's part of a sum: terms of very different size, so that another order of adding gives
// other bits.
struct Terms {
  std::vector<double> in;
  std::vector<float> out;

  Terms(std::size_t count, int replica) : in(count), out(count, -1) {
    for (std::size_t i = 0; i < count; ++i) {
      const double scale = (i + static_cast<std::size_t>(replica)) % 3 == 0 ? 1e17 : 1;
      in[i] =
          (static_cast<double>(i % 1000) + 0.37 * replica) * (replica % 2 == 0 ? scale : -scale);
    }
  }
  AllReduce sum(CollectiveTag tag, std::vector<int> members) {
    return {.tag = tag,
            .members = std::move(members),
            .count = in.size(),
            .in = std::as_bytes(std::span(in)),
            .out = std::as_writable_bytes(std::span(out)),
            .combine = sum_doubles_to_floats(),
            .on_device = true};
  }
};

struct NcclReplicas {
  using Made = Result<std::unique_ptr<Collective>>;

  std::shared_ptr<FakeWorld> world = std::make_shared<FakeWorld>();
  std::vector<std::unique_ptr<NcclRank>> hosts;
  std::vector<std::unique_ptr<Collective>> members;

  explicit NcclReplicas(int count, const nccl::Limits& limits = {}) {
    for (int r = 0; r < count; ++r) {
      hosts.push_back(std::make_unique<NcclRank>(world, r, limits));
    }
  }
  ReplicaGroupGeneration generation(std::size_t replica, std::uint32_t revision) {
    ReplicaGroupGeneration own{.job_uid = "job-1",
                               .job_key = "a key of this job",
                               .revision = revision,
                               .replica = static_cast<int>(replica),
                               .stage = 3};
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      if (r == replica) continue;
      own.others.push_back({.replica = static_cast<int>(r),
                            .ip = "127.0.0.1",
                            .data_port = hosts[r]->tcp->data_port()});
    }
    return own;
  }
  // All at once; what connect_replica_group() said of each.
  std::vector<Made> join(std::uint32_t revision = 1, std::chrono::nanoseconds limit = 30s) {
    std::vector<std::future<Made>> joining;
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      joining.push_back(std::async(
          std::launch::async,
          [host = hosts[r].get(), own = generation(r, revision), limit]() -> Made {
            WEIR_TRY(std::unique_ptr<Collective> tcp,
                     host->tcp->connect_replica_group(own, soon(limit), {}));
            return host->links->connect_replica_group(own, std::move(tcp), soon(limit), {});
          }));
    }
    std::vector<Made> joined;
    for (auto& one : joining) joined.push_back(one.get());
    return joined;
  }
  ~NcclReplicas() { end(); }
  NcclReplicas(const NcclReplicas&) = delete;
  NcclReplicas& operator=(const NcclReplicas&) = delete;

  // All at once, as processes do: each waits for the others' last sum.
  void end() {
    std::vector<std::future<void>> ending;
    for (auto& member : members) {
      ending.push_back(std::async(std::launch::async, [&member] { member.reset(); }));
    }
    ending.clear();
    members.clear();
  }
  void connect(std::uint32_t revision = 1) {
    end();
    for (Made& one : join(revision)) {
      ASSERT_TRUE(one) << one.error().message;
      members.push_back(*std::move(one));
    }
  }
  std::vector<int> all() const {
    std::vector<int> result(hosts.size());
    std::iota(result.begin(), result.end(), 0);
    return result;
  }
  Collective& operator[](std::size_t replica) { return *members[replica]; }
};

// Each replica's terms, and their sum in the order of the replicas.
struct Summing {
  std::vector<std::unique_ptr<Terms>> terms;

  Summing(std::size_t count, std::size_t replicas) {
    for (std::size_t r = 0; r < replicas; ++r) {
      terms.push_back(std::make_unique<Terms>(count, static_cast<int>(r)));
    }
  }
  std::vector<float> expected() const {
    std::vector<float> result;
    for (std::size_t i = 0; i < terms[0]->in.size(); ++i) {
      double total = terms[0]->in[i];
      for (std::size_t r = 1; r < terms.size(); ++r) total += terms[r]->in[i];
      result.push_back(static_cast<float>(total));
    }
    return result;
  }
};

// Over once all is here: the last words of a step.
struct Cards {
  std::shared_ptr<std::vector<std::vector<std::byte>>> blocks =
      std::make_shared<std::vector<std::vector<std::byte>>>();
  AllGather gather(CollectiveTag tag, const std::vector<int>& members) const {
    return {.tag = tag,
            .members = members,
            .own = std::vector<std::byte>(3),
            .sizes = std::vector<std::size_t>(members.size(), 3),
            .blocks = blocks};
  }
};

inline void expect_done(Collective& member) {
  const Result<bool> done = member.wait(soon(), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(*done);
}

}  // namespace weir::transport::test
