// SPDX-License-Identifier: Apache-2.0
// Tier compress: tensors between stages pass in fewer bits while a link is so slow that no order of
// micro-batches hides it (operator/adaptation/compression/README.md). It changes the mathematics,
// so a job must allow it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "operator/adaptation/compression/guard.h"
#include "operator/adaptation/costing/cost.h"
#include "operator/adaptation/gate/proposal.h"
#include "operator/api/pipeline_job.h"
#include "operator/facts/facts.h"

namespace weir::compression {

struct Memory {
  gate::Record coarser, finer;  // offers are named by describe()
  gate::Clock clock;
  Validations validations;
  Losses losses;
  bool stopped = false;  // until weir.dev/replan
  // Seconds of one encoding or decoding of a number, as last measured; 0 = never. So codecs that
  // cost too much are not tried again on an assumption.
  double codec_seconds = 0;
  // Steps of the last two changes of codecs.
  std::optional<std::int64_t> last_change, change_before;
};
// A change of codecs has been made at this step.
void note_change(std::int64_t step, Memory& memory);

// The best order of a job whose links have these rates, by raw bytes. Nothing = unknown.
struct Order {
  schedule::Schedule schedule;
  double seconds = 0;  // predicted step
};
using BestOrder = std::function<std::optional<Order>(const costing::Input&)>;

schedule::Codec coarsest_of(const api::JobSpec& spec);
// How coarser codecs pass the gate, and how their outcome is judged.
gate::Rules rules_of(const api::JobSpec& spec);

struct Answer {
  std::optional<gate::Proposal> proposal;
  bool bound = false;           // a link is slow, and coarser codecs would gain enough
  gate::Considered considered;  // coarser codecs than those of now, for users; its gain is over now
};
// Coarser codecs if they gain enough over the best plan without any; finer ones as soon as they
// cost next to nothing. A job that does not allow compression gets proposals that say so. Nothing
// if tensors are not numbers of one type; if a worker reads no plan with codecs, or codecs did
// damage, they are only considered. backwards: whether orders with split backwards count. asked:
// weir.dev/replan waives the cooldown.
Answer propose(const facts::Facts& facts, const costing::Costing& costing,
               const gate::Moment& moment, bool asked, schedule::Backwards backwards,
               const BestOrder& best, Memory& memory);

// Takes back codecs that round too much or make losses worse. Needs no measurements of the network.
// Call it at each tick, with raw tensors, too: later losses are compared with theirs. number_bytes:
// of a number in a tensor between stages; 0 = unknown.
std::optional<gate::Proposal> watch(const facts::Facts& facts, int number_bytes, Memory& memory);

}  // namespace weir::compression
