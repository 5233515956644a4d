// SPDX-License-Identifier: Apache-2.0
// Collectives over real sockets: sums in one order, ragged sizes, members ahead of others, and what
// happens when one is missing.
#include "worker/transport/tcp/replica_group.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/relay.h"
#include "tests/worker/transport/tcp/rig.h"
#include "worker/base/random.h"
#include "worker/transport/tcp/replica_group_peer.h"

namespace weir::transport {
namespace replica_group_test {

using namespace std::chrono_literals;
using test::soon;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

struct Replicas {
  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<int> ports;  // at which each of them is reached
  std::vector<std::unique_ptr<Collective>> members;

  // By a port of its own to that of a replica.
  using Wire = std::function<int(int port)>;
  // encodings: of the first replicas; of the others kAuto.
  explicit Replicas(
      int count, const std::vector<tcp::SumEncoding>& encodings = {},
      const Wire& wire = [](int port) { return port; }) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
      const auto encoding = r < encodings.size() ? encodings[r] : tcp::SumEncoding::kAuto;
      transports.push_back(test::make_transport({.sum_encoding = encoding}));
    }
    for (const auto& one : transports) ports.push_back(wire(one->data_port()));
    std::vector<std::future<Result<std::unique_ptr<Collective>>>> connecting;
    for (int r = 0; r < count; ++r) {
      connecting.push_back(std::async(std::launch::async, [this, r] {
        return at(r).connect_replica_group(group(r), soon(), {});
      }));
    }
    for (auto& one : connecting) {
      auto made = one.get();
      EXPECT_TRUE(made) << (made ? "" : made.error().message);
      members.push_back(made ? *std::move(made) : nullptr);
    }
  }
  TcpTransport& at(int replica) { return *transports[static_cast<std::size_t>(replica)]; }
  Collective& operator[](int replica) { return *members[static_cast<std::size_t>(replica)]; }
  ReplicaGroupGeneration group(int replica) {
    ReplicaGroupGeneration result{.job_uid = "job-1",
                                  .job_key = "a key of this job",
                                  .revision = 1,
                                  .replica = replica,
                                  .stage = 3};
    for (int r = 0; r < static_cast<int>(transports.size()); ++r) {
      if (r == replica) continue;
      result.others.push_back(
          {.replica = r, .ip = "127.0.0.1", .data_port = ports[static_cast<std::size_t>(r)]});
    }
    return result;
  }
};

std::vector<int> all(int count) {
  std::vector<int> members;
  for (int r = 0; r < count; ++r) members.push_back(r);
  return members;
}

// One replica's part of an all-reduce of doubles.
struct Part {
  std::vector<double> in;
  std::vector<float> out;

  Part(std::size_t count, int replica) : in(count), out(count, -1) {
    for (std::size_t i = 0; i < count; ++i) {
      in[i] = static_cast<double>(i) * 0.25 + 1000.0 * replica;
    }
  }
  AllReduce operation(std::uint64_t step, std::vector<int> members) {
    return {.tag = {.step = step},
            .members = std::move(members),
            .count = in.size(),
            .in = std::as_bytes(std::span(in)),
            .out = std::as_writable_bytes(std::span(out)),
            .combine = sum_doubles_to_floats()};
  }
  static std::vector<float> sum(const std::vector<Part*>& parts) {
    std::vector<float> result;
    for (std::size_t i = 0; i < parts[0]->in.size(); ++i) {
      double total = 0;
      for (const Part* part : parts) total += part->in[i];
      result.push_back(static_cast<float>(total));
    }
    return result;
  }
};

