// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/played_rank.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace weir::sim {
namespace {

constexpr double kConnect = 15;  // s, for all links of a generation
constexpr std::size_t kMostPrepared = 2;

std::string text_of(schedule::LayerRange layers) {
  return std::to_string(layers.first) + ".." + std::to_string(layers.last);
}

}  // namespace

void Shelf::begin(std::int64_t history, std::int64_t at) {
  for (auto* kept : {&own, &copies}) {
    std::erase_if(*kept, [&](const Kept& one) { return one.step > at; });
  }
  begun = history;
  awaited = start = 0;
}

void Shelf::taken_by_all(std::int64_t step, bool all) {
  for (auto* kept : {&own, &copies}) {
    std::erase_if(*kept, [&](const Kept& one) { return all ? one.step < step : one.step == step; });
  }
}

protocol::Inventory Shelf::inventory() const {
  protocol::Inventory told{.history = begun, .revision = revision, .incarnation = incarnation};
  for (const auto* kept : {&own, &copies}) {
    for (const Kept& one : *kept) {
      told.held.push_back({.first = one.layers.first,
                           .last = one.layers.last,
                           .step = one.step,
                           .history = begun,
                           .pending = one.step <= start ? awaited : 0,
                           .snapshot = true,
                           .copy = kept == &copies});
    }
  }
  return told;
}

PlayedRank::PlayedRank(RankNetwork& network, std::string pod_uid, std::string profile, Shelf& shelf)
    : network_(network),
      pod_uid_(std::move(pod_uid)),
      profile_(std::move(profile)),
      shelf_(shelf),
      mailbox_([this](const protocol::Message& message) { network_.tell(*this, message); }) {
  ran_history_ = shelf_.begun;
  tell_inventory();
}

std::string PlayedRank::describe() const {
  std::string text = pod_uid_ + " holds ";
  text += held_ ? text_of(held_->layers) + " of step " + std::to_string(held_->step) + " history " +
                      std::to_string(held_->history)
                : "nothing";
  if (!shelf_.own.empty()) text += ", snapshot of " + std::to_string(shelf_.own.back().step);
  if (!shelf_.copies.empty()) text += ", copy of " + std::to_string(shelf_.copies.back().step);
  if (generation_) {
    text += ", in plan " + std::to_string(generation_->plan.revision) + "." +
            std::to_string(generation_->incarnation) +
            (generation_->broken    ? " broken"
             : generation_->running ? " running"
             : generation_->built   ? " built"
                                    : " building") +
            " as " + std::to_string(generation_->replica) + "/" +
            std::to_string(generation_->stage);
  }
  return text + (pending_ ? ", COMMIT pending" : "") + (leaving_ ? ", leaves" : "");
}

// ---- letters ----

void PlayedRank::on(const engine::Letter& letter) {
  const protocol::Message& message = letter.message;
  if (const auto* prepare = std::get_if<protocol::Prepare>(&message)) {
    mailbox_.answer(letter, on_prepare(*prepare));
  } else if (const auto* commit = std::get_if<protocol::Commit>(&message)) {
    on_commit(letter, *commit);
  } else if (const auto* go = std::get_if<protocol::Go>(&message)) {
    on_go(*go);
  } else if (const auto* abort = std::get_if<protocol::Abort>(&message)) {
    on_abort(*abort);
  } else if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
    on_peer_lost(*lost);
  } else if (const auto* save = std::get_if<protocol::Save>(&message)) {
    on_save(*save);
  } else if (const auto* saved = std::get_if<protocol::Saved>(&message)) {
    on_saved(*saved);
  } else if (std::holds_alternative<protocol::Measure>(message)) {
    protocol::Measured measured{.profile_json = profile_};
    if (generation_ && generation_->stage >= 0) measured = {.error = "this worker trains"};
    mailbox_.answer(letter, measured);
  }
}

