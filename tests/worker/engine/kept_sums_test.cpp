// SPDX-License-Identifier: Apache-2.0
// A replica is lost in the middle of a step. The others finish their part of it, keep the sums, and
// a generation without that replica computes the rest of the step only: no bit of a loss changes.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine::test {
namespace kept_sums_test {

using schedule::Ids;
using testing::Each;
using testing::HasSubstr;
using weir::test::kTiedLlama;

constexpr std::int64_t kSteps = 8, kLostAt = 3;
constexpr double kLimit = 0.5;

// Breaks before the sums of one step.
class Breaking final : public transport::Collective {
 public:
  explicit Breaking(std::unique_ptr<transport::Collective> inner) : inner_(std::move(inner)) {}
  void all_reduce(transport::AllReduce operation) override {
    if (operation.tag.step == kLostAt) return abort("broken by the test");
    inner_->all_reduce(std::move(operation));
  }
  void all_gather(transport::AllGather operation) override {
    inner_->all_gather(std::move(operation));
  }
  Result<bool> wait(std::chrono::steady_clock::time_point deadline, std::stop_token stop) override {
    return inner_->wait(deadline, std::move(stop));
  }
  Result<int> abandon(std::uint64_t step) override { return inner_->abandon(step); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  transport::CollectiveCounters counters() const override { return inner_->counters(); }
  std::optional<Error> trouble() const override { return inner_->trouble(); }
  std::optional<transport::Absence> absent(std::span<const int> members,
                                           std::uint64_t step) const override {
    return inner_->absent(members, step);
  }

 private:
  const std::unique_ptr<transport::Collective> inner_;
};

struct Case {
  std::string model = "mlp";
  int stages = 1;
  std::vector<int> shares;
  // The last replica of each generation but the last one is lost, in the collective of this stage.
  std::vector<std::vector<int>> next_shares = {};
  int broken_stage = 0;
  schedule::Family family = schedule::Family::kKfkb;
  bool splits = false;
};

std::string text(const Case& one) {
  return one.model + ", " + std::to_string(one.stages) + " stages, " +
         std::to_string(one.shares.size()) + " replicas, stage " +
         std::to_string(one.broken_stage) + (one.splits ? ", split" : "");
}

int sum(const std::vector<int>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0);
}

class Job {
 public:
  explicit Job(const Case& one)
      : case_(one),
        group_(one.model, one.stages * static_cast<int>(one.shares.size()), kSteps, kLimit, nullptr,
               nullptr, [this](auto&&... args) { return connected(std::move(args)...); }) {}

  Group& group() { return group_; }
  int ranks(const std::vector<int>& shares) const {
    return case_.stages * static_cast<int>(shares.size());
  }
  schedule::Plan plan(std::uint32_t revision, const std::vector<int>& shares) {
    const int least = *std::ranges::min_element(shares);
    auto plan =
        plan_of(case_.stages, group_.layers(), least, case_.family, 1, schedule::Dispatch::kHint);
    plan.micro_batches = shares;
    plan.revision = revision;
    plan.trigger = revision == 1 ? schedule::Trigger::kInitial : schedule::Trigger::kRegroup;
    if (case_.splits) {
      plan.schedule.split = schedule::Split{};
      for (const int cap : plan.schedule.caps) {
        plan.schedule.split->held.push_back(cap + 1);
        plan.schedule.split->postponed.push_back(1);
      }
    }
    return plan;
  }
  // Of the replica, as all of its ranks tell.
  Ids kept(int replica) {
    std::vector<Ids> told;
    for (int s = 0; s < case_.stages; ++s) {
      const protocol::Inventory inventory = group_.inventory(replica * case_.stages + s);
      if (inventory.held.size() != 1 || !inventory.held[0].sums) return {};
      EXPECT_EQ(inventory.held[0].step, kLostAt);
      EXPECT_EQ(inventory.held[0].sums->micro_batch_size, 2);
      EXPECT_EQ(inventory.held[0].sums->micro_batches, sum(case_.shares));
      told.push_back(inventory.held[0].sums->ids);
    }
    EXPECT_THAT(told, Each(told.front()));
    return told.front();
  }

 private:
  Result<Group::Collective> connected(int /*rank*/, const transport::ReplicaGroupGeneration& of,
                                      Group::Collective tcp, SteadyTime /*deadline*/,
                                      const std::stop_token& /*stop*/) {
    const bool breaks = !of.of_ties && of.revision <= case_.next_shares.size() &&
                        of.stage == case_.broken_stage &&
                        of.replica == static_cast<int>(of.others.size());
    if (!breaks) return tcp;
    return Group::Collective(std::make_unique<Breaking>(std::move(tcp)));
  }

