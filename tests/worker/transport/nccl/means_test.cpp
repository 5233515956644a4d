// SPDX-License-Identifier: Apache-2.0
// Averages of parameters by NCCL: the bits of those over TCP, in any groups, on communicators that
// are kept and bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/means_rig.h"
#include "worker/base/random.h"
#include "worker/transport/nccl/subgroups.h"

namespace weir::transport::test {
namespace means_test {

using ::testing::Each;

// Beside the one of the sums.
int opened(const NcclReplicas& replicas, std::size_t replica) {
  return replicas.hosts[replica]->api->opened() - 1;
}
// Neither aborted nor of the sums.
int held(const NcclReplicas& replicas, std::size_t replica) {
  return opened(replicas, replica) - replicas.hosts[replica]->api->aborted();
}

TEST(NcclMeans, AreTheBitsOfThoseOverTcpForAnySizeAndGroup) {
  NcclReplicas replicas(4);
  replicas.connect();
  std::uint64_t step = 0;
  for (const std::vector<int>& members :
       {std::vector{0, 1}, std::vector{1, 2, 3}, std::vector{0, 1, 2, 3}}) {
    for (const std::size_t size : {1UL, 2UL, 3UL, 1024UL, 100'003UL}) {
      Averaging by_nccl(members, ++step, size), by_tcp(members, ++step, size);
      for (const int r : members) {
        Collective& own = replicas[static_cast<std::size_t>(r)];
        by_nccl.post(own, r);
        by_tcp.post(own, r, 1, false);
      }
      for (const int r : members) expect_done(replicas[static_cast<std::size_t>(r)]);
      for (const int r : members) {
        EXPECT_EQ(by_nccl.means[r], by_tcp.means[r]) << size;
        EXPECT_EQ(by_nccl.means[r], by_nccl.expected()) << size;
      }
    }
  }
}

TEST(NcclMeans, KeepTheCommunicatorOfAGroup) {
  NcclReplicas replicas(3);
  replicas.connect();

  for (std::uint64_t step = 0; step < 6; ++step) {
    expect_average(replicas, step % 2 == 0 ? std::vector{0, 1} : std::vector{0, 2}, step);
  }

  EXPECT_EQ(opened(replicas, 0), 2);
  EXPECT_EQ(opened(replicas, 1), 1);
  EXPECT_EQ(opened(replicas, 2), 1);
}

TEST(NcclMeans, OfManyGroupsHoldSixteenCommunicatorsAtMost) {
  constexpr int kReplicas = 6;  // replica 0 is in 31 groups
  NcclReplicas replicas(kReplicas);
  replicas.connect();
  Random random(7);
  std::uint64_t step = 0;

  for (int round = 0; round < 120; ++round) {
    std::vector<int> members;
    for (int r = 0; r < kReplicas; ++r) {
      if (random.below(2) == 1) members.push_back(r);
    }
    if (members.size() < 2) continue;
    expect_average(replicas, members, ++step);
    for (std::size_t r = 0; r < kReplicas; ++r) {
      ASSERT_LE(held(replicas, r), static_cast<int>(nccl::Subgroups::kMost));
    }
  }

  EXPECT_EQ(held(replicas, 0), static_cast<int>(nccl::Subgroups::kMost));
  EXPECT_GT(opened(replicas, 0), static_cast<int>(nccl::Subgroups::kMost) + 5)
      << "some came back after they were forgotten";
}

TEST(NcclMeans, OfWhomOneHasForgottenTheCommunicatorMakeAnother) {
  constexpr int kOthers = static_cast<int>(nccl::Subgroups::kMost);
  NcclReplicas replicas(2 + kOthers);
  replicas.connect();
  std::uint64_t step = 0;
  expect_average(replicas, {0, 1}, ++step);
  for (int other = 0; other < kOthers; ++other) expect_average(replicas, {0, 2 + other}, ++step);
  ASSERT_EQ(opened(replicas, 1), 1);

  expect_average(replicas, {0, 1}, ++step);  // replica 1 holds it still
  expect_average(replicas, {0, 1}, ++step);

  EXPECT_EQ(opened(replicas, 1), 2);
  EXPECT_EQ(held(replicas, 1), 1);
}

TEST(NcclMeans, OfSeveralBucketsAndPartsAreOneRound) {
  NcclReplicas replicas(2);
  replicas.connect();
  for (const std::uint64_t step : {1UL, 2UL}) {
    std::uint32_t part = 0;
    for (int parts = 0; parts < 3; ++parts) {  // as a meeting: parameters, then both moments
      std::vector<Averaging> buckets;
      for (int b = 0; b < 12; ++b) buckets.emplace_back(std::vector{0, 1}, step, 100 + b);
      for (std::size_t b = 0; b < buckets.size(); ++b, ++part) {
        for (const int r : {0, 1}) {
          buckets[b].post(replicas[static_cast<std::size_t>(r)], r, part, true,
                          b + 1 < buckets.size());
        }
      }
      for (const std::size_t r : {0UL, 1UL}) expect_done(replicas[r]);
      for (Averaging& bucket : buckets) {
        EXPECT_EQ(bucket.means[0], bucket.expected());
        EXPECT_EQ(bucket.means[1], bucket.expected());
      }
    }
  }
  EXPECT_EQ(opened(replicas, 0), 1);
}

TEST(NcclMeans, AndExactSumsTakeTurns) {
  NcclReplicas replicas(3);
  replicas.connect();
  for (std::uint64_t step = 0; step < 4; ++step) {
    Summing sums(500, 3);
    Cards cards[3];
    for (std::size_t r = 0; r < 3; ++r) {
      replicas[r].all_reduce(sums.terms[r]->sum({.step = 2 * step}, replicas.all()));
      replicas[r].all_gather(cards[r].gather({.step = 2 * step, .part = 1}, replicas.all()));
    }
    Averaging round({0, 2}, 2 * step + 1);
    round.post_all(replicas);
    for (std::size_t r = 0; r < 3; ++r) expect_done(replicas[r]);
    EXPECT_EQ(sums.terms[1]->out, sums.expected());
    EXPECT_EQ(round.means[2], round.expected());
  }
}

TEST(NcclMeans, TellWhatCameFromWhom) {
  NcclReplicas replicas(3);
  replicas.hosts[0]->api->set_rate(1e6);
  replicas.connect();

  expect_average(replicas, {0, 2}, 1);

  const auto counters = replicas[0].counters();
  ASSERT_EQ(counters.received.size(), 1U);
  const auto& from = counters.received.at(2);
  EXPECT_EQ(from.bytes, 1001 * 4) << "the other's part of one half, and the other half";
  EXPECT_GT(from.busy.count(), 0);
  EXPECT_EQ(counters.bytes_sent, 1001 * 4);
  EXPECT_EQ(counters.operations, 1);
}

TEST(NcclMeans, WaitForATensorThatIsStillComputed) {
  NcclReplicas replicas(2);
  replicas.connect();
  expect_average(replicas, {0, 1}, 1);
  replicas.hosts[1]->api->computing() = true;
  Averaging round({0, 1}, 2);

  round.post_all(replicas);
  const Result<bool> early = replicas[0].wait(soon(50ms), {});
  replicas.hosts[1]->api->computing() = false;

  ASSERT_TRUE(early);
  EXPECT_FALSE(*early);
  for (const std::size_t r : {0UL, 1UL}) expect_done(replicas[r]);
  EXPECT_EQ(round.means[0], round.expected());
}

// Nothing of an idle communicator is on its way any more: forgetting it takes nothing from anybody.
TEST(NcclMeans, AreCompleteAtAllMembersWhenOneHasWaited) {
  NcclReplicas replicas(2);
  replicas.connect();
  Averaging round({0, 1}, 1);
  replicas.hosts[1]->api->computing() = false;
  round.post_all(replicas);
  const auto other = std::async(std::launch::async, [&] { expect_done(replicas[1]); });

  expect_done(replicas[0]);

  other.wait();
  EXPECT_THAT(round.means[1], round.expected());
}

}  // namespace means_test
}  // namespace weir::transport::test