const PlayedRank::Prepared* PlayedRank::prepared(std::uint32_t revision) const {
  for (const Prepared& one : prepared_) {
    if (one.plan.revision == revision) return &one;
  }
  return nullptr;
}

std::string PlayedRank::on_prepare(const protocol::Prepare& prepare) {
  const schedule::Plan& plan = prepare.plan;
  if (generation_ && plan.revision < generation_->plan.revision) return "an older revision";
  std::erase_if(prepared_, [&](const Prepared& o) { return o.plan.revision == plan.revision; });
  while (prepared_.size() >= kMostPrepared) {
    prepared_.erase(std::ranges::find_if_not(prepared_, [&](const Prepared& other) {
      return pending_ && pending_->commit.revision == other.plan.revision;
    }));
  }
  prepared_.push_back({plan, prepare.incarnation});
  return "";
}

void PlayedRank::on_commit(const engine::Letter& letter, const protocol::Commit& commit) {
  const Prepared* const next = prepared(commit.revision);
  if (next == nullptr) return mailbox_.answer(letter, "not prepared");
  if (generation_ &&
      !schedule::starts_generation(&generation_->plan, next->plan, next->incarnation)) {
    network_.fail("a plan in band, though nothing adapts");
    return mailbox_.answer(letter, "in band");
  }
  if (trains() && step() > commit.at_step) {
    return mailbox_.answer(letter, "COMMIT for step " + std::to_string(commit.at_step) +
                                       " came in step " + std::to_string(step()));
  }
  const bool moves = next->plan.state == schedule::StateMove::kMove;
  if (pending_) mailbox_.answer(pending_->letter, "another COMMIT came");
  pending_ = Pending{letter, commit};
  if (trains() && moves && holder_of(next->plan) == nullptr) drop_step(false);
}

void PlayedRank::on_go(const protocol::Go& go) {
  const bool expected = generation_ && !generation_->running && generation_->built &&
                        generation_->plan.revision == go.revision;
  if (!expected) return tell_inventory();
  Generation& now = *generation_;
  if (next_) held_ = std::exchange(next_, std::nullopt);
  if (now.stage < 0) held_.reset();
  ran_history_ = std::max(ran_history_, now.history);
  shelf_.begin(now.history, now.start);
  shelf_.revision = now.plan.revision;
  shelf_.incarnation = now.incarnation;
  now.running = true;
  now.steps_since = network_.now();
  snapshot_at_.reset();
  if (held_) {
    held_->history = now.history;
    held_->pending = 0;
    held_->summed = false;
    if (now.kept.empty() || now.kept[static_cast<std::size_t>(now.replica)].empty())
      held_->sums.reset();
  }
  network_.begins(*this);
  tell_inventory();
}

void PlayedRank::on_abort(const protocol::Abort& abort) {
  std::erase_if(prepared_, [&](const Prepared& o) { return o.plan.revision == abort.revision; });
  if (pending_ && pending_->commit.revision == abort.revision) {
    mailbox_.answer(pending_->letter, "aborted");
    pending_.reset();
  }
  if (generation_ && !generation_->running && generation_->plan.revision == abort.revision) {
    return give_up("");
  }
  tell_inventory();
}

void PlayedRank::on_peer_lost(const protocol::PeerLost& lost) {
  tells_lost_at_.reset();
  if (!trains()) return tell_inventory();
  drop_step(lost.finish_part || (lost.replica >= 0 && lost.replica != generation_->replica));
}

bool PlayedRank::has_left() const {
  if (!leaving_) return false;
  const bool begins = pending_ || (generation_ && !generation_->running);
  if (begins) return false;
  const bool copied =
      trains() && generation_->plan.replica_count() == 1 && generation_->plan.stage_count() > 1;
  return !copied || released_;
}

// ---- generations ----

const schedule::LayerHolder* PlayedRank::holder_of(const schedule::Plan& plan) const {
  for (const schedule::LayerHolder& holder : plan.holders) {
    if (!holder.copy && holder.pod_uid == pod_uid_) return &holder;
  }
  return nullptr;
}