void expect_done(Collective& member) {
  const Result<bool> done = member.wait(soon(), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(*done);
}

TEST(ReplicaGroup, SumsTheSameBitsAtAllMembersForAnySize) {
  for (const int count : {2, 3, 4}) {
    Replicas replicas(count);
    std::uint64_t step = 0;
    for (const std::size_t size : {0UL, 1UL, 3UL, 7UL, 1024UL, 100'003UL, 700'001UL}) {
      std::vector<std::unique_ptr<Part>> parts;
      std::vector<Part*> in_order;
      for (int r = 0; r < count; ++r) {
        parts.push_back(std::make_unique<Part>(size, r));
        in_order.push_back(parts.back().get());
        replicas[r].all_reduce(parts.back()->operation(step, all(count)));
      }
      ++step;
      const std::vector<float> expected = size == 0 ? std::vector<float>() : Part::sum(in_order);
      for (int r = 0; r < count; ++r) {
        expect_done(replicas[r]);
        EXPECT_EQ(in_order[static_cast<std::size_t>(r)]->out, expected) << count << " " << size;
      }
    }
    EXPECT_EQ(replicas[0].counters().operations, 7);
    EXPECT_GT(replicas[0].counters().bytes_sent, 0);
    std::int64_t received = 0;
    for (const auto& [replica, from] : replicas[0].counters().received) received += from.bytes;
    EXPECT_EQ(replicas[0].counters().received.size(), static_cast<std::size_t>(count - 1));
    EXPECT_NEAR(static_cast<double>(received),
                static_cast<double>(replicas[0].counters().bytes_sent), 1000)
        << count;
  }
}

TEST(ReplicaGroup, SumsTheSameBitsWhoeverPacks) {
  using enum tcp::SumEncoding;
  for (const int count : {2, 3, 4}) {
    Replicas replicas(count, {kPacked, kRaw, kPacked, kAuto});
    Random random(static_cast<std::uint64_t>(count));
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<std::unique_ptr<Part>> parts;
      std::vector<Part*> in_order;
      for (int r = 0; r < count; ++r) {
        parts.push_back(std::make_unique<Part>(step == 3 ? 1 : 50'003, r));
        in_order.push_back(parts.back().get());
        for (double& value : parts.back()->in) {
          value = std::nearbyint(0x1p44 * 1e-3 * random.normal()) * 0x1p-44;
        }
        if (step == 2) parts.back()->in[77] = std::nan("");  // a step that diverges
        auto operation = parts.back()->operation(step, all(count));
        operation.exact_sums = true;
        replicas[r].all_reduce(std::move(operation));
      }
      const std::vector<float> expected = Part::sum(in_order);
      for (int r = 0; r < count; ++r) {
        expect_done(replicas[r]);
        const auto& out = in_order[static_cast<std::size_t>(r)]->out;
        EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)), 0);
      }
    }
    const CollectiveCounters packed = replicas[0].counters(), raw = replicas[1].counters();
    EXPECT_GT(packed.packed_bytes, 0);
    EXPECT_EQ(raw.packed_bytes, 0);
    EXPECT_EQ(raw.packed_payload, 0);
    const std::int64_t before = packed.bytes_sent - packed.packed_bytes + packed.packed_payload;
    EXPECT_NEAR(static_cast<double>(before), static_cast<double>(raw.bytes_sent), 1000);
    EXPECT_LT(static_cast<double>(packed.bytes_sent), 0.85 * static_cast<double>(raw.bytes_sent));
  }
}

// Multiples of 2^-44 as gradients have them; one other number in a block; any numbers.
std::vector<double> any_sums(std::size_t count, Random& random) {
  constexpr double kOdd[] = {-0.0,    1e300,    -1e300,    5e-324, 0x1p11,
                             0x1p-45, INFINITY, -INFINITY, NAN};
  const auto gradient = [&] { return std::nearbyint(0x1p44 * 1e-3 * random.normal()) * 0x1p-44; };
  const auto other = [&] {
    if (random.below(2) == 0) return kOdd[random.below(std::size(kOdd))];
    return std::ldexp(random.normal(), static_cast<int>(random.below(120)) - 80);
  };
  std::vector<double> sums(count);
  for (std::size_t block = 0; block < count; block += tcp::kPackedBlock) {
    const std::size_t end = std::min(count, block + tcp::kPackedBlock);
    const std::uint64_t kind = random.below(8);
    for (std::size_t i = block; i < end; ++i) sums[i] = kind == 0 ? other() : gradient();
    if (kind == 1) sums[block + random.below(end - block)] = other();
  }
  return sums;
}