  const Case case_;
  Group group_;
};

TEST(KeptSums, OfTheOthersEndTheStepThatALossHasHit) {
  for (const Case& one : {
           Case{.shares = {2, 3, 1}, .next_shares = {{3, 3}}},
           Case{.stages = 2, .shares = {2, 3, 1}, .next_shares = {{3, 3}}},
           Case{.stages = 2, .shares = {2, 3, 1}, .next_shares = {{3, 3}}, .broken_stage = 1},
           Case{.stages = 2, .shares = {3, 2}, .next_shares = {{5}}},
           Case{.stages = 3, .shares = {2, 2, 2}, .next_shares = {{3, 3}, {6}}, .broken_stage = 1},
           Case{.shares = {2, 2, 3, 1}, .next_shares = {{3, 3, 2}, {4, 4}, {8}}},
           Case{.model = kTiedLlama, .shares = {2, 3, 1}, .next_shares = {{3, 3}, {6}}},
           Case{
               .model = kTiedLlama, .stages = 2, .shares = {2, 3, 1}, .next_shares = {{3, 3}, {6}}},
           Case{.model = kTiedLlama, .stages = 3, .shares = {2, 2}, .next_shares = {{4}}},
           Case{.model = "gpt-tiny in bf16", .shares = {2, 3, 1}, .next_shares = {{3, 3}}},
           Case{.stages = 2, .shares = {3, 3}, .next_shares = {{6}}, .splits = true},
           Case{.stages = 2,
                .shares = {2, 2, 2},
                .next_shares = {{3, 3}},
                .family = schedule::Family::kGpipe},
       }) {
    SCOPED_TRACE(text(one));
    Job job(one);
    Group& group = job.group();
    ASSERT_EQ(group.start(job.plan(1, one.shares)), "");
    std::vector<Ids> kept;
    std::uint32_t revision = 1;
    for (const std::vector<int>& shares : one.next_shares) {
      for (int rank = 0; rank < job.ranks(shares); ++rank) {
        ASSERT_TRUE(eventually([&] { return !group.inventory(rank).running; })) << rank;
      }
      const std::vector<int> before = revision == 1 ? one.shares : one.next_shares[revision - 2];
      const auto computed = schedule::ids_to_compute(before, kept);
      protocol::Commit commit{.revision = ++revision, .at_step = kLostAt};
      kept.resize(shares.size());
      for (std::size_t r = 0; r < shares.size(); ++r) {
        kept[r] = schedule::united(kept[r], computed[r]);
        ASSERT_EQ(job.kept(static_cast<int>(r)), kept[r]) << r;
        commit.kept.push_back({.replica = static_cast<int>(r), .ids = kept[r]});
      }
      ASSERT_EQ(group.prepare(job.plan(revision, shares)), "");
      ASSERT_EQ(group.ask(job.ranks(shares), commit), "");
      for (int rank = 0; rank < job.ranks(shares); ++rank) {
        group.engine(rank).mailbox().put(protocol::Go{revision});
      }
    }
    const std::vector<int>& last = one.next_shares.back();
    for (int rank = job.ranks(last); rank < job.ranks(one.shares); ++rank) {
      group.engine(rank).leave(std::chrono::seconds(1));
    }
    group.finish();
    const auto expected = reference_losses(one.model, sum(one.shares), kSteps, kLimit);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    const auto rest = schedule::ids_to_compute(last, kept);
    for (std::size_t r = 0; r < last.size(); ++r) {
      const auto records = group.records((static_cast<int>(r) + 1) * one.stages - 1);
      EXPECT_EQ(losses_of(records), expected) << "replica " << r;
      ASSERT_EQ(records.size(), expected.size());
      EXPECT_EQ(records[kLostAt].samples, 2 * schedule::count_of(rest[r])) << "the rest alone";
    }
  }
}

// All have their part: only the collective had broken.
TEST(KeptSums, OfAllReplicasNeedNoMicroBatchAgain) {
  const Case one{.stages = 2, .shares = {2, 3}, .next_shares = {{2, 3}}};
  Job job(one);
  Group& group = job.group();
  ASSERT_EQ(group.start(job.plan(1, one.shares)), "");
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(eventually([&] { return !group.inventory(rank).running; })) << rank;
  }
  EXPECT_EQ(job.kept(0), (Ids{{0, 2}}));
  EXPECT_EQ(job.kept(1), (Ids{{2, 3}}));
  ASSERT_EQ(group.prepare(job.plan(2, one.shares)), "");
  ASSERT_EQ(group.ask(4, protocol::Commit{.revision = 2,
                                          .at_step = kLostAt,
                                          .kept = {{0, {{0, 2}}}, {1, {{2, 3}}}}}),
            "");
  for (int rank = 0; rank < 4; ++rank) group.engine(rank).mailbox().put(protocol::Go{2});
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  for (const int last : {1, 3}) {
    EXPECT_EQ(losses_of(group.records(last)), reference_losses("mlp", 5, kSteps, kLimit));
    EXPECT_EQ(group.records(last)[kLostAt].samples, 0);
  }
}

