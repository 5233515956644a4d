// SPDX-License-Identifier: Apache-2.0
// A rank of a job with replicas is lost in the middle of a step, and another one at each message of
// what follows: of the generation without it, and of that which it joins again. While a replica is
// whole training goes on, no step that a living rank has made is made again, and in the sums of a
// step that was interrupted each micro-batch counts once. The real
// PlanSwitch; ranks that follow worker/coordinator/README.md but compute nothing. All chance comes
// from the seed. WEIR_FAULT_SEEDS sets how many seeds run; without it each third message has its
// turn.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/schedule/step_ids.h"

namespace weir::coordinator::test {
namespace cover_faults_test {

using schedule::StateMove;
using schedule::Trigger;

constexpr int kMicroBatches = 12;
const int kSize = plan(1, Trigger::kInitial, 1).schedule.micro_batch_size;
constexpr auto kBeat = 1ms;

schedule::Plan replicated(std::uint32_t revision, Trigger trigger, int stages, int replicas) {
  schedule::Plan result = plan(revision, trigger, stages);
  result.schedule.caps.assign(static_cast<std::size_t>(stages), 1);
  result.micro_batches.assign(static_cast<std::size_t>(replicas), kMicroBatches / replicas);
  result.ranks.clear();
  for (int i = 0; i < stages * replicas; ++i) {
    result.ranks.push_back(
        {.pod = "pod-" + std::to_string(i), .replica = i / stages, .stage = i % stages});
  }
  return result;
}

// What an engine does about plans (worker/engine/commands.cpp, generation.cpp).
struct Rank {
  struct Generation {
    schedule::Plan plan;
    int incarnation = 0;
    std::int64_t history = 0;
    int stage = -1, replica = -1;  // -1: idle
    std::vector<schedule::Ids> kept = {};
    bool built = false, ready = false, running = false;
  };
  struct Held {
    int layer = 0;
    std::int64_t step = 0, history = 0, pending = 0;
    bool summed = false;
    schedule::Ids sums = {};  // of the next step
  };
  bool alive = true;
  std::string uid;
  control::SessionId session = 0;
  std::optional<protocol::Prepare> prepared;
  std::optional<protocol::Commit> pending;
  std::optional<Generation> generation;
  std::optional<Held> held, next;  // next: of a generation before its GO
  bool has_verdict = false;
  std::int64_t ran_history = 0;

  bool trains() const { return generation && generation->running && generation->stage >= 0; }
  std::int64_t step() const { return held ? held->step : 0; }
};

class Job {
 public:
  Job(int stages, int replicas, std::uint64_t seed)
      : stages_(stages), replicas_(replicas), random_(seed) {
    for (int i = 0; i < stages * replicas; ++i) {
      ranks_.emplace_back();
      begin(i);
    }
    act(switch_.on_plan(replicated(1, Trigger::kInitial, stages, replicas), members_, now_));
  }

  template <class Condition>
  void run_until(const Condition& condition, std::chrono::seconds limit) {
    for (const SteadyTime until = now_ + limit; now_ < until && !condition(); now_ += kBeat) beat();
  }
  void run(std::chrono::seconds time) {
    run_until([] { return false; }, time);
  }
  // In the middle of a step: some ranks may have updated, others lack only that.
  void kill(int index) {
    Rank& victim = ranks_[static_cast<std::size_t>(index)];
    if (!victim.alive) return;
    if (victim.trains() && stands_together(*victim.generation) && chance(2)) {
      for (Rank* rank : peers_of(*victim.generation)) {
        if (chance(2)) {
          finish_step(*rank);
        } else {
          rank->held->summed = true;
        }
      }
    }
    const auto lost_generation = victim.generation;
    const int replica = lost_generation ? lost_generation->replica : -1;
    const control::SessionId session = victim.session;
    victim = Rank{.alive = false};
    wires_[index].push_back([this, index, session] {
      if (!members_.closed(session)) return;
      act(switch_.on_lost(index, "closed", members_, now_));
    });
    if (!lost_generation || !lost_generation->running) return;
    for (Rank* rank : peers_of(*lost_generation)) {
      if (chance(2)) drop_step(*rank, true, rank->generation->replica != replica);
    }
  }
  void begin(int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    rank = Rank{.uid = "uid-" + std::to_string(index), .session = ++last_session_};
    wires_[index].push_back([this, index, session = rank.session] {
      members_.hello(session, {.member = member(index), .features = {protocol::kSumsFeature}},
                     now_);
      act(switch_.tick(members_, now_));
    });
  }
  bool alive(int index) const { return ranks_[static_cast<std::size_t>(index)].alive; }
  void at_message(int count, std::function<void()> fault) {
    messages_ = 0;
    fault_at_ = count;
    fault_ = std::move(fault);
  }
  bool has_whole_replica() const {
    for (int r = 0; r < replicas_; ++r) {
      bool whole = true;
      for (int s = 0; s < stages_; ++s) whole = whole && alive(r * stages_ + s);
      if (whole) return true;
    }
    return false;
  }
  std::int64_t highest() const { return highest_; }
  int kept() const { return kept_; }  // how often a rank went on with sums
  int messages() const { return messages_; }
  bool all_train() const {
    return switch_.covered().empty() &&
           std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.trains(); });
  }
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  bool chance(int of) { return std::uniform_int_distribution<int>(1, of)(random_) == 1; }
  int index_of(const Rank& rank) const { return static_cast<int>(&rank - ranks_.data()); }

