// SPDX-License-Identifier: Apache-2.0
// Tensors first, then sums, then the rest, each direction by itself, and nobody is shut out.
#include "worker/transport/tcp/traffic_order.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "worker/transport/tcp/replica_group.h"

namespace weir::transport::tcp {
namespace traffic_order_test {

using namespace std::chrono_literals;
using enum TrafficClass;
using enum TrafficDirection;
using Time = TrafficOrder::Time;

constexpr std::size_t kMessage = 1'000'000;
constexpr Time kStart{100s};

Arrival carried(double rate) {
  return {.counted_bytes = static_cast<std::int64_t>(rate), .busy = 1s};
}

struct Rig {
  std::shared_ptr<TrafficOrder> order = std::make_shared<TrafficOrder>();
  BoundaryTraffic out{order, kOut}, in{order, kIn};
  int wakes = 0;
  BulkTraffic bulk{order, kOut, [this] { ++wakes; }};

  // Bytes that it moves within a second while it asks each millisecond.
  std::size_t moved_in_a_second(TrafficClass of, Time from) {
    std::size_t moved = 0;
    for (Time now = from; now < from + 1s; now += 1ms) {
      const std::size_t bytes = bulk.allowance(of, now);
      if (bytes == 0) continue;
      EXPECT_EQ(bytes, BulkTraffic::kQuantum);
      bulk.moved(bytes, now);
      moved += bytes;
    }
    return moved;
  }
};

TEST(TrafficOrder, EachClassYieldsToThoseBefore) {
  TrafficOrder order;
  order.begin(kSums, kOut);
  EXPECT_TRUE(order.yields(kBackground, kOut));
  EXPECT_FALSE(order.yields(kSums, kOut)) << "not to its own";
  EXPECT_FALSE(order.yields(kBackground, kIn)) << "another direction";
  order.begin(kBoundary, kOut);
  EXPECT_TRUE(order.yields(kSums, kOut));
  EXPECT_FALSE(order.yields(kBoundary, kOut));
  order.end(kSums, kOut);
  EXPECT_TRUE(order.yields(kBackground, kOut));
  order.end(kBoundary, kOut);
  EXPECT_FALSE(order.yields(kBackground, kOut));
}

TEST(TrafficOrder, BulkMovesAllWhileNoTensorIsOnItsWay) {
  Rig rig;
  EXPECT_EQ(rig.bulk.allowance(kSums, kStart), BulkTraffic::kAll);
  rig.out.begin(kMessage, kStart);
  rig.bulk.moved(kMessage, kStart);  // so it has had its share
  EXPECT_EQ(rig.bulk.allowance(kSums, kStart), 0U);
  EXPECT_TRUE(rig.bulk.waits());
  rig.out.end(kMessage);
  EXPECT_EQ(rig.wakes, 1);
  EXPECT_EQ(rig.bulk.allowance(kSums, kStart + 5ms), BulkTraffic::kAll);
  EXPECT_EQ(rig.bulk.waited(), 5ms);
}

TEST(TrafficOrder, WhoDoesNotWaitIsNotWoken) {
  Rig rig;
  rig.out.begin(kMessage, kStart);
  rig.out.end(kMessage);
  rig.out.begin(kMessage, kStart);
  rig.bulk.moved(kMessage, kStart);
  EXPECT_EQ(rig.bulk.allowance(kSums, kStart), 0U);
  rig.bulk.idle(kStart);
  rig.out.end(kMessage);
  EXPECT_EQ(rig.wakes, 0);
}

TEST(TrafficOrder, BulkIsNeverShutOut) {
  Rig rig;
  rig.out.begin(kMessage, kStart);
  EXPECT_GT(rig.bulk.allowance(kSums, kStart), 0U) << "what has moved nothing lately moves at once";
  const std::size_t least = rig.moved_in_a_second(kSums, kStart);
  EXPECT_GE(least, std::size_t{64} << 10U);
  EXPECT_LE(least, std::size_t{96} << 10U);
  // With a port that is known, a sixteenth of it.
  rig.out.carried(carried(10e6), kStart + 1s);
  const std::size_t share = rig.moved_in_a_second(kSums, kStart + 1s);
  EXPECT_NEAR(static_cast<double>(share), 10e6 / 16, 0.05 * 10e6 / 16);
}

TEST(TrafficOrder, WhatMovedFreelyCountsForTheLeastShare) {
  Rig rig;
  rig.bulk.moved(kMessage, kStart);
  rig.out.begin(kMessage, kStart);
  EXPECT_EQ(rig.bulk.allowance(kSums, kStart + 200ms), 0U);
  EXPECT_GT(rig.bulk.allowance(kSums, kStart + 250ms), 0U) << "but not for long";
  EXPECT_EQ(rig.bulk.again(), kStart + 250ms);
}

TEST(TrafficOrder, NobodyWaitsForALinkThatIsLimitedElsewhere) {
  Rig rig;
  BoundaryTraffic slow(rig.order, kOut);
  rig.out.carried(carried(10e6), kStart);
  slow.carried(carried(4e6), kStart);
  slow.begin(kMessage, kStart);
  EXPECT_FALSE(rig.order->yields(kSums, kOut));
  // The port has become slower: what it carried 10 s ago says nothing now.
  rig.out.carried(carried(5e6), kStart + 11s);
  slow.carried(carried(4e6), kStart + 11s);
  EXPECT_TRUE(rig.order->yields(kSums, kOut));
  slow.end(kMessage);
  EXPECT_FALSE(rig.order->yields(kSums, kOut));
}

TEST(TrafficOrder, SmallMessagesAreNotWorthAPause) {
  Rig rig;
  rig.out.begin(100, kStart);
  EXPECT_FALSE(rig.order->yields(kSums, kOut));
  rig.out.end(100);
  rig.out.begin(kMessage, kStart);
  EXPECT_TRUE(rig.order->yields(kSums, kOut));
}

TEST(TrafficOrder, ALinkThatEndsIsNotWaitedFor) {
  Rig rig;
  rig.in.begin(kMessage, kStart);
  rig.in.begin(kMessage, kStart);
  rig.in.stop();
  EXPECT_FALSE(rig.order->yields(kSums, kIn));
  rig.in.end(kMessage);
  rig.in.begin(kMessage, kStart);
  EXPECT_FALSE(rig.order->yields(kSums, kIn));
  {
    BoundaryTraffic other(rig.order, kIn);
    other.begin(kMessage, kStart);
    EXPECT_TRUE(rig.order->yields(kSums, kIn));
  }
  EXPECT_FALSE(rig.order->yields(kSums, kIn));
}

TEST(TrafficOrder, NoEndIsMissedByManyThreads) {
  const auto order = std::make_shared<TrafficOrder>();
  std::atomic<int> wakes = 0;
  std::atomic<bool> over = false;
  std::thread links([&] {
    BoundaryTraffic link(order, kOut);
    for (int i = 0; i < 300'000; ++i) {
      link.begin(kMessage, kStart);
      link.end(kMessage);
    }
    over = true;
  });
  BulkTraffic bulk(order, kOut, [&] {
    ++wakes;
    wakes.notify_all();
  });
  bulk.moved(kMessage, kStart);
  while (!over) {
    const int seen = wakes;
    // Hangs here if an end between the look and the wait is missed.
    if (bulk.allowance(kSums, kStart) == 0) wakes.wait(seen);
  }
  links.join();
  EXPECT_EQ(bulk.allowance(kSums, kStart), BulkTraffic::kAll);
}

TEST(TrafficOrder, WhatBulkMayHoldInTheKernel) {
  EXPECT_EQ(bulk_buffer_bytes(0, 0.1, 1448, 1), 0) << "nothing is known";
  EXPECT_EQ(bulk_buffer_bytes(10e6, 0.1e-3, 1448, 1), 16 * 1024) << "the least";
  EXPECT_EQ(bulk_buffer_bytes(10e6, 0.1e-3, 1448, 4), 4 * 1024) << "of which each has its part";
  EXPECT_EQ(bulk_buffer_bytes(100e6, 0.1e-3, 1448, 1), 100'000) << "a millisecond";
  EXPECT_EQ(bulk_buffer_bytes(10e6, 0.1e-3, 65'483, 4), 2 * 65'483) << "two segments";
  EXPECT_EQ(bulk_buffer_bytes(100e6, 20e-3, 1448, 1), 4'100'000) << "what is on its way, twice";
}

// Two replicas over a pair of sockets, the first of which has an order.
struct Group {
  std::shared_ptr<TrafficOrder> order = std::make_shared<TrafficOrder>();
  std::array<std::unique_ptr<ReplicaGroup>, 2> members;
  std::array<std::vector<double>, 2> in;
  std::array<std::vector<float>, 2> out;

  Group() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    for (std::size_t r = 0; r < 2; ++r) {
      const int other = r == 0 ? 1 : 0;
      members[r] = std::make_unique<ReplicaGroup>(
          static_cast<int>(r), std::vector<ReplicaGroup::Connected>{{other, "the other", ends[r]}},
          SumEncoding::kRaw, 128 * 1024, r == 0 ? order : nullptr);
      in[r].assign(kMessage, 1.0 + static_cast<double>(r));
      out[r].assign(kMessage, 0);
    }
  }
  void begin(bool background) {
    for (std::size_t r = 0; r < 2; ++r) {
      members[r]->all_reduce({.tag = {.step = 1},
                              .members = {0, 1},
                              .count = kMessage,
                              .in = std::as_bytes(std::span(in[r])),
                              .out = std::as_writable_bytes(std::span(out[r])),
                              .combine = sum_doubles_to_floats(),
                              .background = background});
    }
  }
  bool done(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    return std::ranges::all_of(members, [&](const auto& member) {
      const auto complete = member->wait(deadline, {});
      return complete && *complete;
    });
  }
};

TEST(TrafficOrder, SumsOfMegabytesWaitForATensorEitherWay) {
  for (const auto direction : {kOut, kIn}) {
    Group group;
    group.order->begin(kBoundary, direction);
    group.begin(false);
    EXPECT_FALSE(group.done(300ms)) << "4 MB at 64 KiB a second";
    group.order->end(kBoundary, direction);
    EXPECT_TRUE(group.done(20s));
    EXPECT_EQ(group.out[0], std::vector<float>(kMessage, 3));
    EXPECT_EQ(group.out[1], group.out[0]);
  }
}

TEST(TrafficOrder, AveragesYieldToSumsOfOthers) {
  Group group;
  group.order->begin(kSums, kOut);
  group.begin(true);
  EXPECT_FALSE(group.done(300ms));
  EXPECT_FALSE(group.order->yields(kBackground, kIn)) << "they are no sums themselves";
  group.order->end(kSums, kOut);
  EXPECT_TRUE(group.done(20s));
}

TEST(TrafficOrder, AGroupThatEndsNeitherWaitsNorIsWaitedFor) {
  Group group;
  group.order->begin(kBoundary, kOut);
  group.begin(false);
  EXPECT_FALSE(group.done(100ms));
  EXPECT_TRUE(group.order->yields(kBackground, kIn));
  group.members[0]->abort("the generation is over");
  for (int i = 0; i < 2000 && group.order->yields(kBackground, kIn); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(group.order->yields(kBackground, kIn)) << "before the object is gone";
  group.members[0].reset();
  group.order->end(kBoundary, kOut);  // wakes nobody: its descriptor is closed
}

TEST(TrafficOrder, SumsThatGoOnAreToldAndTaken) {
  Group group;
  group.order->begin(kBoundary, kOut);
  group.begin(false);
  EXPECT_FALSE(group.done(100ms));
  EXPECT_TRUE(group.order->yields(kBackground, kIn)) << "to the sums";
  group.order->end(kBoundary, kOut);
  EXPECT_TRUE(group.done(20s));
  group.members[0].reset();
  EXPECT_FALSE(group.order->yields(kBackground, kIn));
}

}  // namespace traffic_order_test
}  // namespace weir::transport::tcp
