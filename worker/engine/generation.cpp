// SPDX-License-Identifier: Apache-2.0
// A new generation: stop at the boundary, build or keep the stage, connect the neighbours.
#include "worker/engine/generation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/engine/plan_rules.h"
#include "worker/engine/state_move.h"
#include "worker/engine/step.h"

namespace weir::engine {
namespace {

constexpr auto kDrainLimit = std::chrono::seconds(10);  // for the last bytes of the old generation

std::optional<transport::PeerAddress> peer_of(const schedule::Plan& plan, int replica, int stage) {
  for (const schedule::RankPlace& rank : plan.ranks) {
    if (rank.replica != replica || rank.stage != stage) continue;
    return transport::PeerAddress{
        .stage = stage, .ip = rank.ip, .data_port = rank.data_port, .node = rank.node};
  }
  return std::nullopt;
}

}  // namespace

// Where this replica's part of the step is kept, its other ranks may still compute theirs.
void Engine::abort_links(const std::string& reason) {
  const std::lock_guard lock(links_mutex_);
  if (generation_ && generation_->replicas) generation_->replicas->abort(reason);
  if (share_) return;
  if (links_) links_->abort(reason);
  if (generation_ && generation_->ties) generation_->ties->abort(reason);
}

void Engine::drop_links() {
  std::shared_ptr<transport::Communicator> links;
  {
    const std::lock_guard lock(links_mutex_);
    links = std::exchange(links_, nullptr);
  }
  if (!generation_) return;
  generation_->links.reset();
  generation_->replicas.reset();
  generation_->ties.reset();
  generation_->beside.average.reset();
}

std::optional<Ending> Engine::enter_generation(const std::stop_token& stop) {
  const auto [letter, commit, same_links] = *std::exchange(pending_, std::nullopt);
  const Prepared* const found = prepared(commit.revision);
  WEIR_CHECK(found != nullptr, "a committed plan stays prepared");
  const Prepared next = *found;

  // A rank that trains counts the way into the generation to its next step, others did nothing.
  if (!generation_ || !generation_->placed) stopwatch_.restart();
  offer_.reset();  // of an earlier move that failed
  auto generation = std::make_unique<Generation>();
  generation->turn = letter.turn;
  const Status built = build(generation, next, commit, stop);
  waiting_since_ = parts_.clock.now();
  if (built) {
    std::erase_if(prepared_,
                  [&](const Prepared& other) { return other.plan.revision <= next.plan.revision; });
    holdings_.await(commit.history);
    if (parts_.snapshots != nullptr) parts_.snapshots->await(commit.history, generation_->start);
    tell_inventory();
    mailbox_.answer(letter);
    return std::nullopt;
  }
  give_up_generation();
  const std::optional<schedule::RankPlace> own = place_of(next.plan, options_.identity);
  log_warn(kRoom, "new generation failed",
           {{"revision", next.plan.revision}, {"reason", built.error().message}});
  const bool holds = own && holdings_.holds(next.plan.stages[static_cast<std::size_t>(own->stage)]);
  mailbox_.answer(letter, built.error().message, holds ? std::optional(step_) : std::nullopt);
  if (built.error().code == Code::kInternal) {
    return Ending{Exit::kOutOfMemory, built.error().message};
  }
  if (built.error().code == Code::kModel) return Ending{Exit::kModelFailed, built.error().message};
  return give_up_;
}

// The rank holds what it held before, unless a checkpoint was to take its place.
void Engine::give_up_generation() {
  offer_.reset();  // before the stages, because it may read their memory
  drop_links();
  generation_.reset();
  holdings_.forget_next();
  recorder_.stage_gone();
  waiting_since_ = parts_.clock.now();
  tell_inventory();
}

void Engine::tell_inventory() {
  if (generation_ && generation_->trains()) return;
  protocol::Inventory told;
  if (parts_.snapshots != nullptr) told = parts_.snapshots->inventory();
  const std::vector<protocol::Held> snapshots = std::exchange(told.held, {});
  told.history = ran_history_;
  told.verdict = verdict_;
  const Holding& holding = holdings_.current();
  if (holding.stage && !between_models_) {
    told.held.push_back({.first = holding.layers.first,
                         .last = holding.layers.last,
                         .step = step_,
                         .history = holding.history,
                         .pending = holding.pending,
                         .replica = holding.replica,
                         .summed = summed_.has_value(),
                         .compressed_steps = compressed_steps_});
    if (share_) {
      told.held.back().sums = {.ids = share_->share.ids,
                               .micro_batch_size = share_->micro_batch_size,
                               .micro_batches = share_->micro_batches,
                               .codecs = share_->codecs};
    }
  }
  told.held.insert(told.held.end(), snapshots.begin(), snapshots.end());
  mailbox_.tell(told);
}

// `generation` is new and is filled; on failure the caller still owns it.
Status Engine::build(std::unique_ptr<Generation>& generation, const Prepared& next,
                     const protocol::Commit& commit, const std::stop_token& stop) {
  const std::int64_t at_step = commit.at_step;
  drain(kDrainLimit, stop);
  drop_links();
  if (generation_ && !generation_->running) generation_.reset();  // its GO never came
  holdings_.forget_next();

  if (commit.verdict && summed_ && step_ + 1 == at_step) roll_forward(*commit.verdict);
  WEIR_OK(roll_back(next.plan, at_step));

  generation->current = next;
  generation->history = commit.history;
  const bool loads = next.plan.state == schedule::StateMove::kCheckpoint;
  generation->start = loads ? std::max<std::int64_t>(0, next.plan.checkpoint_step) : at_step;
  const bool moves = next.plan.state == schedule::StateMove::kMove;
  if (moves) WEIR_OK(offer_state(next, at_step));
  const std::optional<schedule::RankPlace> own = place_of(next.plan, options_.identity);
  if (!own) {
    generation_ = std::move(generation);
    recorder_.stage_gone();
    log_info(kRoom, "idle in this plan", {{"revision", next.plan.revision}});
    return Unit{};
  }
  generation->placed = true;
  generation->place = *own;
  generation->layers = next.plan.stages[static_cast<std::size_t>(own->stage)];
  WEIR_OK(moves ? move_stage(*generation, next, at_step, stop)
                : take_stage(*generation, next, at_step));
  WEIR_OK(keep_sums(*generation, commit));
  WEIR_OK(warm_up(*generation));
  WEIR_OK(connect(*generation, stop));

  const schedule::RankPlace& place = generation->place;
  recorder_.stage_built(place.replica, place.stage, next.plan.stage_count(), ever_ran_,
                        generation->start);
  recorder_.plan_adopted(next.plan, next.incarnation);
  interrupted_ = true;
  compressed_steps_ = commit.compressed_steps;
  generation_ = std::move(generation);
  return Unit{};
}

// A rank that lacks what it should keep would leave out micro-batches.
Status Engine::keep_sums(Generation& generation, const protocol::Commit& commit) {
  if (commit.kept.empty()) return Unit{};
  const schedule::Plan& plan = generation.current.plan;
  const int total = static_cast<int>(plan.step_micro_batches());
  std::vector<schedule::Ids> kept(plan.micro_batches.size());
  for (const auto& [replica, ids] : commit.kept) {
    const bool legal =
        replica >= 0 && replica < plan.replica_count() && schedule::are_legal(ids, total) &&
        std::ranges::none_of(
            kept,
            [&, own = ids](const schedule::Ids& other) { return schedule::overlap(own, other); });
    if (!legal) return invalid("COMMIT: illegal sums kept of replica " + std::to_string(replica));
    kept[static_cast<std::size_t>(replica)] = ids;
  }
  const schedule::Ids& own = kept[static_cast<std::size_t>(generation.place.replica)];
  const bool has = share_ && share_->share.ids == own && generation.stage == holdings_.held() &&
                   share_->micro_batch_size == plan.schedule.micro_batch_size &&
                   share_->micro_batches == total &&
                   describe(share_->codecs) == describe(plan.codecs);
  if (!own.empty() && !has) {
    return Error{Code::kConflict, "COMMIT: this rank does not have the sums that it should keep"};
  }
  generation.kept = std::move(kept);
  return Unit{};
}

void Engine::replace_holding(Holding holding) {
  summed_.reset();
  share_.reset();
  verdict_.reset();
  between_models_ = false;
  holdings_.replace(std::move(holding));
}

// Ends the step that was dropped before its verdict came, as the ranks ended it that have heard the
// verdict.
void Engine::roll_forward(const protocol::Verdict& verdict) {
  StepRecord record = *std::exchange(summed_, std::nullopt);
  record.skipped = !end_step(*holdings_.held(), verdict, options_.grad_clip);
  if (record.last_stage) record.loss = verdict.loss;
  record.verdict = verdict;
  log_info(kRoom, "dropped step ended by the verdict of others", {{"step", record.step}});
  interrupted_ = true;
  count_step(record);
}

// With Keep, the stage of this rank continues if its state is that of at_step; replicas that
// average may come from different steps. Otherwise the state is that of the plan's checkpoint, or
// of step 0, and a loss of steps is logged. Memory does not suffice for two stages, so what the
// rank holds goes first.
Status Engine::take_stage(Generation& generation, const Prepared& next, std::int64_t at_step) {
  const schedule::LayerRange range = generation.layers;
  const bool keep = next.plan.state == schedule::StateMove::kKeep;
  const bool have = holdings_.holds(range);
  const bool fits = step_ == at_step || (schedule::averages(next.plan) && step_ < at_step);
  if (keep && have && fits) {
    step_ = at_step;
    generation.stage = holdings_.held();
    return Unit{};
  }
  if (keep && (step_ > 0 || at_step > 0)) {
    return Error{Code::kConflict, "state Keep: wanted is step " + std::to_string(at_step) +
                                      " of layers " + std::to_string(range.first) + ".." +
                                      std::to_string(range.last) + ", this rank stands at step " +
                                      std::to_string(step_) + (have ? "" : " of other layers")};
  }
  generation_.reset();
  replace_holding({});  // frees its memory before the new stage allocates
  if (step_ > 0 && next.plan.checkpoint_step < 0) {
    log_warn(kRoom, "no checkpoint to load: training starts again at step 0",
             {{"revision", next.plan.revision}, {"lost_steps", step_}});
  }
  step_ = 0;
  saving_ = Saving{};
  WEIR_TRY(std::unique_ptr<stage::Stage> made,
           parts_.make_stage(
               range.first, range.last,
               fills(next.plan) ? stage::Initial::kFromElsewhere : stage::Initial::kOfModel));
  WEIR_OK(fill_stage(*made, next.plan));
  generation.stage = made.get();
  replace_holding({std::move(made), range});
  const int stage = generation.place.stage;
  schedule::StageMemory memory =
      stage_memory(next.plan, stage, parts_.model, copies_for_saves() ? 1 : 0);
  const std::int64_t planned = schedule::memory_bytes(memory, next.plan.schedule, stage);
  memory.input_bytes = memory.output_bytes = 0;
  const std::int64_t without_messages = schedule::memory_bytes(memory, next.plan.schedule, stage);
  log_info(kRoom, "stage built",
           {{"revision", next.plan.revision},
            {"step", step_},
            {"stage", stage},
            {"first_layer", range.first},
            {"last_layer", range.last},
            {"planned_bytes", planned},
            {"planned_message_bytes", planned - without_messages}});
  return Unit{};
}

// Before there are links, so that the device loads no kernel beside their transfers.
Status Engine::warm_up(Generation& generation) {
  const int samples = generation.current.plan.schedule.micro_batch_size;
  const std::pair key(generation.layers, samples);
  if (std::ranges::find(warmed_, key) != warmed_.end()) return Unit{};
  warmed_.push_back(key);
  return generation.stage->warm_up(samples);
}

Status Engine::connect(Generation& generation, const std::stop_token& stop) {
  const schedule::Plan& plan = generation.current.plan;
  const schedule::RankPlace& place = generation.place;
  std::shared_ptr<transport::Communicator> links;
  if (plan.stage_count() > 1) {
    const transport::Generation wanted{
        .job_uid = options_.job_uid,
        .job_key = options_.job_key,
        .revision = plan.revision,
        .incarnation = static_cast<std::uint16_t>(generation.current.incarnation),
        .replica = place.replica,
        .stage = place.stage,
        .node = options_.node,
        .previous = peer_of(plan, place.replica, place.stage - 1),
        .next = peer_of(plan, place.replica, place.stage + 1)};
    std::stop_source source = mailbox_.begin_connecting();
    const std::stop_callback on_stop(stop, [&source] { source.request_stop(); });
    if (quits()) source.request_stop();
    WEIR_TRY(
        std::unique_ptr<transport::Communicator> made,
        parts_.connect(wanted, parts_.clock.now() + options_.connect_timeout, source.get_token()));
    links = std::move(made);
    if (wanted.previous) {
      const transport::LinkEnd end{.peer_stage = wanted.previous->stage,
                                   .channel = transport::Channel::kForward,
                                   .sending = false};
      generation.headers_from = name_of(*wanted.previous) + ", " + name_of(end);
    }
  }
  generation.links = std::make_unique<StageLinks>(links.get(), parts_.device, place.stage,
                                                  plan.stage_count(), recording());
  flight_.begin_place(place.replica, place.stage, plan.stage_count());
  {
    const std::lock_guard lock(links_mutex_);
    links_ = std::move(links);
  }
  WEIR_OK(connect_replicas(generation, stop));
  return connect_ties(generation, stop);
}

// Connects the replicas after the neighbours of this replica, so that no two ranks wait for each
// other.
Status Engine::connect_replicas(Generation& generation, const std::stop_token& stop) {
  const schedule::Plan& plan = generation.current.plan;
  const schedule::RankPlace& place = generation.place;
  agreed_epoch_ = 0;
  if (plan.replica_count() == 1) return Unit{};
  if (!parts_.connect_replica_group)
    return Error{Code::kConflict, "this rank cannot meet other replicas"};
  transport::ReplicaGroupGeneration wanted{
      .job_uid = options_.job_uid,
      .job_key = options_.job_key,
      .revision = plan.revision,
      .incarnation = static_cast<std::uint16_t>(generation.current.incarnation),
      .replica = place.replica,
      .stage = place.stage};
  for (const schedule::RankPlace& rank : plan.ranks) {
    if (rank.stage != place.stage || rank.replica == place.replica) continue;
    wanted.others.push_back({.replica = rank.replica, .ip = rank.ip, .data_port = rank.data_port});
  }
  WEIR_TRY(generation.replicas, connect_group(wanted, stop));
  return Unit{};
}

Result<std::unique_ptr<transport::Collective>> Engine::connect_group(
    const transport::ReplicaGroupGeneration& wanted, const std::stop_token& stop) {
  std::stop_source source = mailbox_.begin_connecting();
  const std::stop_callback on_stop(stop, [&source] { source.request_stop(); });
  if (quits()) source.request_stop();
  return parts_.connect_replica_group(wanted, parts_.clock.now() + options_.connect_timeout,
                                      source.get_token());
}

// The first and the last stage meet when each has met all others that it needs, so that no two
// ranks wait for each other.
Status Engine::connect_ties(Generation& generation, const std::stop_token& stop) {
  const schedule::Plan& plan = generation.current.plan;
  const schedule::RankPlace& place = generation.place;
  const int last = plan.stage_count() - 1;
  if (parts_.model.ties.empty() || last == 0) return Unit{};
  if (place.stage != 0 && place.stage != last) return Unit{};
  if (!parts_.connect_replica_group)
    return Error{Code::kConflict, "this rank cannot meet the other end of tied tables"};
  const bool first = place.stage == 0;
  const auto other = peer_of(plan, place.replica, first ? last : 0);
  if (!other) return invalid("plan: no rank has the other end of tied tables");
  WEIR_TRY(
      generation.ties,
      connect_group(
          {.job_uid = options_.job_uid,
           .job_key = options_.job_key,
           .revision = plan.revision,
           .incarnation = static_cast<std::uint16_t>(generation.current.incarnation),
           .replica = first ? 0 : 1,
           .stage = plan.stage_count() + place.replica,
           .of_ties = true,
           .others = {{.replica = first ? 1 : 0, .ip = other->ip, .data_port = other->data_port}}},
          stop));
  return Unit{};
}

}  // namespace weir::engine