TEST(ReplicaGroup, SumsTheSameBitsOfAnyNumbersWhoeverPacks) {
  using enum tcp::SumEncoding;
  // Ten million numbers in the long form.
  const std::uint64_t rounds = std::getenv("WEIR_FULL") != nullptr ? 12 : 1;
  for (const int count : {2, 3, 4}) {
    Replicas raw(count, {kRaw, kRaw, kRaw, kRaw}),
        packed(count, {kPacked, kPacked, kPacked, kPacked}),
        mixed(count, {kRaw, kPacked, kRaw, kPacked});
    Random random(static_cast<std::uint64_t>(count) + 10);
    for (std::uint64_t step = 0; step < rounds; ++step) {
      std::vector<std::vector<double>> sums;
      for (int r = 0; r < count; ++r) sums.push_back(any_sums(100'003, random));
      std::vector<float> expected;
      for (Replicas* replicas : {&raw, &packed, &mixed}) {
        std::vector<Part> parts(static_cast<std::size_t>(count), Part(0, 0));
        for (int r = 0; r < count; ++r) {
          Part& part = parts[static_cast<std::size_t>(r)];
          part.in = sums[static_cast<std::size_t>(r)];
          part.out.resize(part.in.size());
          auto operation = part.operation(step, all(count));
          operation.exact_sums = true;
          (*replicas)[r].all_reduce(std::move(operation));
        }
        for (int r = 0; r < count; ++r) {
          expect_done((*replicas)[r]);
          const std::vector<float>& out = parts[static_cast<std::size_t>(r)].out;
          if (expected.empty()) expected = out;
          EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)), 0)
              << count << " replicas, step " << step << ", replica " << r;
        }
      }
    }
    EXPECT_GT(packed[0].counters().packed_bytes, 0);
    EXPECT_GT(mixed[1].counters().packed_bytes, 0);
    EXPECT_EQ(mixed[0].counters().packed_bytes, 0);
  }
}

TEST(ReplicaGroup, LetsAMemberRunAheadByAnyNumberOfOperations) {
  constexpr int kOperations = 50;
  Replicas replicas(3);
  std::vector<std::vector<std::unique_ptr<Part>>> parts(3);
  for (const int replica : {2, 0, 1}) {  // each posts all of its own before the next one begins
    for (int i = 0; i < kOperations; ++i) {
      auto& mine = parts[static_cast<std::size_t>(replica)];
      mine.push_back(std::make_unique<Part>(i == 7 ? 0 : 5000, replica));
      replicas[replica].all_reduce(mine.back()->operation(static_cast<std::uint64_t>(i), all(3)));
    }
  }
  for (int r = 0; r < 3; ++r) expect_done(replicas[r]);
  for (std::size_t i = 0; i < kOperations; ++i) {
    const auto expected = Part::sum({parts[0][i].get(), parts[1][i].get(), parts[2][i].get()});
    for (const auto& mine : parts) EXPECT_EQ(mine[i]->out, expected);
  }
}

TEST(ReplicaGroup, GivesEverybodyTheBlocksOfAllInTheirOrder) {
  Replicas replicas(3);
  std::vector<std::shared_ptr<std::vector<std::vector<std::byte>>>> blocks;
  for (int r = 0; r < 3; ++r) {
    blocks.push_back(std::make_shared<std::vector<std::vector<std::byte>>>());
    replicas[r].all_gather(
        {.tag = {.step = 1},
         .members = all(3),
         .own = std::vector<std::byte>(static_cast<std::size_t>(2 * r), static_cast<std::byte>(r)),
         .sizes = {0, 2, 4},
         .blocks = blocks.back()});
  }
  for (int r = 0; r < 3; ++r) {
    expect_done(replicas[r]);
    ASSERT_EQ(blocks[static_cast<std::size_t>(r)]->size(), 3U);
    EXPECT_THAT((*blocks[static_cast<std::size_t>(r)])[2],
                testing::AllOf(testing::SizeIs(4), testing::Each(std::byte{2})));
  }
}