  // ---- wires ----
  void beat() {
    std::vector<int> filled;
    for (auto& [wire, queue] : wires_) {
      if (!queue.empty()) filled.push_back(wire);
    }
    if (!filled.empty()) {
      auto& queue = wires_[filled[static_cast<std::size_t>(
          std::uniform_int_distribution<int>(0, static_cast<int>(filled.size()) - 1)(random_))]];
      const auto deliver = std::move(queue.front());
      queue.pop_front();
      deliver();
    }
    for (Rank& rank : ranks_) move_on(rank);
    if (chance(20)) train();
    if (now_.time_since_epoch() % 100ms == 0ms) act(switch_.tick(members_, now_));
  }
  void count_message() {
    if (++messages_ == fault_at_) std::exchange(fault_, nullptr)();
  }
  void act(const Effects& effects) {
    for (const auto& [to, message] : effects.send) {
      const MemberState* const state = members_.find(to);
      if (state == nullptr || !state->connected()) continue;
      wires_[1000 + to].push_back([this, to = to, session = state->session, message = message] {
        count_message();
        Rank& rank = ranks_[static_cast<std::size_t>(to)];
        if (rank.alive && rank.session == session) take(rank, message);
      });
    }
  }
  void tell(const Rank& rank, const protocol::Message& message) {
    const int index = index_of(rank);
    wires_[index].push_back([this, index, session = rank.session, message] {
      if (members_.index_of(session) != index) return;
      if (const auto* status = std::get_if<protocol::StageStatus>(&message)) {
        members_.status(index, *status);
      } else if (const auto* inventory = std::get_if<protocol::Inventory>(&message)) {
        members_.inventory(index, *inventory);
        return act(switch_.tick(members_, now_));
      } else {
        count_message();
        if (members_.index_of(session) != index) return;
      }
      if (const auto* ready = std::get_if<protocol::ReadyState>(&message)) {
        members_.ready_state(index, *ready);
      }
      act(switch_.on_message(index, message, members_, now_));
    });
  }
  void tell_inventory(const Rank& rank) {
    protocol::Inventory told{.history = rank.ran_history, .running = rank.trains()};
    if (const auto& held = rank.next ? rank.next : rank.held) {
      told.held.push_back({.first = held->layer,
                           .last = held->layer,
                           .step = held->step,
                           .history = held->history,
                           .pending = held->pending,
                           .summed = held->summed});
      if (!held->sums.empty()) {
        told.held.back().sums = {
            .ids = held->sums, .micro_batch_size = kSize, .micro_batches = kMicroBatches};
      }
    }
    if (rank.has_verdict) told.verdict = protocol::Verdict{.squares = 1};
    tell(rank, told);
  }

