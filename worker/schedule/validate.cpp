// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/validate.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"
#include "worker/schedule/caps.h"

namespace weir::schedule {
namespace {

std::string indexed(const char* field, std::size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

void check_caps(const Schedule& schedule, int stages, int micro_batches,
                std::vector<std::string>& broken) {
  const std::vector<int>& caps = schedule.caps;
  if (static_cast<int>(caps.size()) != stages) {
    broken.push_back("schedule.caps: " + std::to_string(caps.size()) + " values for " +
                     std::to_string(stages) + " stages");
    return;
  }
  for (std::size_t s = 0; s < caps.size(); ++s) {
    const std::string here = indexed("schedule.caps", s) + ": " + std::to_string(caps[s]);
    if (caps[s] < 1) broken.push_back(here + " is below 1");
    if (caps[s] > micro_batches) {
      broken.push_back(here + " is above the " + std::to_string(micro_batches) +
                       " micro-batches of a step");
    }
    if (s > 0 && caps[s] > caps[s - 1]) {
      broken.push_back(here + " is above the " + std::to_string(caps[s - 1]) +
                       " of the stage before");
    }
  }
  if (schedule.dispatch == Dispatch::kHint && k_of_caps(caps) == 1 && !schedule.split) {
    broken.emplace_back("schedule.dispatch: Hint with caps of k=1, which run Strict");
  }
}

void check_split(const Schedule& schedule, int micro_batches, std::vector<std::string>& broken) {
  const std::vector<int>& caps = schedule.caps;
  const auto one_each = [&](const char* field, const std::vector<int>& values) {
    if (values.size() == caps.size()) return true;
    broken.push_back(std::string(field) + ": " + std::to_string(values.size()) + " values for " +
                     std::to_string(caps.size()) + " stages");
    return false;
  };
  const auto within = [&](const char* field, std::size_t s, int value, int least) {
    const std::string here = indexed(field, s) + ": " + std::to_string(value);
    if (value < least) broken.push_back(here + " is below " + std::to_string(least));
    if (value > micro_batches) {
      broken.push_back(here + " is above the " + std::to_string(micro_batches) +
                       " micro-batches of a step");
    }
  };
  const auto& [held, postponed] = *schedule.split;
  if (one_each("schedule.split.held", held)) {
    for (std::size_t s = 0; s < held.size(); ++s) {
      within("schedule.split.held", s, held[s], caps[s]);
    }
  }
  if (one_each("schedule.split.postponed", postponed)) {
    for (std::size_t s = 0; s < postponed.size(); ++s) {
      within("schedule.split.postponed", s, postponed[s], 0);
    }
  }
}

void check_layers(const Plan& plan, int layers, std::vector<std::string>& broken) {
  int next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const LayerRange& range = plan.stages[s];
    const std::string here = indexed("stages", s) + ".layers";
    if (range.first != next) {
      broken.push_back(here + ": starts at " + std::to_string(range.first) + " instead of " +
                       std::to_string(next));
    }
    if (range.last < range.first) broken.push_back(here + ": holds no layer");
    next = range.last + 1;
  }
  if (layers >= 0 && next != layers) {
    broken.push_back("stages: cover " + std::to_string(next) + " of " + std::to_string(layers) +
                     " layers");
  }
}

void check_ranks(const Plan& plan, std::vector<std::string>& broken) {
  const int stages = plan.stage_count();
  const int replicas = plan.replica_count();
  std::vector<int> count(plan.stages.size() * plan.micro_batches.size(), 0);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const RankPlace& rank = plan.ranks[r];
    if (rank.replica < 0 || rank.replica >= replicas) {
      broken.push_back(indexed("ranks", r) + ".replica: " + std::to_string(rank.replica) +
                       " is not below " + std::to_string(replicas));
    } else if (rank.stage < 0 || rank.stage >= stages) {
      broken.push_back(indexed("ranks", r) + ".stage: " + std::to_string(rank.stage) +
                       " is not below " + std::to_string(stages));
    } else {
      ++count[static_cast<std::size_t>(rank.replica) * plan.stages.size() +
              static_cast<std::size_t>(rank.stage)];
    }
  }
  for (std::size_t i = 0; i < count.size(); ++i) {
    if (count[i] == 1) continue;
    const int place = static_cast<int>(i);
    broken.push_back("ranks: " + std::to_string(count[i]) + " ranks for replica " +
                     std::to_string(place / stages) + ", stage " + std::to_string(place % stages));
  }
}

void check_codecs(const Plan& plan, std::vector<std::string>& broken) {
  const std::size_t boundaries = plan.stages.size() - 1;
  const auto one_each = [&](const char* field, const std::vector<Codec>& codecs) {
    if (codecs.size() == boundaries) return;
    broken.push_back(std::string(field) + ": has " + std::to_string(codecs.size()) +
                     " entries, the plan has " + std::to_string(boundaries) + " boundaries");
  };
  const auto& [forward, backward] = plan.codecs;
  if (forward.empty() && backward.empty()) return;
  one_each("codecs.forward", forward);
  one_each("codecs.backward", backward);
}

void check_sync(const SyncPolicy& sync, std::vector<std::string>& broken) {
  if (sync.mode == SyncMode::kExact) return;
  const auto refuse = [&](const char* field, const std::string& why) {
    broken.push_back("sync." + std::string(field) + ": " + why);
  };
  if (sync.group_size_min < 2)
    refuse("groupSizeMin", std::to_string(sync.group_size_min) + " is below 2");
  if (sync.group_size_max < sync.group_size_min) {
    refuse("groupSizeMax", std::to_string(sync.group_size_max) + " is below groupSizeMin");
  }
  if (!(sync.max_staleness >= 1)) refuse("maxStaleness", "is below 1");
  if (sync.grace_window_percent < 0) {
    refuse("graceWindowPercent", std::to_string(sync.grace_window_percent) + " is below 0");
  }
  if (sync.connect_every < 1)
    refuse("connectEvery", std::to_string(sync.connect_every) + " is below 1");
}

}  // namespace