// What groups of each step need: disjoint ones at the same time, one member alone, a weighted mean.
TEST(ReplicaGroup, AveragesInAnyGroupsOfItsReplicas) {
  Replicas replicas(4);
  std::vector<std::vector<float>> values = {{1, 2}, {3, 6}, {5, 7}, {11, 13}};
  std::vector<std::vector<float>> means(4, std::vector<float>(2));
  const auto average = [&](int replica, std::uint64_t round, std::vector<int> members,
                           std::vector<double> weights) {
    const auto r = static_cast<std::size_t>(replica);
    replicas[replica].all_reduce({.tag = {.step = round},
                                  .members = std::move(members),
                                  .count = 2,
                                  .in = std::as_bytes(std::span(values[r])),
                                  .out = std::as_writable_bytes(std::span(means[r])),
                                  .combine = mean_of_floats(std::move(weights))});
  };
  average(0, 1, {0, 2}, {0.25, 0.75});
  average(2, 1, {0, 2}, {0.25, 0.75});
  average(1, 2, {1}, {1});
  average(3, 3, {3}, {1});
  for (int r = 0; r < 4; ++r) expect_done(replicas[r]);
  EXPECT_EQ(means[0], (std::vector<float>{4, 5.75F}));
  EXPECT_EQ(means[2], means[0]);
  EXPECT_EQ(means[1], values[1]);
  EXPECT_EQ(means[3], values[3]);

  average(1, 4, {1, 2}, {0.5, 0.5});
  average(2, 4, {1, 2}, {0.5, 0.5});
  expect_done(replicas[1]);
  expect_done(replicas[2]);
  EXPECT_EQ(means[1], (std::vector<float>{4, 6.5F}));
}

