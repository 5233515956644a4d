// SPDX-License-Identifier: Apache-2.0
// Sums over replicas by NCCL: the bits of one replica after the other, whatever the sizes; what is
// no such sum goes by TCP, in the order of the calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/strict_device.h"
#include "tests/worker/transport/nccl/sums_rig.h"
#include "worker/transport/tcp/replica_group.h"

namespace weir::transport::test {
namespace sums_test {

using ::testing::Each;

TEST(NcclSums, AreTheSameBitsAsInTheOrderOfTheReplicasForAnySize) {
  for (const std::size_t count : {2UL, 3UL, 4UL}) {
    NcclReplicas replicas(static_cast<int>(count));
    replicas.connect();
    std::uint64_t step = 0;
    for (const std::size_t size : {0UL, 1UL, 2UL, 3UL, 7UL, 1024UL, 100'003UL}) {
      Summing sums(size, count);
      for (std::size_t r = 0; r < count; ++r) {
        replicas[r].all_reduce(sums.terms[r]->sum({.step = step}, replicas.all()));
      }
      ++step;
      for (std::size_t r = 0; r < count; ++r) {
        expect_done(replicas[r]);
        EXPECT_EQ(sums.terms[r]->out, sums.expected()) << count << " replicas, " << size;
      }
    }
    EXPECT_EQ(replicas[0].counters().operations, 7);
    EXPECT_GT(replicas[0].counters().busy.count(), 0);
  }
}

TEST(NcclSums, AreTheBitsOfThoseOverTcp) {
  constexpr std::size_t kCount = 50'001;
  NcclReplicas replicas(3);
  replicas.connect();
  Summing by_nccl(kCount, 3), by_tcp(kCount, 3);

  for (std::size_t r = 0; r < 3; ++r) {
    replicas[r].all_reduce(by_nccl.terms[r]->sum({.step = 1}, replicas.all()));
    AllReduce other = by_tcp.terms[r]->sum({.step = 1, .part = 1}, replicas.all());
    other.on_device = false;
    replicas[r].all_reduce(std::move(other));
  }
  for (std::size_t r = 0; r < 3; ++r) expect_done(replicas[r]);

  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(by_nccl.terms[r]->out, by_tcp.terms[r]->out);
}

TEST(NcclSums, CountThePayloadThatThisRankSends) {
  NcclReplicas replicas(2);
  replicas.connect();
  Summing sums(1000, 2);
  const auto before = replicas[1].counters().bytes_sent;

  for (std::size_t r = 0; r < 2; ++r) {
    replicas[r].all_reduce(sums.terms[r]->sum({.step = 1}, replicas.all()));
  }
  for (std::size_t r = 0; r < 2; ++r) expect_done(replicas[r]);

  EXPECT_EQ(replicas[1].counters().bytes_sent - before, 500 * 8 + 500 * 4);
}

// As an engine's step: buckets, then the cards; a replica may be far ahead of the others.
TEST(NcclSums, LetAReplicaRunAheadByAnyNumberOfBuckets) {
  constexpr std::uint32_t kBuckets = 30;
  NcclReplicas replicas(3);
  replicas.connect();
  std::vector<Summing> buckets;
  for (std::uint32_t b = 0; b < kBuckets; ++b) buckets.emplace_back(b % 7 == 3 ? 0 : 501 + b, 3UL);
  std::vector<Cards> cards(3);

  for (const std::size_t r : {2UL, 0UL, 1UL}) {
    for (std::uint32_t b = 0; b < kBuckets; ++b) {
      replicas[r].all_reduce(buckets[b].terms[r]->sum({.step = 9, .part = b}, replicas.all()));
    }
    replicas[r].all_gather(cards[r].gather({.step = 9, .part = kBuckets}, replicas.all()));
  }
  for (std::size_t r = 0; r < 3; ++r) expect_done(replicas[r]);

  for (const Summing& bucket : buckets) {
    const auto expected = bucket.expected();
    for (const auto& terms : bucket.terms) EXPECT_EQ(terms->out, expected);
  }
  EXPECT_EQ(cards[0].blocks->size(), 3U);
}

TEST(NcclSums, WaitForATensorThatIsStillComputed) {
  NcclReplicas replicas(2);
  replicas.connect();
  Summing sums(100, 2);
  replicas.hosts[1]->api->computing() = true;
  const auto kernels = [&] {
    const std::lock_guard lock(replicas.world->mutex);
    return replicas.world->comms.begin()->second.ranks[0].operations.size();
  };
  const std::size_t before = kernels();

  for (std::size_t r = 0; r < 2; ++r) {
    replicas[r].all_reduce(sums.terms[r]->sum({.step = 1}, replicas.all()));
  }
  const Result<bool> early = replicas[0].wait(soon(50ms), {});
  const std::size_t meanwhile = kernels();
  replicas.hosts[1]->api->computing() = false;

  ASSERT_TRUE(early);
  EXPECT_FALSE(*early);
  EXPECT_EQ(meanwhile, before) << "no kernel waits on the GPU for a late replica";
  for (std::size_t r = 0; r < 2; ++r) expect_done(replicas[r]);
  EXPECT_EQ(sums.terms[0]->out, sums.expected());
}

TEST(NcclSums, ShareTheMemoryForTheOthersParts) {
  NcclReplicas replicas(2);
  replicas.connect();
  std::vector<Summing> buckets;
  for (std::uint32_t b = 0; b < 10; ++b) buckets.emplace_back(10'000, 2UL);
  device::Device& device = *replicas.hosts[1]->device;
  const std::int64_t before = device.bytes_in_use();
  static_cast<void>(device.take_recent_peak());

  for (std::size_t r = 0; r < 2; ++r) {
    for (std::uint32_t b = 0; b < 10; ++b) {
      replicas[r].all_reduce(buckets[b].terms[r]->sum({.step = 1, .part = b}, replicas.all()));
    }
  }
  for (std::size_t r = 0; r < 2; ++r) expect_done(replicas[r]);

  EXPECT_LE(device.take_recent_peak() - before, std::int64_t{5000 * sizeof(double)});
  for (const Summing& bucket : buckets) EXPECT_EQ(bucket.terms[0]->out, bucket.expected());
}

TEST(NcclSums, OfSomeOfTheReplicasAndAveragesGoByTcp) {
  NcclReplicas replicas(3);
  replicas.connect();
  Summing pair(100, 2);
  std::vector<std::vector<float>> models(3, std::vector<float>(10)), means = models;
  for (std::size_t r = 0; r < 3; ++r) models[r].assign(10, static_cast<float>(r));

  for (std::size_t r = 0; r < 2; ++r) {
    replicas[r].all_reduce(pair.terms[r]->sum({.step = 1}, {0, 1}));
  }
  for (std::size_t r = 0; r < 3; ++r) {
    replicas[r].all_reduce({.tag = {.step = 2},
                            .members = replicas.all(),
                            .count = 10,
                            .in = std::as_bytes(std::span(models[r])),
                            .out = std::as_writable_bytes(std::span(means[r])),
                            .combine = mean_of_floats({0.5, 0.25, 0.25})});
  }
  for (std::size_t r = 0; r < 3; ++r) expect_done(replicas[r]);

  EXPECT_EQ(pair.terms[0]->out, pair.expected());
  EXPECT_THAT(means[2], Each(0.75F));
}

TEST(NcclSums, AreCompleteAtTheOthersWhenAReplicaEndsBehindItsLast) {
  NcclReplicas replicas(2);
  replicas.connect();
  Summing sums(5000, 2);
  for (std::size_t r = 0; r < 2; ++r) {
    replicas[r].all_reduce(sums.terms[r]->sum({.step = 1}, replicas.all()));
  }

  const auto leaving = std::async(std::launch::async, [&] {
    expect_done(replicas[0]);
    replicas.members[0].reset();
  });
  expect_done(replicas[1]);
  EXPECT_EQ(sums.terms[1]->out, sums.expected());
  replicas.members[1].reset();
  leaving.wait();
}

TEST(NcclSums, AnAverageThatIsGivenUpDoesNotEndThem) {
  NcclReplicas replicas(2);
  replicas.connect();
  std::vector<float> model(10, 1), mean(10);
  replicas[0].all_reduce({.tag = {.step = 7},
                          .members = {0, 1},
                          .count = 10,
                          .in = std::as_bytes(std::span(model)),
                          .out = std::as_writable_bytes(std::span(mean)),
                          .combine = mean_of_floats({0.5, 0.5})});

  const Result<int> missing = replicas[0].abandon(7);

  ASSERT_TRUE(missing) << missing.error().message;
  EXPECT_EQ(*missing, 1);
  std::vector<float> other(10, 1), nothing(10);
  replicas[1].all_reduce({.tag = {.step = 7},
                          .members = {0, 1},
                          .count = 10,
                          .in = std::as_bytes(std::span(other)),
                          .out = std::as_writable_bytes(std::span(nothing)),
                          .combine = mean_of_floats({0.5, 0.5})});
  EXPECT_FALSE(replicas[1].wait(soon(), {})) << "given up by the other";
  ASSERT_TRUE(replicas[1].abandon(7));
  Summing sums(10, 2);
  for (std::size_t r = 0; r < 2; ++r) {
    replicas[r].all_reduce(sums.terms[r]->sum({.step = 8}, replicas.all()));
  }
  for (std::size_t r = 0; r < 2; ++r) expect_done(replicas[r]);
  EXPECT_EQ(sums.terms[1]->out, sums.expected());
}

// TCP does not reach memory of a device.
TEST(NcclSums, OfMoreReplicasThanACommunicatorTakesGoByTcpThroughStagingMemory) {
  weir::test::StrictDevice device;
  const auto links = *NcclTransport::make(
      std::make_shared<FakeNccl>(std::make_shared<FakeWorld>(), "GPU-0"), device);
  ReplicaGroupGeneration many{.job_uid = "job-1", .job_key = "key", .revision = 1, .replica = 0};
  for (int r = 1; r <= static_cast<int>(nccl::kMostRanks); ++r) {
    many.others.push_back({.replica = r, .ip = "127.0.0.1"});
  }
  auto alone = std::make_unique<tcp::ReplicaGroup>(0, std::vector<tcp::ReplicaGroup::Connected>());
  const auto group = links->connect_replica_group(many, std::move(alone), soon(), {});
  ASSERT_TRUE(group) << group.error().message;
  const std::vector<double> terms = {1, 2.5, -3};
  const device::Buffer in = device.allocate(terms.size() * sizeof(double)),
                       out = device.allocate(terms.size() * sizeof(float));
  ASSERT_TRUE(device.write(in.data(), terms.data(), in.size()));

  (*group)->all_reduce({.tag = {.step = 1},
                        .members = {0},
                        .count = terms.size(),
                        .in = {in.data(), in.size()},
                        .out = {out.data(), out.size()},
                        .combine = sum_doubles_to_floats(),
                        .on_device = true});

  expect_done(**group);
  std::vector<float> sums(terms.size());
  ASSERT_TRUE(device.read(sums.data(), out.data(), out.size()));
  EXPECT_EQ(sums, (std::vector<float>{1, 2.5, -3}));
}

}  // namespace sums_test
}  // namespace weir::transport::test