  // ---- ranks ----
  void take(Rank& rank, const protocol::Message& message) {
    if (const auto* prepare = std::get_if<protocol::Prepare>(&message)) {
      rank.prepared = *prepare;
      tell(rank, protocol::Ready{prepare->plan.revision, prepare->incarnation});
    } else if (const auto* commit = std::get_if<protocol::Commit>(&message)) {
      if (!rank.prepared) return fail(rank, commit->revision, "not prepared");
      const bool late = rank.trains() && rank.held->step > commit->at_step;
      if (late) return fail(rank, commit->revision, "late");
      rank.pending = *commit;
    } else if (const auto* go = std::get_if<protocol::Go>(&message)) {
      if (!rank.generation || rank.generation->running) return tell_inventory(rank);
      on_go(rank, *go);
    } else if (std::holds_alternative<protocol::Abort>(message)) {
      rank.pending.reset();
      rank.prepared.reset();
      if (rank.generation && !rank.generation->running) give_up(rank);
      if (!rank.trains()) tell_inventory(rank);
    } else if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
      if (rank.trains()) {
        drop_step(rank, false, lost->finish_part || lost->replica != rank.generation->replica);
      } else {
        tell_inventory(rank);
      }
    }
  }
  void fail(Rank& rank, std::uint32_t revision, const std::string& error) {
    tell(rank, protocol::ReadyState{.revision = revision,
                                    .error = error,
                                    .step = rank.step(),
                                    .holds = rank.held.has_value()});
  }
  void give_up(Rank& rank) {
    rank.generation.reset();
    rank.next.reset();
  }
  // Of a replica that is whole a rank mostly finishes its part first.
  void drop_step(Rank& rank, bool itself, bool others_lost) {
    if (!rank.trains()) return;
    const Rank::Generation generation = *rank.generation;
    rank.generation.reset();
    const auto replica = static_cast<std::size_t>(generation.replica);
    const schedule::Ids before = std::exchange(rank.held->sums, {});
    if (others_lost && !chance(4)) {
      const auto parts = schedule::ids_to_compute(generation.plan.micro_batches, generation.kept);
      rank.held->sums = schedule::united(before, parts[replica]);
    }
    tell_inventory(rank);
    if (itself) {
      tell(rank, protocol::PeerLost{.revision = generation.plan.revision,
                                    .reason = "a link ended",
                                    .finish_part = !rank.held->sums.empty()});
    }
  }
  void on_go(Rank& rank, const protocol::Go& go) {
    Rank::Generation& generation = *rank.generation;
    if (generation.plan.revision != go.revision) return;
    generation.running = true;
    rank.ran_history = std::max(rank.ran_history, generation.history);
    if (rank.next) rank.held = std::exchange(rank.next, std::nullopt);
    if (generation.stage < 0) {
      rank.held.reset();
      return tell_inventory(rank);
    }
    if (generation.kept.empty() ||
        generation.kept[static_cast<std::size_t>(generation.replica)].empty()) {
      rank.held->sums.clear();
    }
    kept_ += rank.held->sums.empty() ? 0 : 1;
    rank.held->history = generation.history;
    rank.held->pending = 0;
    rank.held->summed = false;
    for (const Rank& other : ranks_) {
      if (other.alive && other.held && other.held->step > rank.held->step &&
          !same(other, generation)) {
        wrong_.push_back("a generation begins at step " + std::to_string(rank.held->step) +
                         ", a living rank has made step " + std::to_string(other.held->step));
      }
    }
    const auto& shares = generation.plan.micro_batches;
    if (std::accumulate(shares.begin(), shares.end(), 0) != kMicroBatches) {
      wrong_.push_back("another batch");
    }
  }
  static bool same(const Rank& rank, const Rank::Generation& generation) {
    return rank.alive && rank.generation &&
           rank.generation->plan.revision == generation.plan.revision &&
           rank.generation->incarnation == generation.incarnation;
  }
  std::vector<Rank*> peers_of(const Rank::Generation& generation) {
    std::vector<Rank*> peers;
    for (Rank& rank : ranks_) {
      if (same(rank, generation) && rank.generation->stage >= 0) peers.push_back(&rank);
    }
    return peers;
  }
  bool stands_together(const Rank::Generation& generation) {
    const auto peers = peers_of(generation);
    return peers.size() == generation.plan.ranks.size() &&
           std::ranges::all_of(peers, [&](const Rank* rank) {
             return rank->trains() && rank->step() == peers.front()->step() && !entering(*rank);
           });
  }
  static bool entering(const Rank& rank) {
    return rank.pending && rank.pending->at_step <= rank.step();
  }
  void finish_step(Rank& rank) {
    check_sums(rank);
    ++rank.held->step;
    rank.held->sums.clear();
    rank.generation->kept.clear();
    rank.has_verdict = true;
    highest_ = std::max(highest_, rank.held->step);
    tell(rank, protocol::StageStatus{.epoch = rank.generation->plan.revision,
                                     .step = rank.held->step,
                                     .stage = rank.generation->stage,
                                     .step_seconds = 0.02});
  }
  // What all replicas have at the end of the step that the rank ends.
  void check_sums(const Rank& rank) {
    const Rank::Generation& generation = *rank.generation;
    if (generation.kept.empty()) return;
    const auto parts = schedule::ids_to_compute(generation.plan.micro_batches, generation.kept);
    schedule::Ids all;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      for (const schedule::Ids& ids : {generation.kept[r], parts[r]}) {
        if (schedule::overlap(all, ids)) wrong_.push_back("a micro-batch counts twice");
        all = schedule::united(all, ids);
      }
    }
    if (all != schedule::Ids{{0, kMicroBatches}}) wrong_.push_back("a micro-batch is missing");
    if (rank.held->sums != generation.kept[static_cast<std::size_t>(generation.replica)]) {
      wrong_.push_back("a rank keeps other sums than COMMIT says");
    }
  }
  void train() {
    for (Rank& rank : ranks_) {
      if (!rank.trains() || !stands_together(*rank.generation)) continue;
      for (Rank* peer : peers_of(*rank.generation)) finish_step(*peer);
      return;
    }
  }
  void move_on(Rank& rank) {
    if (!rank.alive) return;
    if (rank.pending && (!rank.trains() || rank.step() >= rank.pending->at_step)) enter(rank);
    if (!rank.generation || rank.generation->running || rank.generation->ready) return;
    Rank::Generation& generation = *rank.generation;
    if (!generation.built) return build(rank);
    // Connects with all ranks of the plan.
    for (const schedule::RankPlace& place : generation.plan.ranks) {
      const Rank& other = ranks_[static_cast<std::size_t>(place.pod.back() - '0')];
      if (!other.alive) {
        fail(rank, generation.plan.revision, "no link");
        return give_up(rank);
      }
      if (!same(other, generation) || !other.generation->built) return;
    }
    generation.ready = true;
    (rank.next ? rank.next : rank.held)->pending = generation.history;
    if (generation.stage >= 0) {
      tell(rank, protocol::ReadyState{.revision = generation.plan.revision,
                                      .step = (rank.next ? rank.next : rank.held)->step});
    }
  }
  void enter(Rank& rank) {
    const protocol::Commit commit = *std::exchange(rank.pending, std::nullopt);
    at_step_[index_of(rank)] = commit.at_step;
    if (commit.verdict && rank.held && rank.held->summed && rank.held->step + 1 == commit.at_step) {
      rank.held->summed = false;
      ++rank.held->step;
      rank.has_verdict = true;
    }
    rank.next.reset();
    rank.generation = Rank::Generation{.plan = rank.prepared->plan,
                                       .incarnation = rank.prepared->incarnation,
                                       .history = commit.history};
    for (const schedule::RankPlace& place : rank.prepared->plan.ranks) {
      if (place.pod != "pod-" + std::to_string(index_of(rank))) continue;
      rank.generation->stage = place.stage;
      rank.generation->replica = place.replica;
    }
    if (!commit.kept.empty())
      rank.generation->kept.resize(rank.prepared->plan.micro_batches.size());
    for (const auto& [replica, ids] : commit.kept) {
      rank.generation->kept[static_cast<std::size_t>(replica)] = ids;
    }
    if (rank.generation->stage < 0) rank.generation->built = rank.generation->ready = true;
  }
  void build(Rank& rank) {
    Rank::Generation& generation = *rank.generation;
    const std::int64_t at_step = at_step_[index_of(rank)];
    const int layer = generation.stage;
    const StateMove state = generation.plan.state;
    const bool have = rank.held && rank.held->layer == layer && rank.held->step == at_step;
    if (have && state != StateMove::kCheckpoint) {
      generation.built = true;
    } else if (state == StateMove::kMove) {
      for (const schedule::LayerHolder& holder : generation.plan.holders) {
        if (holder.layers.first != layer) continue;
        const Rank& other = ranks_[static_cast<std::size_t>(holder.pod.back() - '0')];
        if (!other.alive) {
          fail(rank, generation.plan.revision, "the holder is gone");
          return give_up(rank);
        }
        const bool offers = same(other, generation) && other.held && other.held->step == at_step;
        if (!offers) return;
        rank.next = Rank::Held{.layer = layer, .step = at_step};
        generation.built = true;
        return;
      }
      fail(rank, generation.plan.revision, "no holder");
      give_up(rank);
    } else if (at_step == 0 || state == StateMove::kCheckpoint) {  // there is none: step 0
      rank.held = Rank::Held{.layer = layer};
      generation.built = true;
    } else {
      fail(rank, generation.plan.revision, "stands elsewhere");
      give_up(rank);
    }
  }

  const int stages_, replicas_;
  std::mt19937_64 random_;
  SteadyTime now_ = SteadyTime(1h);
  std::vector<Rank> ranks_;
  std::map<int, std::deque<std::function<void()>>> wires_;  // i: from rank i; 1000 + i: to it
  std::map<int, std::int64_t> at_step_;
  Members members_;
  PlanSwitch switch_{"job", -1};
  control::SessionId last_session_ = 0;
  int messages_ = 0, fault_at_ = -1, kept_ = 0;
  std::function<void()> fault_;
  std::int64_t highest_ = 0;
  std::vector<std::string> wrong_;
};

