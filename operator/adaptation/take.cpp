// SPDX-License-Identifier: Apache-2.0
// A proposal becomes a change: what its outcome is compared with, and which clocks it starts.
#include <utility>

#include "operator/adaptation/tick_parts.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"

namespace weir::adaptation {
namespace {

using gate::Kind;

// seconds: of a step of the plan in force, where workers send no segment.
costing::Evidence evidence_of_now(const facts::Facts& facts, double seconds) {
  std::string why_not;
  const auto model = model_of(facts, why_not);
  const planner::Model* known = model ? &*model : nullptr;
  costing::Evidence told = costing::evidence_of(facts, known, *facts.plan);
  return told.steps > 0 ? told : costing::estimated(facts, known, seconds, false);
}

Change change_of(const facts::Facts& facts, const gate::Proposal& proposal, double seconds) {
  Change change;
  change.kind = proposal.kind;
  change.revision = facts.next_revision;
  change.previous = *facts.plan;
  change.offer = proposal.offer.name;
  change.what = proposal.what;
  change.before = evidence_of_now(facts, seconds);
  change.predicted_gain = proposal.gain;
  change.move_seconds = proposal.move_seconds;
  return change;
}

void take_retuned(const facts::Facts& facts, Tick& tick, const gate::Proposal& proposal) {
  if (proposal.judged) {
    tick.memory.plan_change = change_of(facts, proposal, sampled_step_seconds(facts));
  }
  tick.clocks.retune_last_change = facts.now;  // tune() has started its own clock
  tick.events_of_change.push_back({"Normal", "PlanRetuned", proposal.text, "Adapt"});
}

void take_shares(const facts::Facts& facts, Tick& tick, const gate::Proposal& proposal) {
  Memory& memory = tick.memory;
  const auto& plan = std::get<schedule::Plan>(proposal.change);
  const bool policy = plan.sync != facts.plan->sync;
  memory.plan_change.reset();
  if (plan.micro_batches != facts.plan->micro_batches) {
    tick.events_of_change.push_back({"Normal", "PlanRetuned", proposal.text, "Adapt"});
  }
  if (policy) {
    tick.events_of_change.push_back({"Normal", "SyncPolicyChanged", proposal.text, "Adapt"});
  }
  if (proposal.kind == Kind::kSpec) return;
  if (proposal.judged) {
    Change& change =
        memory.plan_change.emplace(change_of(facts, proposal, recent_step_seconds(facts)));
    if (policy) change.offer = shares::name(shares::Mode::kPartial);
  }
  memory.retune.clock.last_change = facts.now;
  memory.retune.last_change_step = facts.report->step;
  gate::nothing_offered(memory.retune.record);
  tick.clocks.retune_last_change = facts.now;
  if (!policy) return;
  memory.repartition.clock.last_change = facts.now;
  tick.clocks.regroup_last_change = facts.now;
}

void take_codecs(const facts::Facts& facts, Tick& tick, const gate::Proposal& proposal) {
  Memory& memory = tick.memory;
  memory.plan_change.reset();
  if (proposal.judged) {
    memory.plan_change = change_of(facts, proposal, sampled_step_seconds(facts));
  }
  memory.compression.clock.last_change = tick.clocks.compress_last_change = facts.now;
  memory.retune.last_change_step = facts.report->step;
  compression::note_change(facts.report->step, memory.compression);
  gate::nothing_offered(memory.retune.record);
  const bool reverted = proposal.kind == Kind::kRevertCodecs;
  const char* const reason = reverted                             ? "CompressionReverted"
                             : proposal.kind == Kind::kDecompress ? "PlanDecompressed"
                                                                  : "PlanCompressed";
  tick.events_of_change.push_back(
      {reverted ? "Warning" : "Normal", reason, proposal.text, "Adapt"});
}

void take_ranks(const facts::Facts& facts, Tick& tick, const gate::Proposal& proposal) {
  Memory& memory = tick.memory;
  if (proposal.kind == Kind::kRepartition) {
    remember_previous_cut(facts, proposal.offer, memory.repartition);
    memory.repartition.clock.last_change = tick.clocks.regroup_last_change = facts.now;
  }
  if (proposal.kind == Kind::kReplace) {
    memory.replace.clock.last_change = tick.clocks.replace_last_change = facts.now;
  }
  Change& change =
      memory.ranks_change.emplace(change_of(facts, proposal, sampled_step_seconds(facts)));
  if (proposal.kind == Kind::kReplace) {
    change.revision = 0;
    change.after = static_cast<std::uint32_t>(facts.status.plan.revision);
    change.can_return = false;
  }
  memory.repartition.candidate.reset();
  memory.plan_change.reset();  // a change of retune cannot be judged any more
  memory.retune.last_change_step = facts.report->step;
  gate::nothing_offered(memory.retune.record);
  memory.retune.cost.loss_seconds = 0;
  show_cooldowns(tick);
}

std::string& announced(Memory& memory, Kind kind) {
  if (kind == Kind::kShares) return memory.announced.shares;
  if (kind == Kind::kCompress || kind == Kind::kDecompress || kind == Kind::kRevertCodecs) {
    return memory.announced.compression;
  }
  const bool retunes = kind == Kind::kRetune || kind == Kind::kMemoryGuard;
  return retunes ? memory.announced.retune : memory.announced.ranks;
}

}  // namespace

void take(const facts::Facts& facts, Tick& tick, gate::Proposal proposal) {
  switch (proposal.kind) {
    case Kind::kRetune:
    case Kind::kMemoryGuard:
      take_retuned(facts, tick, proposal);
      break;
    case Kind::kShares:
    case Kind::kSpec:
      take_shares(facts, tick, proposal);
      break;
    case Kind::kCompress:
    case Kind::kDecompress:
    case Kind::kRevertCodecs:
      take_codecs(facts, tick, proposal);
      break;
    case Kind::kRepartition:
    case Kind::kRetry:
    case Kind::kReplace:
      take_ranks(facts, tick, proposal);
      break;
    case Kind::kRollback:
      break;
  }
  tick.proposal = std::move(proposal);
}

void announce(Tick& tick, const gate::Proposal& proposal) {
  std::string& last = announced(tick.memory, proposal.kind);
  if (last != proposal.offer.name) say(tick, "Normal", "PlanProposed", proposal.text);
  last = proposal.offer.name;
}

}  // namespace weir::adaptation