void PlayedRank::beat() {
  while (const std::optional<engine::Letter> letter = mailbox_.take()) on(*letter);
  if (pending_ && (!trains() || step() >= pending_->commit.at_step)) enter();
  if (generation_ && !generation_->running) go_on_building();
  if (trains()) notice_ended_links();
  if (tells_lost_at_ && network_.now() >= *tells_lost_at_) tell_lost();
}

void PlayedRank::enter() {
  const Pending pending = *std::exchange(pending_, std::nullopt);
  tells_lost_at_.reset();
  const protocol::Commit& commit = pending.commit;
  const Prepared next = *prepared(commit.revision);
  std::erase_if(prepared_,
                [&](const Prepared& o) { return o.plan.revision <= next.plan.revision; });
  next_.reset();
  if (commit.verdict && held_ && held_->summed && held_->step + 1 == commit.at_step) {
    ++held_->step;
    held_->summed = false;
    held_->sums.reset();
    verdict_ = commit.verdict->loss;
    network_.ends_step(*this);
  }
  roll_back(next.plan, commit.at_step);
  const bool loads = next.plan.state == schedule::StateMove::kCheckpoint;
  generation_ = Generation{.plan = next.plan,
                           .incarnation = next.incarnation,
                           .history = commit.history,
                           .start = loads ? 0 : commit.at_step,
                           .kept = {},
                           .letter = pending.letter,
                           .connecting = mailbox_.begin_connecting(),
                           .since = network_.now()};
  for (const schedule::RankPlace& place : next.plan.ranks) {
    if (!is(place)) continue;
    generation_->replica = place.replica;
    generation_->stage = place.stage;
  }
  if (!commit.kept.empty()) generation_->kept.resize(next.plan.micro_batches.size());
  for (const auto& [replica, ids] : commit.kept) {
    generation_->kept[static_cast<std::size_t>(replica)] = ids;
  }
}

void PlayedRank::roll_back(const schedule::Plan& plan, std::int64_t at_step) {
  std::optional<schedule::LayerRange> layers;
  if (plan.state == schedule::StateMove::kMove) {
    if (const auto* own = holder_of(plan)) layers = own->layers;
  } else if (plan.state == schedule::StateMove::kKeep) {
    for (const schedule::RankPlace& place : plan.ranks) {
      if (is(place)) layers = plan.stages[static_cast<std::size_t>(place.stage)];
    }
  }
  if (!layers || (holds(*layers) && held_->step == at_step)) return;
  for (const Shelf::Kept& one : shelf_.own) {
    if (one.step != at_step || one.layers != *layers) continue;
    held_ = Held{.layers = *layers, .step = at_step, .history = shelf_.begun};
    verdict_.reset();
    return;
  }
}

void PlayedRank::go_on_building() {
  Generation& now = *generation_;
  if (!now.letter) return;  // answered: waits for GO
  if (now.connecting.stop_requested()) return give_up("interrupted");
  if (now.stage >= 0 && !now.built) {
    if (const std::string why = build(); !why.empty()) return give_up(why);
    if (!now.built) {
      if (network_.now() - now.since > kConnect) give_up("no state came in time");
      return;
    }
  }
  if (const std::string why = connect(); !why.empty()) return give_up(why);
}