// Returns how many messages there were until all trained again.
int check(int stages, int replicas, std::uint64_t seed, int first, int second, int message,
          int& kept) {
  const std::string which = std::to_string(stages) + " stages, " + std::to_string(replicas) +
                            " replicas, seed " + std::to_string(seed) + ": worker " +
                            std::to_string(first) + ", then " + std::to_string(second) +
                            " at message " + std::to_string(message);
  Job job(stages, replicas, seed);
  const auto all_train = [&] { return job.all_train(); };
  std::int64_t before = 0;
  const auto trains_on = [&] { return job.highest() > before + 5; };
  job.run_until(all_train, 3s);
  EXPECT_TRUE(job.all_train()) << which;
  job.kill(first);
  job.at_message(message, [&] { job.kill(second); });
  job.run(1s);  // covered by now, or almost
  before = job.highest();
  job.run_until(trains_on, 2s);
  bool whole = job.has_whole_replica();
  EXPECT_TRUE(trains_on() || !whole) << which << ": nobody trains";
  if (!job.alive(first)) job.begin(first);
  job.run(2s);
  const int messages = job.messages();
  whole = whole && job.has_whole_replica();
  for (const int victim : {first, second}) {
    if (!job.alive(victim)) job.begin(victim);
  }
  job.run_until(all_train, 60s);  // back-off included
  EXPECT_TRUE(job.all_train()) << which << ": not all train again";
  before = job.highest();
  job.run_until(trains_on, 10s);
  EXPECT_TRUE(trains_on() || !whole) << which;  // else it may have begun again
  EXPECT_TRUE(job.wrong().empty() || !whole) << which << ": " << job.wrong().front();
  kept += job.kept();
  return messages;
}

TEST(CoverFaults, ALossAtEachMessageAfterALossEndsWithAllAndNoStepIsMadeAgain) {
  const char* const many = std::getenv("WEIR_FAULT_SEEDS");
  const std::uint64_t seeds = many != nullptr ? std::strtoull(many, nullptr, 10) : 1;
  const int stride = many != nullptr ? 1 : 3;
  int kept = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    for (int shape = 0; shape < 6; ++shape) {
      const int stages = 1 + shape / 2, replicas = 2 + shape % 2;
      const int others = stages * replicas - 1;  // worker 0 is the coordinator, too
      int messages = stride;
      for (int message = 1 + shape % stride; message <= messages; message += stride) {
        const int turn = message + static_cast<int>(seed);
        messages = std::max(messages, check(stages, replicas, seed, 1 + turn % others,
                                            1 + turn / 2 % others, message, kept));
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(kept, 20) << "ranks that went on with sums";
}

}  // namespace cover_faults_test
}  // namespace weir::coordinator::test
