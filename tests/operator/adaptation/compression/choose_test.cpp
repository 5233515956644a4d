// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/compression/choose.h"

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/schedule/bounds.h"

namespace weir::compression {
namespace choose_test {

using schedule::Backwards;
using schedule::Codec;
using schedule::Codecs;

// f = 1, b = 2 on each stage; the time of a raw transfer by link; 1,024 numbers a sample.
Raw raw_with(const std::vector<double>& c, int micro_batches = 32, int number_bytes = 4) {
  Raw raw{.micro_batches = micro_batches, .samples = 2, .number_bytes = number_bytes};
  raw.model.stages.assign(c.size() + 1, {from_seconds(1), from_seconds(2)});
  for (const double seconds : c) {
    raw.model.forward.push_back({.transfer = from_seconds(seconds), .latency = {}, .trace = {}});
    raw.boundary_bytes.push_back(std::int64_t{2} * 1024 * number_bytes);
  }
  raw.model.backward = raw.model.forward;
  return raw;
}

TEST(Choose, LeavesLinksRawThatAnOrderHides) {
  EXPECT_TRUE(choose(raw_with({0.25, 2, 0.25}), Codec::kInt6, Backwards::kWhole).raw());
  EXPECT_TRUE(choose(raw_with({0, 0, 0}), Codec::kInt6, Backwards::kWhole).raw());
}

TEST(Choose, TakesTheFinestThatHelpsOnTheBoundLinkAlone) {
  // Half of the bytes of a transfer of 5 are hidden by f + b = 3.
  EXPECT_EQ(describe(choose(raw_with({0.25, 5, 0.25}), Codec::kInt6, Backwards::kWhole)),
            "1-2:BF16");
  EXPECT_EQ(describe(choose(raw_with({0.25, 10, 0.25}), Codec::kInt6, Backwards::kWhole)),
            "1-2:Int8");
  EXPECT_EQ(describe(choose(raw_with({0.25, 20, 0.25}), Codec::kInt6, Backwards::kWhole)),
            "1-2:Int6");
  EXPECT_EQ(describe(choose(raw_with({0.25, 20, 0.25}), Codec::kInt8, Backwards::kWhole)),
            "1-2:Int8");
  EXPECT_EQ(describe(choose(raw_with({10, 10, 10}), Codec::kInt8, Backwards::kWhole)),
            "0-1:Int8, 1-2:Int8, 2-3:Int8");
}

TEST(Choose, UsesNoCodecThatChangesNothing) {
  EXPECT_EQ(describe(choose(raw_with({0.25, 5, 0.25}, 32, 2), Codec::kInt6, Backwards::kWhole)),
            "1-2:Int8");
  EXPECT_TRUE(choose(raw_with({0.25, 50, 0.25}, 32, 2), Codec::kBf16, Backwards::kWhole).raw());
}

TEST(Choose, TreatsADirectionByItself) {
  Raw raw = raw_with({0.25, 0.25, 0.25});
  raw.model.backward[1].transfer = from_seconds(10);
  EXPECT_EQ(describe(choose(raw, Codec::kInt8, Backwards::kWhole)), "1-2:Raw/Int8");
}

// A fast link between slow CPUs: what codecs save of the transfer costs more in the stages.
TEST(Choose, RefusesCodecsThatCostMoreThanTheyGain) {
  Raw raw = raw_with({0.25, 5, 0.25});
  const Codecs coarse{{Codec::kRaw, Codec::kInt8, Codec::kRaw},
                      {Codec::kRaw, Codec::kInt8, Codec::kRaw}};
  const auto least = [](const Raw& job, const Codecs& codecs) {
    return schedule::least_step(with_codecs(job, codecs), job.micro_batches, Backwards::kWhole);
  };
  EXPECT_LT(least(raw, coarse), least(raw, {}));
  EXPECT_FALSE(choose(raw, Codec::kInt8, Backwards::kWhole).raw());

  constexpr double kNumbers = 2 * 1024;  // of a micro-batch
  raw.codec_seconds = 1.2 / kNumbers;    // f + b of both stages: 3 -> 5.4
  EXPECT_GT(least(raw, coarse), least(raw, {}));
  EXPECT_TRUE(choose(raw, Codec::kInt8, Backwards::kWhole).raw());

  raw.codec_seconds = 0.1 / kNumbers;
  EXPECT_FALSE(choose(raw, Codec::kInt8, Backwards::kWhole).raw());
}

// Against all choices of codecs for the slow links of small pipelines.
TEST(Choose, IsAsGoodAsAnyChoice) {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    Raw raw = raw_with({8 * random.uniform(), 8 * random.uniform()});
    raw.model.backward[0].transfer = from_seconds(8 * random.uniform());
    const auto bound = [&](const Codecs& codecs) {
      return to_seconds(
          schedule::least_step(with_codecs(raw, codecs), raw.micro_batches, Backwards::kWhole));
    };
    double best = bound({});
    for (int all = 0; all < 4 * 4 * 4 * 4; ++all) {
      const auto at = [&](int place) { return schedule::kCodecs[(all >> (2 * place)) % 4]; };
      const Codecs codecs{{at(0), at(1)}, {at(2), at(3)}};
      bool of_slow_links = true;
      for (const std::size_t b : {0UL, 1UL}) {
        const auto quick = [&](const schedule::LinkModel& link) {
          return to_seconds(link.transfer) < kSlow * 3;
        };
        of_slow_links &= !quick(raw.model.forward[b]) || codecs.forward[b] == Codec::kRaw;
        of_slow_links &= !quick(raw.model.backward[b]) || codecs.backward[b] == Codec::kRaw;
      }
      if (of_slow_links) best = std::min(best, bound(codecs));
    }
    EXPECT_LE(bound(choose(raw, Codec::kInt6, Backwards::kWhole)), 1.04 * best * (1 + 1e-9)) << i;
  }
}

}  // namespace choose_test
}  // namespace weir::compression
