// SPDX-License-Identifier: Apache-2.0
// Averages among some of the replicas by a fake NCCL, and what they have to be.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/transport/nccl/sums_rig.h"

namespace weir::transport::test {

// The models of some replicas in one round.
struct Averaging {
  std::vector<int> members;
  std::vector<double> weights;
  std::uint64_t step = 0;
  std::map<int, std::vector<float>> models, means;

  Averaging(std::vector<int> of, std::uint64_t at, std::size_t count = 1001)
      : members(std::move(of)), step(at) {
    double total = 0;
    for (const int r : members) total += r + 1;
    for (const int r : members) {
      weights.push_back((r + 1) / total);  // shares that no float holds
      models[r].resize(count);
      means[r].assign(count, -1);
      for (std::size_t i = 0; i < count; ++i) {
        models[r][i] = 0.1F * static_cast<float>(i % 97) + 1.7F * static_cast<float>(r);
      }
    }
  }
  void post(Collective& of, int replica, std::uint32_t part = 0, bool on_device = true,
            bool more = false) {
    of.all_reduce({.tag = {.step = step, .part = part},
                   .members = members,
                   .count = models[replica].size(),
                   .in = std::as_bytes(std::span(models[replica])),
                   .out = std::as_writable_bytes(std::span(means[replica])),
                   .combine = mean_of_floats(weights),
                   .on_device = on_device,
                   .weights = weights,
                   .more = more});
  }
  void post_all(NcclReplicas& replicas) {
    for (const int r : members) post(replicas[static_cast<std::size_t>(r)], r);
  }
  // In the order of the members, in double.
  std::vector<float> expected() const {
    std::vector<float> result(models.begin()->second.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      double mean = 0;
      for (std::size_t m = 0; m < members.size(); ++m) {
        mean += weights[m] * static_cast<double>(models.at(members[m])[i]);
      }
      result[i] = static_cast<float>(mean);
    }
    return result;
  }
};

// A whole round of that group, which has to come to its mean.
inline void expect_average(NcclReplicas& replicas, std::vector<int> members, std::uint64_t step) {
  Averaging round(std::move(members), step);
  round.post_all(replicas);
  for (const int r : round.members) {
    expect_done(replicas[static_cast<std::size_t>(r)]);
    EXPECT_EQ(round.means[r], round.expected()) << "replica " << r << ", step " << step;
  }
}

}  // namespace weir::transport::test