TEST(ReplicaGroup, SaysNotYetWhileAMemberIsMissingAtTheDeadline) {
  Replicas replicas(2);
  Part first(10, 0), second(10, 1);
  replicas[0].all_reduce(first.operation(1, all(2)));
  const Result<bool> done = replicas[0].wait(soon(1ms), {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(*done);

  replicas[1].all_reduce(second.operation(1, all(2)));
  expect_done(replicas[0]);
  expect_done(replicas[1]);
  EXPECT_EQ(first.out, second.out);
}

TEST(ReplicaGroup, EndsAtAllMembersWhenOneAborts) {
  std::vector<std::unique_ptr<Part>> parts;  // outlive what still holds them
  Replicas replicas(3);
  for (const int r : {0, 1}) {
    parts.push_back(std::make_unique<Part>(100'000, r));
    replicas[r].all_reduce(parts.back()->operation(1, all(3)));
  }
  std::thread other([&] { replicas[2].abort("the test says so"); });
  for (int r = 0; r < 3; ++r) {
    const Result<bool> done = replicas[r].wait(soon(), {});
    ASSERT_FALSE(done) << r;
    EXPECT_EQ(done.error().code, Code::kUnavailable);
  }
  other.join();
  EXPECT_THAT(replicas[2].wait(soon(), {}).error().message, HasSubstr("the test says so"));
}

TEST(ReplicaGroup, FailsWhenAMemberIsGoneAndOnlyThen) {
  std::vector<std::unique_ptr<Part>> parts;
  Part again(10, 0);  // outlives the collective, which holds it when its operation has failed
  Replicas replicas(3);
  for (int r = 0; r < 3; ++r) {
    parts.push_back(std::make_unique<Part>(1000, r));
    replicas[r].all_reduce(parts.back()->operation(1, all(3)));
  }
  expect_done(replicas[2]);
  replicas.members[2].reset();  // it has all it wants
  expect_done(replicas[0]);
  expect_done(replicas[1]);

  Part zero(10, 0), one(10, 1);  // those who stay may go on among themselves
  replicas[0].all_reduce(zero.operation(2, {0, 1}));
  replicas[1].all_reduce(one.operation(2, {0, 1}));
  expect_done(replicas[0]);
  expect_done(replicas[1]);

  replicas[0].all_reduce(again.operation(3, all(3)));
  const Result<bool> done = replicas[0].wait(soon(), {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("replica 2"));
}

void expect_failure(Collective& member, const std::string& why) {
  const Result<bool> done = member.wait(soon(), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kUnavailable);
  EXPECT_THAT(done.error().message, HasSubstr(why));
}

// The replica that did not come.
int give_up(Collective& member, std::uint64_t step) {
  const Result<int> missing = member.abandon(step);
  EXPECT_TRUE(missing) << missing.error().message;
  return missing ? *missing : -7;
}

// Megabytes, so that frames are half written and half read when it ends.
TEST(ReplicaGroup, GoesOnAmongThoseWhoGiveUpTheStepOfALostMember) {
  Replicas replicas(3);
  std::vector<std::unique_ptr<Part>> parts;
  for (const int r : {0, 1}) {
    for (int i = 0; i < 6; ++i) {  // more than begin at once
      parts.push_back(std::make_unique<Part>(1'000'003, r));
      auto operation = parts.back()->operation(1, all(3));
      operation.tag.part = static_cast<std::uint32_t>(i);
      replicas[r].all_reduce(std::move(operation));
    }
  }
  replicas.members[2].reset();
  for (const int r : {0, 1}) {
    const Result<bool> done = replicas[r].wait(soon(), {});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kUnavailable);
    const int missing = give_up(replicas[r], 1);
    EXPECT_TRUE(missing == 2 || r == 1) << missing;
  }
  parts.clear();  // nobody touches their memory any more

  for (std::uint64_t step = 2; step < 5; ++step) {
    Part zero(50'000, 0), one(50'000, 1);
    replicas[0].all_reduce(zero.operation(step, {0, 1}));
    replicas[1].all_reduce(one.operation(step, {0, 1}));
    expect_done(replicas[0]);
    expect_done(replicas[1]);
    EXPECT_EQ(zero.out, Part::sum({&zero, &one}));
    EXPECT_EQ(one.out, zero.out);
  }
}

// One runs out of patience: the others do not wait any longer, nor does the late one.
TEST(ReplicaGroup, FailsAtAllMembersAtOnceWhenOneGivesUp) {
  Part zero(300'000, 0), one(300'000, 1), two(300'000, 2);
  Replicas replicas(3);
  replicas[0].all_reduce(zero.operation(1, all(3)));
  replicas[1].all_reduce(one.operation(1, all(3)));
  EXPECT_GT(give_up(replicas[0], 1), 0) << "1 may not have come either";
  expect_failure(replicas[1], "gave this operation up");
  EXPECT_EQ(give_up(replicas[1], 1), 2);

  replicas[2].all_reduce(two.operation(1, all(3)));
  expect_failure(replicas[2], "gave this operation up");
  ASSERT_TRUE(replicas[2].abandon(1));

  Part again_0(10, 0), again_1(10, 1), again_2(10, 2);
  replicas[0].all_reduce(again_0.operation(2, all(3)));
  replicas[1].all_reduce(again_1.operation(2, all(3)));
  replicas[2].all_reduce(again_2.operation(2, all(3)));
  for (int r = 0; r < 3; ++r) expect_done(replicas[r]);
  EXPECT_EQ(again_2.out, Part::sum({&again_0, &again_1, &again_2}));
}

// Random groups, random impatience: whatever each has of a step when it gives it up, later steps
// are whole.
TEST(ReplicaGroup, AnswersRightAfterAnyStepsThatAnyMembersGaveUp) {
  constexpr int kReplicas = 4;
  constexpr std::uint64_t kSteps = 150;
  Replicas replicas(kReplicas);
  Random random(7);
  std::vector<std::vector<int>> groups;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<int> members;
    for (int r = 0; r < kReplicas; ++r) {
      if (random.uniform() < 0.7) members.push_back(r);
    }
    groups.push_back(members.size() > 1 && step % 10 != 9 ? members : all(kReplicas));
  }
  const auto size = [](std::uint64_t step) -> std::size_t { return 1000 + 37'000 * (step % 5); };
  std::vector<std::vector<std::vector<float>>> sums(
      kReplicas, std::vector<std::vector<float>>(kSteps));  // of those that were not given up
  std::vector<std::jthread> threads;
  for (int r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r] {
      Random own(static_cast<std::uint64_t>(r) + 1);
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        if (std::ranges::count(groups[step], r) == 0) continue;
        const bool patient = step % 10 == 9;
        if (own.uniform() < 0.3 && !patient) std::this_thread::sleep_for(2ms);
        Part first(size(step), r), second(size(step), r);
        for (Part* const part : {&first, &second}) {
          auto operation = part->operation(step, groups[step]);
          operation.tag.part = part == &second ? 1 : 0;
          replicas[r].all_reduce(std::move(operation));
        }
        const Result<bool> done = replicas[r].wait(soon(patient ? 30s : 1ms), {});
        ASSERT_TRUE(done || done.error().code == Code::kUnavailable) << done.error().message;
        if (done && *done) {
          ASSERT_EQ(first.out, second.out);
          sums[static_cast<std::size_t>(r)][step] = first.out;
        } else {
          ASSERT_FALSE(patient) << "replica " << r << " step " << step;
          ASSERT_TRUE(replicas[r].abandon(step));
        }
      }
    });
  }
  threads.clear();
  int whole = 0, given_up = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<std::unique_ptr<Part>> parts;
    std::vector<Part*> pointers;
    for (const int r : groups[step]) {
      parts.push_back(std::make_unique<Part>(size(step), r));
      pointers.push_back(parts.back().get());
    }
    const std::vector<float> expected = Part::sum(pointers);
    for (const int r : groups[step]) {
      const auto& sum = sums[static_cast<std::size_t>(r)][step];
      sum.empty() ? ++given_up : ++whole;
      ASSERT_TRUE(sum.empty() || sum == expected) << "replica " << r << " step " << step;
    }
  }
  EXPECT_GE(whole, 60);  // the patient ones at least
  EXPECT_GT(given_up, 0);
}

TEST(ReplicaGroup, RefusesMembersThatMeanAnotherStepOrSize) {
  for (const bool other_size : {false, true}) {
    Part first(10, 0), second(other_size ? 12 : 10, 1);
    Replicas replicas(2);
    replicas[0].all_reduce(first.operation(1, all(2)));
    replicas[1].all_reduce(second.operation(other_size ? 1 : 2, all(2)));
    int conflicts = 0;
    for (int r = 0; r < 2; ++r) {
      const Result<bool> done = replicas[r].wait(soon(), {});
      ASSERT_FALSE(done);
      conflicts += done.error().code == Code::kConflict ? 1 : 0;
    }
    EXPECT_GE(conflicts, 1);  // the other one may see the end of the connection first
  }
}

// A byte that tells the width of a block is at most 8.
TEST(ReplicaGroup, NamesTheReplicaWhosePackedSumsAreDamaged) {
  const auto damage = [](std::span<char> bytes) {
    const auto header =
        tcp::encode_replica_group_frame({.phase = tcp::ReplicaGroupPhase::kPackedContribution});
    constexpr std::size_t kSame = 6;  // magic, version and phase
    const std::string_view text(bytes.data(), bytes.size());
    const std::string_view begin(reinterpret_cast<const char*>(header.data()), kSame);
    const std::size_t at = text.find(begin);
    if (at != text.npos && at + header.size() < bytes.size()) bytes[at + header.size()] = 9;
  };
  Part first(1000, 0), second(1000, 1);
  const std::vector packed(2, tcp::SumEncoding::kPacked);
  std::vector<std::unique_ptr<test::Relay>> wires;
  Replicas replicas(2, packed, [&](int port) {
    return wires.emplace_back(std::make_unique<test::Relay>(port, damage))->port();
  });
  for (int r = 0; r < 2; ++r) {
    AllReduce operation = (r == 0 ? first : second).operation(1, all(2));
    operation.exact_sums = true;
    replicas[r].all_reduce(std::move(operation));
  }
  int named = 0;
  for (int r = 0; r < 2; ++r) {
    const Result<bool> done = replicas[r].wait(soon(), {});
    ASSERT_FALSE(done);
    const std::string& reason = done.error().message;
    if (reason.find("packed sums") == reason.npos) continue;  // it saw the other one's end first
    ++named;
    EXPECT_EQ(done.error().code, Code::kInvalid);
    EXPECT_THAT(reason, StartsWith("replica " + std::to_string(1 - r)));
    EXPECT_THAT(reason, EndsWith(": packed sums: the length of a block is impossible"));
  }
  EXPECT_GE(named, 1);
}

TEST(ReplicaGroup, NamesTheReplicaThatDoesNotCome) {
  const auto alone = test::make_transport();
  const auto silent = test::make_transport();
  ReplicaGroupGeneration group{.job_uid = "job-1", .job_key = "key", .revision = 1, .replica = 0};
  group.others = {{.replica = 1, .ip = "127.0.0.1", .data_port = silent->data_port()}};
  const auto made = alone->connect_replica_group(group, soon(50ms), {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kTimeout);
  EXPECT_THAT(made.error().message, HasSubstr("replica 1"));
}

// Neighbours and replicas of one generation meet one after the other, whoever comes first.
TEST(ReplicaGroup, IsMetAfterTheNeighboursOfTheSameGeneration) {
  std::vector<std::unique_ptr<TcpTransport>> ranks;  // stage s of replica r: r 2 + s
  for (int i = 0; i < 4; ++i) ranks.push_back(test::make_transport());
  std::vector<std::future<bool>> connecting;
  for (int i = 0; i < 4; ++i) {
    connecting.push_back(std::async(std::launch::async, [&, i] {
      const int replica = i / 2, stage = i % 2;
      const auto port = [&](int r, int s) {
        return ranks[static_cast<std::size_t>(2 * r + s)]->data_port();
      };
      Generation pipeline = test::generation(stage, {port(replica, 0), port(replica, 1)});
      pipeline.replica = replica;
      TcpTransport& own = *ranks[static_cast<std::size_t>(i)];
      auto links = own.connect(pipeline, soon(), {});
      EXPECT_TRUE(links) << links.error().message;
      ReplicaGroupGeneration group{.job_uid = pipeline.job_uid,
                                   .job_key = pipeline.job_key,
                                   .revision = pipeline.revision,
                                   .replica = replica,
                                   .stage = stage};
      group.others = {
          {.replica = 1 - replica, .ip = "127.0.0.1", .data_port = port(1 - replica, stage)}};
      auto made = own.connect_replica_group(group, soon(), {});
      EXPECT_TRUE(made) << made.error().message;
      if (!made) return false;
      Part part(100, replica);
      (*made)->all_reduce(part.operation(1, {0, 1}));
      const auto done = (*made)->wait(soon(), {});
      return done && *done && part.out[4] == 1002;
    }));
  }
  for (auto& one : connecting) EXPECT_TRUE(one.get());
}

}  // namespace replica_group_test
}  // namespace weir::transport