std::string PlayedRank::build() {
  Generation& now = *generation_;
  const schedule::LayerRange range = now.plan.stages[static_cast<std::size_t>(now.stage)];
  const bool have = holds(range) && held_->step == now.start;
  switch (now.plan.state) {
    case schedule::StateMove::kKeep:
      if (!have && (step() > 0 || now.start > 0)) {
        return "state Keep: wanted is step " + std::to_string(now.start) + " of " + text_of(range);
      }
      [[fallthrough]];
    case schedule::StateMove::kCheckpoint:  // there is none: step 0
      if (!have) held_ = Held{.layers = range};
      break;
    case schedule::StateMove::kMove:
      for (int layer = range.first; layer <= range.last && !have; ++layer) {
        bool there = false;
        if (const std::string why = fetch(layer, there); !why.empty()) return why;
        if (!there) return "";  // the holder is not there yet
      }
      if (!have) next_ = Held{.layers = range, .step = now.start};
      break;
    case schedule::StateMove::kRecover:
      return "state Recover is the coordinator's business";
  }
  if (!now.kept.empty()) {
    const schedule::Ids& own = now.kept[static_cast<std::size_t>(now.replica)];
    const bool has = have && held_->sums && held_->sums->ids == own;
    if (!own.empty() && !has) return "COMMIT: this rank does not have the sums it should keep";
  }
  now.built = true;
  return "";
}

std::string PlayedRank::fetch(int layer, bool& there) {
  const Generation& now = *generation_;
  const auto* own = holder_of(now.plan);
  const bool keeps = own != nullptr && own->layers.first <= layer && layer <= own->layers.last &&
                     held_ && held_->step == now.start && held_->layers == own->layers;
  if (keeps) {
    there = true;
    return "";
  }
  for (const schedule::LayerHolder& holder : now.plan.holders) {
    if (layer < holder.layers.first || layer > holder.layers.last) continue;
    const PlayedRank* const other = network_.running(holder.pod_uid);
    if (other == nullptr) return "the holder is gone";
    there = network_.reach(*this, *other) && other->serves(layer, now, now.start);
    return "";
  }
  return "no holder of layer " + std::to_string(layer);
}

bool PlayedRank::serves(int layer, const Generation& of, std::int64_t at_step) const {
  if (!in(of)) return false;
  const auto has = [&](schedule::LayerRange layers) {
    return layers.first <= layer && layer <= layers.last;
  };
  if (held_ && held_->step == at_step && has(held_->layers)) return true;
  return std::ranges::any_of(shelf_.copies, [&](const Shelf::Kept& one) {
    return one.step == at_step && has(one.layers);
  });
}

std::string PlayedRank::connect() {
  Generation& now = *generation_;
  for (const schedule::RankPlace& place : now.plan.ranks) {
    if (now.stage < 0) break;
    const PlayedRank* const other = network_.running(place.pod_uid);
    if (other == nullptr) return "no link to " + place.pod;
    if (!network_.reach(*this, *other) || !other->in(now) || !other->generation_->built) {
      return network_.now() - now.since > kConnect ? "no link to " + place.pod + " in time" : "";
    }
  }
  now.built = true;
  if (now.stage >= 0) (next_ ? next_ : held_)->pending = now.history;
  shelf_.await(now.history, now.start);
  tell_inventory();
  mailbox_.answer(*std::exchange(now.letter, std::nullopt));
  return "";
}

void PlayedRank::give_up(const std::string& error) {
  const std::optional<engine::Letter> letter = generation_->letter;
  const int stage = generation_->stage;
  const bool has = stage >= 0 && holds(generation_->plan.stages[static_cast<std::size_t>(stage)]);
  generation_.reset();
  next_.reset();
  tell_inventory();
  if (letter) mailbox_.answer(*letter, error, has ? std::optional(step()) : std::nullopt);
}

void PlayedRank::tell_inventory() {
  if (trains()) return;
  protocol::Inventory told = shelf_.inventory();
  const std::vector<protocol::Held> snapshots = std::exchange(told.held, {});
  told.history = ran_history_;
  if (verdict_) told.verdict = protocol::Verdict{.squares = 1, .loss = *verdict_};
  if (held_) {
    told.held.push_back({.first = held_->layers.first,
                         .last = held_->layers.last,
                         .step = held_->step,
                         .history = held_->history,
                         .pending = held_->pending,
                         .summed = held_->summed});
    told.held.back().sums = held_->sums;
  }
  told.held.insert(told.held.end(), snapshots.begin(), snapshots.end());
  mailbox_.tell(told);
}

}  // namespace weir::sim
