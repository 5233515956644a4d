// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/coordinator/simulated_job.h"

namespace weir::coordinator::test {
namespace {

constexpr auto kTick = 100ms;
constexpr auto kReconnect = 1s;
constexpr auto kPodAgain = 2s;       // from the death of a pod to its next process
constexpr auto kConnectTime = 10s;   // for the links of a generation
constexpr auto kGoodbyeTime = 20ms;  // how often a waiting engine looks

bool in_band(const std::optional<SimulatedRank::Generation>& generation, const schedule::Plan& next,
             int incarnation) {
  return generation && !schedule::starts_generation(&generation->plan, next, incarnation);
}

}  // namespace

// ---- rank ----

void SimulatedRank::later(std::chrono::nanoseconds time, std::function<void()> work) {
  job_.after(time, [this, born = life, work = std::move(work)] {
    if (life == born) work();
  });
}

void SimulatedRank::begin_process() {
  prepared_.clear();
  pending_.reset();
  generation_.reset();
  holds_ = false;
  history_ = 0;
  connecting_.reset();
  headers_.clear();
  step_ = 0;
  in_step_ = entering_ = false;
}

void SimulatedRank::end_process() {
  life = 0;
  if (generation_) job_.end_links(index_, generation_->id);
  if (connecting_) job_.end_links(index_, *connecting_);
  begin_process();
}

const SimulatedRank::Prepared* SimulatedRank::prepared(std::uint32_t revision) const {
  for (const Prepared& one : prepared_) {
    if (one.plan.revision == revision) return &one;
  }
  return nullptr;
}

void SimulatedRank::take_letters() {
  while (const std::optional<engine::Letter> letter = mailbox->take()) on(*letter);
}

void SimulatedRank::on(const engine::Letter& letter) {
  const protocol::Message& message = letter.message;
  if (const auto* prepare = std::get_if<protocol::Prepare>(&message)) on_prepare(letter, *prepare);
  if (const auto* commit = std::get_if<protocol::Commit>(&message)) on_commit(letter, *commit);
  if (const auto* go = std::get_if<protocol::Go>(&message)) on_go(go->revision);
  if (const auto* abort = std::get_if<protocol::Abort>(&message)) on_abort(abort->revision);
  if (std::holds_alternative<protocol::PeerLost>(message)) {
    drop_step("");
    tell_inventory();
  }
}

void SimulatedRank::end_pending(const std::string& reason) {
  mailbox->answer(std::exchange(pending_, std::nullopt)->letter, reason);
}

void SimulatedRank::on_prepare(const engine::Letter& letter, const protocol::Prepare& prepare) {
  const auto& [plan, incarnation] = prepare;
  std::string reason;
  if (in_band(generation_, plan, incarnation) && generation_->broken) reason = "broken generation";
  if (generation_ && plan.revision < generation_->plan.revision) reason = "older plan";
  if (reason.empty()) {
    std::erase_if(prepared_,
                  [&](const Prepared& p) { return p.plan.revision == prepare.plan.revision; });
    while (prepared_.size() >= 2) prepared_.erase(prepared_.begin());
    prepared_.push_back({plan, incarnation});
  }
  later(job_.delay(), [this, letter, reason] { mailbox->answer(letter, reason); });
}

void SimulatedRank::on_commit(const engine::Letter& letter, const protocol::Commit& commit) {
  const Prepared* const next = prepared(commit.revision);
  if (next == nullptr) return mailbox->answer(letter, "not prepared");
  const bool band = in_band(generation_, next->plan, next->incarnation);
  if (band && !trains()) {
    return mailbox->answer(letter, "this rank runs no stage of that generation");
  }
  const std::int64_t at_step = commit.at_step;
  const bool late = trains() && !band && (step_ > at_step || (in_step_ && step_ == at_step));
  if (late && next->plan.state == schedule::StateMove::kKeep) {
    return mailbox->answer(letter, "COMMIT came late");
  }
  if (pending_) end_pending("another COMMIT came");
  pending_ = Pending{letter, commit.revision, at_step, commit.history, band};
  if (!band && in_step_ && step_ >= at_step) {  // the running step is given up for it
    generation_->broken = true;
    in_step_ = false;
  }
  move_on();
}

void SimulatedRank::on_go(std::uint32_t revision) {
  if (!generation_ || generation_->running || generation_->plan.revision != revision) return;
  generation_->running = true;
  history_ = generation_->history;
  move_on();
}

void SimulatedRank::on_abort(std::uint32_t revision) {
  std::erase_if(prepared_, [&](const Prepared& p) { return p.plan.revision == revision; });
  if (pending_ && pending_->revision == revision) end_pending("aborted");
  if (generation_ && !generation_->running && generation_->plan.revision == revision) {
    generation_.reset();
  }
  tell_inventory();
}

void SimulatedRank::tell_inventory() {
  if (trains() || entering_) return;
  protocol::Inventory told{.history = history_};
  if (holds_) {
    told.held.push_back({.first = index_, .last = index_, .step = step_, .history = history_});
  }
  mailbox->tell(told);
}

void SimulatedRank::move_on() {
  if (entering_ || in_step_) return;
  const bool due = pending_ && !pending_->in_band && (!trains() || step_ >= pending_->at_step);
  if (due) return enter_generation();
  if (!trains()) return;
  if (index_ == 0) {
    if (pending_ && pending_->in_band && step_ >= pending_->at_step) {
      if (const Prepared* next = prepared(pending_->revision)) adopt(Prepared(*next));
    }
    return run_step();
  }
  while (!headers_.empty() && headers_.front().id != generation_->id) headers_.pop_front();
  if (headers_.empty()) return;
  const Header header = headers_.front();
  headers_.pop_front();
  if (header.step != step_) return drop_step("header of another step");
  if (header.epoch != generation_->plan.revision) {
    const Prepared* const next = prepared(header.epoch);
    if (next == nullptr) return drop_step("epoch was never prepared");
    adopt(Prepared(*next));
  }
  run_step();
}

void SimulatedRank::enter_generation() {
  const Pending commit = *std::exchange(pending_, std::nullopt);
  const Prepared* const next = prepared(commit.revision);
  if (next == nullptr) return mailbox->answer(commit.letter, "not prepared");
  const bool keep = next->plan.state == schedule::StateMove::kKeep;
  if (keep && step_ != commit.at_step) {
    generation_.reset();
    tell_inventory();
    return mailbox->answer(commit.letter,
                           "state Keep: this rank stands at step " + std::to_string(step_));
  }
  if (!keep) step_ = 0;
  holds_ = true;
  Generation generation{{next->plan.revision, next->incarnation}, next->plan, next->incarnation};
  generation.history = commit.history;
  if (generation_) job_.say_goodbye(index_, generation_->id);
  generation_.reset();
  headers_.clear();
  entering_ = true;
  connecting_ = generation.id;
  await_peers(std::move(generation), commit.letter, job_.now() + kConnectTime);
}

void SimulatedRank::await_peers(Generation generation, const engine::Letter& letter,
                                SteadyTime deadline) {
  later(5ms, [this, generation = std::move(generation), letter, deadline] {
    if (job_.waits_for_links(generation.id)) {
      std::erase_if(prepared_, [&](const Prepared& other) {
        return other.plan.revision <= generation.plan.revision;
      });
      generation_ = generation;
      entering_ = false;
      tell_inventory();
      return mailbox->answer(letter);
    }
    if (job_.now() < deadline) return await_peers(generation, letter, deadline);
    entering_ = false;
    connecting_.reset();
    tell_inventory();
    mailbox->answer(letter, "no link to a neighbour", step_);
    move_on();
  });
}

void SimulatedRank::adopt(const Prepared& next) {
  generation_->plan = next.plan;
  generation_->incarnation = next.incarnation;
  const std::uint32_t revision = next.plan.revision;
  std::erase_if(prepared_, [&](const Prepared& p) { return p.plan.revision <= revision; });
  if (pending_ && pending_->revision <= revision) end_pending("");
}

void SimulatedRank::run_step() {
  in_step_ = true;
  const Header header{generation_->id, step_, generation_->plan.revision};
  if (index_ + 1 < kRanks) {
    job_.after(job_.delay(), [this, header] { job_.rank(index_ + 1).header_came(header); });
    return;
  }
  later(job_.delay(8), [this, id = header.id, step = header.step] { gradient_came(id, step); });
}

void SimulatedRank::header_came(const Header& header) {
  if (life == 0) return;
  headers_.push_back(header);
  move_on();
}

void SimulatedRank::gradient_came(const Id& id, std::int64_t step) {
  if (!trains() || !in_step_ || generation_->id != id || step_ != step) return;
  job_.did(index_, id, step_, generation_->plan.revision);
  if (index_ > 0) {
    job_.after(job_.delay(), [this, id, step] { job_.rank(index_ - 1).gradient_came(id, step); });
  }
  ++step_;
  in_step_ = false;
  mailbox->tell(
      protocol::StageStatus{.epoch = generation_->plan.revision, .step = step_, .stage = index_});
  move_on();
}

void SimulatedRank::drop_step(const std::string& reason) {
  if (!trains()) return;
  generation_->broken = true;
  in_step_ = false;
  headers_.clear();
  const Id id = generation_->id;
  job_.end_links(index_, id);
  if (pending_ && pending_->in_band) end_pending("links lost");
  tell_inventory();
  if (!reason.empty()) {
    job_.tell(index_,
              protocol::PeerLost{
                  .stage = index_, .revision = generation_->plan.revision, .reason = reason});
  }
  move_on();
}

// Nobody fails for that, unless it is in a step that needs the one who left.
void SimulatedRank::peer_left(const Id& id) {
  if (!trains() || generation_->id != id || !in_step_) return;
  later(kGoodbyeTime, [this, id, step = step_] {
    const bool stuck = trains() && generation_->id == id && in_step_ && step_ == step;
    if (stuck) drop_step("has left in the middle of a step");
  });
}

// ---- job ----

Job::Job(std::uint64_t seed) : random_(seed) {
  coordinator_.emplace();
  for (int index = 0; index < kRanks; ++index) {
    ranks_.push_back(std::make_unique<SimulatedRank>(*this, index));
    rank(index).life = ++lives_;
    rank(index).uid = "uid-" + std::to_string(lives_);
  }
  for (int index = 0; index < kRanks; ++index) connect(index);
  tick();
}

void Job::run_for(std::chrono::nanoseconds time) {
  const SteadyTime until = now_ + time;
  while (!events_.empty() && events_.begin()->first <= until) {
    auto event = events_.extract(events_.begin());
    now_ = event.key();
    event.mapped()();
  }
  now_ = until;
}

std::chrono::nanoseconds Job::in_order(std::string wire) {
  SteadyTime at = now_ + delay();
  SteadyTime& last = last_on_wire_[std::move(wire)];
  last = std::max(at, last + 1us);
  return last - now_;
}

void Job::connect(int index) {
  SimulatedRank& one = rank(index);
  if (one.life == 0 || one.session_id != 0) return;
  if (!coordinator_) return after(kReconnect, [this, index] { connect(index); });
  if (!one.mailbox) {
    one.mailbox = std::make_unique<engine::Mailbox>(
        [this, index](const protocol::Message& message) { tell(index, message); });
  }
  one.session_id = ++last_session_;
  const protocol::Hello hello = one.mailbox->hello(member(index, one.uid));
  after(in_order("to " + std::to_string(index)), [this, id = one.session_id, index, hello] {
    if (!coordinator_ || rank(index).session_id != id) return;
    coordinator_->members.hello(id, hello, now_);
    act(coordinator_->plan_switch.tick(coordinator_->members, now_));
  });
}

void Job::disconnect(int index) {
  SimulatedRank& one = rank(index);
  const auto id = std::exchange(one.session_id, control::SessionId{0});
  if (id == 0) return;
  if (one.life != 0 && one.mailbox) {
    one.mailbox->session_lost();
    one.take_letters();
  }
  after(delay(), [this, id, index] {
    if (!coordinator_ || !coordinator_->members.closed(id)) return;
    act(coordinator_->plan_switch.on_lost(index, "closed by the peer", coordinator_->members,
                                          now_));
  });
}

void Job::tell(int index, const protocol::Message& message) {
  const auto id = rank(index).session_id;
  if (id == 0) return;
  after(in_order("to " + std::to_string(index)), [this, id, index, message] {
    if (!coordinator_ || coordinator_->members.index_of(id) != index) return;
    if (const auto* status = std::get_if<protocol::StageStatus>(&message)) {
      coordinator_->members.status(index, *status);
    } else if (!std::holds_alternative<protocol::Inventory>(message)) {
      count_message();
      if (!coordinator_) return;  // just now
      if (coordinator_->members.index_of(id) != index) return;
    }
    if (const auto* ready = std::get_if<protocol::ReadyState>(&message)) {
      coordinator_->members.ready_state(index, *ready);
    }
    if (const auto* inventory = std::get_if<protocol::Inventory>(&message)) {
      coordinator_->members.inventory(index, *inventory);
      return act(coordinator_->plan_switch.tick(coordinator_->members, now_));
    }
    act(coordinator_->plan_switch.on_message(index, message, coordinator_->members, now_));
  });
}

void Job::act(const Effects& effects) {
  switches_.insert(switches_.end(), effects.finished.begin(), effects.finished.end());
  for (const auto& [to, message] : effects.send) {
    const auto* state = coordinator_->members.find(to);
    if (state == nullptr || !state->connected()) continue;
    after(in_order("from " + std::to_string(to)),
          [this, to, id = state->session, message = message] {
            if (rank(to).session_id != id) return;
            count_message();
            if (rank(to).session_id != id) return;  // that was the fault
            rank(to).mailbox->put(message);
            rank(to).take_letters();
          });
  }
}

void Job::tick() {
  if (coordinator_) {
    fetch_plan();
    act(coordinator_->plan_switch.tick(coordinator_->members, now_));
  }
  after(kTick, [this] { tick(); });
}

void Job::fetch_plan() {
  PlanSwitch& plan_switch = coordinator_->plan_switch;
  if (now_ < operator_back_ || newest_.revision <= plan_switch.highest_seen()) return;
  act(plan_switch.on_plan(newest_, coordinator_->members, now_));
}

void Job::publish(const schedule::Plan& plan) {
  newest_ = plan;
  if (coordinator_) fetch_plan();
}

void Job::at_message(int count, std::function<void()> fault) {
  messages_ = 0;
  fault_at_ = count;
  fault_ = std::move(fault);
}

void Job::count_message() {
  if (++messages_ == fault_at_) std::exchange(fault_, nullptr)();
}

void Job::kill(int index) {
  disconnect(index);
  rank(index).end_process();
  rank(index).mailbox.reset();
  if (index == 0) {
    coordinator_.reset();
    for (int other = 1; other < kRanks; ++other) disconnect(other);
  }
  after(kPodAgain, [this, index] {
    rank(index).life = ++lives_;
    rank(index).uid = "uid-" + std::to_string(lives_);
    if (index == 0) coordinator_.emplace();
    for (int one = 0; one < kRanks; ++one) connect(one);
    schedule::Plan restart = plan(newest_.revision + 1, schedule::Trigger::kRestart);
    restart.state = schedule::StateMove::kRecover;
    publish(restart);
  });
}

void Job::cut_session(int index) {
  disconnect(index);
  after(kReconnect, [this, index] { connect(index); });
}

void Job::cut_operator(std::chrono::nanoseconds time) {
  operator_back_ = now_ + time;
}

void Job::did(int index, const SimulatedRank::Id& id, std::int64_t step, std::uint32_t epoch) {
  auto& seen = epochs_[{id, step}];
  seen.insert(epoch);
  if (seen.size() > 1) {
    wrong_.push_back("rank " + std::to_string(index) + " did step " + std::to_string(step) +
                     " with epoch " + std::to_string(epoch) + ", another one with another");
  }
}

void Job::say_goodbye(int index, const SimulatedRank::Id& id) {
  for (const int other : {index - 1, index + 1}) {
    if (other < 0 || other >= kRanks) continue;
    after(delay(), [this, other, id] {
      if (rank(other).life != 0) rank(other).peer_left(id);
    });
  }
}

void Job::end_links(int index, const SimulatedRank::Id& id) {
  for (const int other : {index - 1, index + 1}) {
    if (other < 0 || other >= kRanks) continue;
    after(delay(), [this, other, id] {
      if (rank(other).life != 0) rank(other).links_ended(id);
    });
  }
}

bool Job::waits_for_links(const SimulatedRank::Id& id) const {
  return std::ranges::all_of(ranks_, [&](const auto& one) { return one->opens(id); });
}

bool Job::all_train(std::uint32_t revision) const {
  return std::ranges::all_of(
      ranks_, [&](const auto& one) { return one->trains() && one->revision() == revision; });
}

std::string Job::text() const {
  std::string result = "newest plan " + std::to_string(newest_.revision);
  for (const auto& one : ranks_) {
    result += "; revision " + std::to_string(one->revision()) + " step " +
              std::to_string(one->step()) + (one->trains() ? " trains" : " waits");
  }
  for (const auto& one : switches_) {
    result += "; plan " + std::to_string(one.revision) + " outcome " +
              std::to_string(static_cast<int>(one.outcome)) + " " + one.reason;
  }
  return result;
}

}  // namespace weir::coordinator::test
