// SPDX-License-Identifier: Apache-2.0
// Plans of a job: made, changed, adopted. Private to the rooms of reconcile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/controller/reconcile/pass/draft.h"
#include "operator/controller/reconcile/pass/view.h"
#include "operator/facts/facts.h"

namespace weir::reconcile {

// The parts, in the order in which reconcile calls them.
void make_plans(const View& view, Draft& draft);  // initial, restart, edited spec
void adapt(const View& view, Draft& draft);       // one tick of adaptation

// Judges the links by the segments of the newest report, and writes what it finds into the
// estimates: usual rates, contended links.
void judge_network(const View& view, Draft& draft, estimator::Estimates& estimates);

facts::Facts facts_of(const View& view, const Draft& draft);
std::uint32_t next_revision(const View& view, const Draft& draft);  // of a plan that is made now
// Puts a plan into status and emits CreatePlan. Revision, parent and uid are filled in here.
void adopt_plan(const View& view, Draft& draft, schedule::Plan plan, schedule::Trigger trigger,
                double predicted_gain);
// Writes k, batches and stages of this plan into status.plan, but not its revision.
void show_plan(const View& view, Draft& draft, const schedule::Plan& plan);
// The plan in force with idle workers of the same groups in the places of lost ones. Nothing: no
// worker is lost, or too few are idle, or the lost one is the coordinator.
std::optional<schedule::Plan> with_substitutes(const View& view, const Draft& draft);
// Wishes of the spec about codecs that this model cannot follow, as the end of a sentence; "" =
// nothing, or the model is not known yet.
std::string codecs_without_effect(const View& view, const Draft& draft);
// Text about idle workers, e.g. "2 of 10 workers have no stage (x-w-8, x-w-9): the model has 8
// layers"; "" = there are none.
std::string idle_text(const View& view, const schedule::Plan& plan);

}  // namespace weir::reconcile