// A new coordinator asks ranks that train, or a join has failed: all of them could go on for ever.
TEST(KeptSums, OfRanksThatAreAskedEndWithTheStepUnderWay) {
  for (const int stages : {1, 2}) {
    const Case one{.stages = stages, .shares = {2, 3}};
    Group group("mlp", 2 * stages, 1'000'000);
    Job job(one);
    ASSERT_EQ(group.start(job.plan(1, one.shares)), "");
    ASSERT_TRUE(group.reaches(0, 3));
    for (int rank = 0; rank < 2 * stages; ++rank) {
      group.engine(rank).mailbox().put(protocol::PeerLost{.reason = "asked", .finish_part = true});
    }
    for (int rank = 0; rank < 2 * stages; ++rank) {
      EXPECT_TRUE(eventually([&] { return !group.inventory(rank).running; })) << rank;
    }
    for (Group* each : {&group, &job.group()}) {
      for (int rank = 0; rank < 2 * stages; ++rank) {
        each->engine(rank).leave(std::chrono::seconds(1));
      }
      each->finish();
    }
  }
}

TEST(KeptSums, AreNotTakenForOthers) {
  const Case one{.shares = {2, 3, 1}, .next_shares = {{3, 3}}};
  Job job(one);
  Group& group = job.group();
  ASSERT_EQ(group.start(job.plan(1, one.shares)), "");
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(eventually([&] { return !group.inventory(rank).running; })) << rank;
  }
  using Kept = std::vector<protocol::KeptIds>;
  std::uint32_t revision = 1;
  for (const auto& [kept, reason] : {
           std::pair{Kept{{0, {{0, 3}}}, {1, {{3, 2}}}}, "does not have the sums"},
           std::pair{Kept{{0, {{0, 2}}}, {1, {{1, 3}}}}, "illegal sums"},
           std::pair{Kept{{0, {{0, 2}}}, {1, {{2, 30}}}}, "illegal sums"},
           std::pair{Kept{{0, {{0, 2}}}, {7, {{2, 3}}}}, "illegal sums"},
       }) {
    ASSERT_EQ(group.prepare(job.plan(++revision, {3, 3})), "");
    auto other = group.ask_rank(1, protocol::Commit{.revision = revision, .at_step = kLostAt});
    auto answer =
        group.ask_rank(0, protocol::Commit{.revision = revision, .at_step = kLostAt, .kept = kept});
    ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
    EXPECT_THAT(answer.get(), HasSubstr(reason));
    group.engine(1).mailbox().put(protocol::Abort{revision});
    EXPECT_EQ(job.kept(0), (Ids{{0, 2}})) << "an attempt in vain loses nothing";
  }
  for (int rank = 0; rank < 3; ++rank) group.engine(rank).leave(std::chrono::seconds(1));
  group.finish();
}

// A step would have gradients of two codecs.
TEST(KeptSums, AreNotTakenForThoseOfOtherCodecs) {
  const Case one{.stages = 2, .shares = {2, 3, 1}, .next_shares = {{3, 3}}};
  Job job(one);
  Group& group = job.group();
  ASSERT_EQ(group.start(job.plan(1, one.shares)), "");
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(eventually([&] { return !group.inventory(rank).running; })) << rank;
  }
  schedule::Plan next = job.plan(2, {3, 3});
  next.codecs = {.forward = {schedule::Codec::kInt8}, .backward = {schedule::Codec::kRaw}};
  ASSERT_EQ(group.prepare(next), "");
  std::vector<std::future<std::string>> others;
  for (int rank = 1; rank < 4; ++rank) {
    others.push_back(group.ask_rank(rank, protocol::Commit{.revision = 2, .at_step = kLostAt}));
  }
  auto answer = group.ask_rank(
      0,
      protocol::Commit{.revision = 2, .at_step = kLostAt, .kept = {{0, {{0, 2}}}, {1, {{2, 3}}}}});
  ASSERT_EQ(answer.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(answer.get(), HasSubstr("does not have the sums"));
  for (int rank = 1; rank < 4; ++rank) group.engine(rank).mailbox().put(protocol::Abort{2});
  EXPECT_EQ(job.kept(0), (Ids{{0, 2}}));
  for (int rank = 0; rank < 6; ++rank) group.engine(rank).leave(std::chrono::seconds(1));
  group.finish();
}

}  // namespace kept_sums_test
}  // namespace weir::engine::test
