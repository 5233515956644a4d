// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/link_model.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

namespace weir::estimator {
namespace link_model_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr LinkKey kLink0{.boundary = 0}, kLink1{.boundary = 1};

SystemTime at(int seconds) {
  return SystemTime(std::chrono::hours(1)) + 1s * seconds;
}

LinkSample sample(const LinkKey& link, double rate, double rtt = 0) {
  return {link, "a", "b", rate, rtt};
}
// n scrapes of one link, one a second from `first` on.
std::vector<Scrape> scrapes(int first, int n, double rate, const LinkKey& link = kLink0) {
  std::vector<Scrape> result;
  for (int i = 0; i < n; ++i) result.push_back({at(first + i), {sample(link, rate)}});
  return result;
}
TEST(LinkModel, KeepsTheNewest32) {
  LinkModelState state;
  add_scrapes(state, scrapes(0, 40, 100));
  ASSERT_EQ(state.scrapes.size(), kKeptScrapes);
  EXPECT_EQ(state.scrapes.front().time, at(8));
}

TEST(LinkModel, TakesOnlyWhatIsNewerAndSorts) {
  LinkModelState state;
  add_scrapes(state, scrapes(0, 3, 100));
  std::vector<Scrape> again = scrapes(1, 4, 200);
  std::swap(again[2], again[3]);
  again.push_back(again[2]);
  add_scrapes(state, again);
  ASSERT_EQ(state.scrapes.size(), 5U);
  EXPECT_EQ(state.scrapes[2].links[0].bytes_per_second, 100) << "an old scrape is not rewritten";
  EXPECT_EQ(state.scrapes[3].time, at(3));
  EXPECT_EQ(state.scrapes[4].time, at(4));
}

// Another rank map: the same place in the plan is a link between other nodes.
TEST(LinkModel, RatesBetweenOtherNodesAreThoseOfAnotherLink) {
  LinkModelState state;
  std::vector<Scrape> before = scrapes(0, 20, 1);
  for (Scrape& scrape : before) scrape.links.push_back(sample(kLink1, 5));
  add_scrapes(state, before);
  std::vector<Scrape> after = scrapes(20, 2, 100);
  for (Scrape& scrape : after) scrape.links[0].to_node = "c";
  add_scrapes(state, after);

  const Estimates estimates = estimates_of(state, Freshness::kFresh, at(22), 60s);
  ASSERT_EQ(estimates.links.size(), 2U);
  EXPECT_EQ(estimates.links[0].to_node, "c");
  EXPECT_EQ(estimates.links[0].now, 100);
  EXPECT_DOUBLE_EQ(estimates.links[0].mean, 100);
  EXPECT_DOUBLE_EQ(estimates.links[1].mean, 5);
  EXPECT_TRUE(std::isnan(estimates.rates.rates.at(kLink0).front()));
}

TEST(LinkModel, AnUnusableRateIsNoSample) {
  LinkModelState state;
  add_scrapes(state, {{at(0), {sample(kLink0, 0), sample(kLink1, std::nan(""))}},
                      {at(1), {sample(kLink0, std::numeric_limits<double>::infinity())}},
                      {at(2), {sample(kLink0, 5), sample(kLink1, -1)}}});
  ASSERT_EQ(state.scrapes.size(), 1U);
  EXPECT_EQ(state.scrapes[0].links.size(), 1U);
}

TEST(LinkModel, VectorsAreJointInTime) {
  LinkModelState state;
  add_scrapes(state, {{at(0), {sample(kLink0, 1)}},
                      {at(5), {sample(kLink0, 2, 0.001), sample(kLink1, 7)}},
                      {at(10), {sample(kLink1, 8)}}});

  const RateVectors rates = estimates_of(state, Freshness::kFresh, at(10), 60s).rates;

  EXPECT_THAT(rates.times, ElementsAre(at(0), at(5), at(10)));
  EXPECT_THAT(rates.rates.at(kLink0), ElementsAre(1, 2, testing::IsNan()));
  EXPECT_THAT(rates.rates.at(kLink1), ElementsAre(testing::IsNan(), 7, 8));
  EXPECT_EQ(rates.rtt_seconds.at(kLink0), 0.001);
  EXPECT_FALSE(rates.rtt_seconds.contains(kLink1)) << "unknown";
}

TEST(LinkModel, NowIsTheMedianOfTheNewestThree) {
  LinkModelState state;
  add_scrapes(state, scrapes(0, 10, 100));
  add_scrapes(state, scrapes(10, 2, 20));
  EXPECT_EQ(estimates_of(state, Freshness::kFresh, at(12), 60s).links.at(0).now, 20);
  add_scrapes(state, scrapes(12, 1, 500));
  EXPECT_EQ(estimates_of(state, Freshness::kFresh, at(12), 60s).links.at(0).now, 20)
      << "one outlier";
}

TEST(LinkModel, MeanIsThatOfTheTimeThatBytesTake) {
  LinkModelState state;
  add_scrapes(state, scrapes(0, 8, 100));
  add_scrapes(state, scrapes(8, 8, 25));
  const auto link = estimates_of(state, Freshness::kFresh, at(16), 60s).links.at(0);
  EXPECT_EQ(link.now, 25);
  EXPECT_DOUBLE_EQ(link.mean, 40);
}

// Links between stages are so fast that most messages cannot be timed; sums go over a slow one.
TEST(LinkModel, ScrapesOfSumsAloneCountForLinksBetweenStagesToo) {
  constexpr LinkKey kSum{.boundary = 0, .direction = Direction::kSync, .sender = 1};
  LinkModelState state, sync;
  add_scrapes(state, scrapes(0, 2, 100));
  add_scrapes(sync, scrapes(1, 100, 5, kSum));
  Estimates estimates = estimates_of(state, Freshness::kFresh, at(101), 60s);
  ASSERT_EQ(estimates.freshness, Freshness::kStale);
  add_sync_links(estimates, sync, Freshness::kFresh, at(101), 60s);
  EXPECT_EQ(estimates.freshness, Freshness::kFresh);
  EXPECT_EQ(estimates.detail, "");
  EXPECT_EQ(estimates.last_sample, at(100));
  EXPECT_EQ(estimates.rates.times.size(), kKeptScrapes);
  EXPECT_EQ(estimates.sync_links.at(0).now, 5);
  EXPECT_FALSE(estimates.rates.rates.contains(kSum));

  LinkModelState few;
  add_scrapes(few, scrapes(1, 2, 5, kSum));
  estimates = estimates_of(state, Freshness::kFresh, at(3), 60s);
  add_sync_links(estimates, few, Freshness::kFresh, at(3), 60s);
  EXPECT_THAT(estimates.rates.rates.at(kLink0), ElementsAre(100, 100, testing::IsNan()));
  EXPECT_THAT(estimates.rates.times, ElementsAre(at(0), at(1), at(2)));

  estimates = estimates_of(state, Freshness::kQueryFailed, at(3), 60s);
  add_sync_links(estimates, few, Freshness::kQueryFailed, at(3), 60s);
  EXPECT_EQ(estimates.freshness, Freshness::kQueryFailed);
}

TEST(LinkModel, NowOfALinkWithoutFreshTrafficIsItsLastRate) {
  LinkModelState state;
  add_scrapes(state, scrapes(0, 1, 100, kLink1));
  add_scrapes(state, scrapes(1, 5, 50, kLink0));
  const Estimates estimates = estimates_of(state, Freshness::kFresh, at(6), 60s);
  ASSERT_EQ(estimates.links.size(), 2U);
  EXPECT_EQ(estimates.links[1].link, kLink1);
  EXPECT_EQ(estimates.links[1].now, 100);
}

TEST(LinkModel, FreshnessFollowsTheNewestSample) {
  LinkModelState state;
  EXPECT_EQ(estimates_of(state, Freshness::kFresh, at(0), 60s).freshness, Freshness::kNoSeries);
  EXPECT_EQ(estimates_of(state, Freshness::kNotConfigured, at(0), 60s).freshness,
            Freshness::kNotConfigured);
  add_scrapes(state, scrapes(0, 1, 100));
  EXPECT_EQ(estimates_of(state, Freshness::kFresh, at(60), 60s).freshness, Freshness::kFresh);

  const Estimates stale = estimates_of(state, Freshness::kFresh, at(61), 60s);
  EXPECT_EQ(stale.freshness, Freshness::kStale);
  EXPECT_EQ(stale.detail, "the newest sample is 61 s old, the limit 60 s");
  EXPECT_EQ(stale.last_sample, at(0));
  EXPECT_EQ(estimates_of(state, Freshness::kQueryFailed, at(1), 60s).freshness,
            Freshness::kQueryFailed)
      << "a failed query shows at once";
}

TEST(LinkModel, StageTimesPassThrough) {
  LinkModelState state;
  state.stage_seconds[2] = {0.02, 0.04};
  const Estimates estimates = estimates_of(state, Freshness::kNoSeries, at(0), 60s);
  EXPECT_EQ(estimates.stage_seconds.at(2).second, 0.04);
  EXPECT_THAT(estimates.links, IsEmpty());
}

TEST(Freshness, NamesAreReasonsOfTheCondition) {
  std::string names;
  for (const Freshness freshness :
       {Freshness::kFresh, Freshness::kNotConfigured, Freshness::kNoSeries, Freshness::kStale,
        Freshness::kQueryFailed})
    names += std::string(name(freshness)) + " ";
  EXPECT_EQ(names, "Fresh NotConfigured NoSeries Stale QueryFailed ");
}

}  // namespace link_model_test
}  // namespace weir::estimator