std::string too_large_a_step(const Plan& plan) {
  const std::int64_t step = plan.step_micro_batches();
  if (step > kMostMicroBatches) {
    return "microBatches: " + std::to_string(step) + " a step are above " +
           std::to_string(kMostMicroBatches);
  }
  if (step * plan.schedule.micro_batch_size > kMostStepSamples) {
    return "schedule.microBatchSize: " + std::to_string(plan.schedule.micro_batch_size) +
           " times " + std::to_string(step) + " micro-batches is above " +
           std::to_string(kMostStepSamples) + " samples a step";
  }
  return "";
}

std::vector<std::string> broken_rules(const Schedule& schedule, int stages, int micro_batches) {
  std::vector<std::string> broken;
  if (schedule.micro_batch_size < 1) {
    broken.push_back("schedule.microBatchSize: " + std::to_string(schedule.micro_batch_size) +
                     " is below 1");
  }
  if (schedule.k < 1) {
    broken.push_back("schedule.k: " + std::to_string(schedule.k) + " is below 1");
  }
  if (schedule.k > micro_batches) {
    broken.push_back("schedule.k: " + std::to_string(schedule.k) + " is above the " +
                     std::to_string(micro_batches) + " micro-batches of a step");
  }
  check_caps(schedule, stages, micro_batches, broken);
  if (schedule.split && broken.empty()) check_split(schedule, micro_batches, broken);
  return broken;
}

std::vector<std::string> broken_rules(const Plan& plan, int layers) {
  std::vector<std::string> broken;
  if (plan.stages.empty()) broken.emplace_back("stages: empty");
  if (plan.micro_batches.empty()) broken.emplace_back("microBatches: empty");
  int least = 0;
  for (std::size_t r = 0; r < plan.micro_batches.size(); ++r) {
    const int share = plan.micro_batches[r];
    if (share < 1) {
      broken.push_back(indexed("microBatches", r) + ": " + std::to_string(share) + " is below 1");
    }
    if (r == 0 || share < least) least = share;
  }
  if (std::string why = too_large_a_step(plan); !why.empty()) broken.push_back(std::move(why));
  if (!broken.empty()) return broken;

  // Caps and k must not exceed the smallest share.
  broken = broken_rules(plan.schedule, plan.stage_count(), least);
  check_sync(plan.sync, broken);
  check_layers(plan, layers, broken);
  check_codecs(plan, broken);
  check_ranks(plan, broken);
  return broken;
}

namespace {

// The most that micro-batches keep on a stage with a split backward: i in flight and n held keep
// i x activations + (n-i) x held, and one in flight is in its B.
std::int64_t in_flight_when_full(const StageMemory& stage, int cap) {
  return stage.activation_bytes > stage.held_bytes ? cap : 1;
}
std::int64_t bytes_in_flight(const StageMemory& stage, int cap) {
  return (in_flight_when_full(stage, cap) - 1) * stage.activation_bytes +
         std::max({stage.in_backward_bytes, stage.activation_bytes, stage.held_bytes});
}

std::int64_t micro_batch_bytes(const StageMemory& stage, const Schedule& schedule, std::size_t s) {
  const int cap = schedule.caps[s];
  if (!schedule.split) return cap * stage.activation_bytes;
  return bytes_in_flight(stage, cap) +
         (schedule.split->held[s] - in_flight_when_full(stage, cap)) * stage.held_bytes;
}

}  // namespace

std::int64_t memory_bytes(const StageMemory& stage, const Schedule& schedule, int stage_index) {
  WEIR_CHECK(stage_index >= 0 && stage_index < static_cast<int>(schedule.caps.size()),
             "the stage exists");
  const Credits credits = credits_of(schedule);
  // static + micro-batches + r_f input + r_b output + (q+1) (input + output)
  return stage.static_bytes +
         micro_batch_bytes(stage, schedule, static_cast<std::size_t>(stage_index)) +
         credits.receive_forward * stage.input_bytes +
         credits.receive_backward * stage.output_bytes +
         (credits.send_window + 1) * (stage.input_bytes + stage.output_bytes);
}

int most_held(const StageMemory& stage, const Schedule& schedule, int stage_index,
              std::int64_t limit, int most) {
  StageMemory without = stage;
  without.activation_bytes = without.held_bytes = without.in_backward_bytes = 0;
  const int cap = schedule.caps[static_cast<std::size_t>(stage_index)];
  const std::int64_t left =
      limit - memory_bytes(without, schedule, stage_index) - bytes_in_flight(stage, cap);
  if (left < 0) return 0;
  if (stage.held_bytes <= 0) return most;
  const std::int64_t held = in_flight_when_full(stage, cap) + left / stage.held_bytes;
  return static_cast<int>(std::min<std::int64_t>(held, most));
}

}  // namespace weir::schedule
