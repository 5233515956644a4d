// SPDX-License-Identifier: Apache-2.0
// Threads: each part of an op runs once, and every op gives the same bits for every number of them.
#include "worker/stage/ops/team.h"

#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"
#include "tests/worker/stage/ops/op_cases.h"
#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/gemm.h"
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {
namespace team_test {

using Index = Team::Index;
constexpr int kThreads[] = {1, 2, 3, 5, 8};

std::vector<std::pair<Index, Index>> parts_of(Team& team, Index count, Index least) {
  std::mutex mutex;
  std::set<std::pair<Index, Index>> parts;
  team.run(count, least, [&](Index begin, Index end) {
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(parts.emplace(begin, end).second);
  });
  return {parts.begin(), parts.end()};
}

TEST(Team, RunsEachElementOnceInPartsThatAreWorthAThread) {
  for (const int threads : kThreads) {
    Team team(threads);
    for (const Index count : {0, 1, 63, 64, 127, 128, 200, 640, 1000, 1023}) {
      const auto parts = parts_of(team, count, 64);
      EXPECT_EQ(std::ssize(parts), count == 0 ? 0 : std::clamp<Index>(count / 64, 1, threads));
      Index next = 0;
      for (const auto& [begin, end] : parts) {
        EXPECT_EQ(begin, next);
        EXPECT_EQ(begin % 64, 0);
        EXPECT_TRUE(end - begin >= 64 || parts.size() == 1);
        next = end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Team, RunsPartsAtTheSameTime) {
  Team team(3);
  std::atomic<int> arrived{0};
  team.run(3, 1, [&](Index, Index) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();  // for ever, if one thread ran two parts
  });
  EXPECT_EQ(arrived, 3);
}

// Numbers after many rounds, each of which reads what other threads wrote in the round before.
// Rounds with fewer parts than threads come between full ones.
std::vector<int> after_rounds(int threads) {
  constexpr Index kCount = 7;
  Team team(threads);
  std::vector<int> values(kCount), next(kCount);
  for (int round = 0; round < 20'000; ++round) {
    team.run(round % 3 == 0 ? 2 : kCount, 1, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        next[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>((i + 1) % kCount)] + 1;
      }
    });
    std::swap(values, next);
  }
  return values;
}

TEST(Team, SeesInEachRoundWhatTheRoundBeforeWrote) {
  EXPECT_EQ(after_rounds(5), after_rounds(1));
}

TEST(Team, SleepsBetweenRoundsAndWakesUp) {
  Team team(4);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than threads spin
    EXPECT_EQ(parts_of(team, 4, 1).size(), 4U);
  }
}

// A case on memory of its own, in a precision.
struct Trial {
  Trial(const test::OpCase& of, Precision precision, int threads) : scratch(of.scratch) {
    test::OpMemory memory{.tokens = of.tokens.data(), .scratch = scratch.data(), .result = &result};
    for (const test::OpArray& array : of.arrays) {
      std::vector<std::byte>& bytes = arrays.emplace_back(array.values.size() * sizeof(float));
      if (precision == Precision::kBf16 && array.elements) {
        bytes.resize(array.values.size() * sizeof(Bf16));
        round(array.values.size(), array.values.data(), reinterpret_cast<Bf16*>(bytes.data()));
      } else {
        std::memcpy(bytes.data(), array.values.data(), bytes.size());
      }
      memory.arrays.push_back(bytes.data());
    }
    // Every op is split, however small it is.
    of.calls(*make_host_kernels(precision, threads, 1), memory);
  }
  std::vector<std::vector<std::byte>> arrays;
  std::vector<float> scratch;
  double result = 0;
};

class OpsOnThreads : public ::testing::TestWithParam<test::OpCase> {};

TEST_P(OpsOnThreads, GiveTheBitsOfOneThread) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Trial one(GetParam(), precision, 1);
    for (const int threads : kThreads) {
      const Trial more(GetParam(), precision, threads);
      EXPECT_EQ(more.result, one.result) << threads << " threads";
      EXPECT_EQ(more.arrays, one.arrays) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpsOnThreads, ::testing::ValuesIn(test::op_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(GemmOnThreads, GivesTheBitsOfOneThread) {
  // Flat, tall, square, and larger than the packed blocks; none a multiple of a tile.
  for (const GemmShape shape : {GemmShape{1, 300, 70}, {301, 1, 70}, {131, 145, 300}, {7, 5, 3}}) {
    const auto values = [](int count, std::uint64_t seed) {
      return test::floats(test::random_doubles(static_cast<std::size_t>(count), seed));
    };
    const auto a = values(shape.m * shape.k, 1), b = values(shape.k * shape.n, 2);
    const auto before = values(shape.m * shape.n, 3);
    for (const Sum sum : {Sum::kReplace, Sum::kAdd}) {
      auto expected = before;
      gemm(shape, rows_of(a.data(), shape.k), rows_of(b.data(), shape.n), expected.data(), shape.n,
           sum);
      for (const int threads : kThreads) {
        Team team(threads, 1);
        auto actual = before;
        gemm(team, shape, rows_of(a.data(), shape.k), rows_of(b.data(), shape.n), actual.data(),
             shape.n, sum);
        EXPECT_EQ(actual, expected) << shape.m << "x" << shape.n << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace team_test
}  // namespace weir::stage::ops
