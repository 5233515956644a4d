// SPDX-License-Identifier: Apache-2.0
// A job whose workers report segments: a link with another rate than the others.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {

inline constexpr double kMessageBytes = 4 * 30'720;  // of a message of World's job

// A job that only observes; its link n2->n3 has another rate than the others.
struct NetworkJob {
  explicit NetworkJob(const char* mode = "Observe", const char* family = "KFKB") {
    world.job.spec.adaptation.mode = mode;
    world.job.spec.schedule.type = family;
    world.run();
    world.links(kFast, kFast);
  }
  // count steps; from its first one on the link has that rate.
  void train(int count, double rate, double seconds) {
    const auto first = world.report->body.step + 1;
    for (int i = 1; i <= count; ++i) {
      protocol::Segment segment{.revision = world.report->body.plan_revision,
                                .first_step = first,
                                .steps = i,
                                .step_seconds = seconds,
                                .step_error = 0.002};
      for (int boundary = 0; boundary < 3; ++boundary) {
        for (const bool forward : {true, false}) {
          const double own = boundary == 1 && forward ? rate : kFast;
          segment.links.push_back({.boundary = boundary,
                                   .forward = forward,
                                   .seconds = own > 0 ? kMessageBytes / own : 0,
                                   .error = own > 0 ? 0.01 * kMessageBytes / own : 0,
                                   .timed = own > 0 ? 16 * i : 0,
                                   .transfers = 17 * i,
                                   .rounding_error = boundary == 1 && forward ? rounding : 0,
                                   .connections = boundary == 1 && forward ? connections : 1});
        }
      }
      if (tells_parts) {
        for (int stage = 0; stage < 4; ++stage) {
          const double factor = stage == slow_stage ? 1.4 : 1;
          protocol::SegmentRank rank{
              .stage = stage, .forward_seconds = 0.02 * factor, .backward_seconds = 0.04 * factor};
          if (stage == throttled_stage) rank.throttled_seconds = 0.001;
          rank.parts.emplace();
          rank.parts->seconds[static_cast<std::size_t>(protocol::StepPart::kOptimizer)] = 0.01;
          rank.parts->seconds[static_cast<std::size_t>(protocol::StepPart::kCodec)] = codec_seconds;
          segment.ranks.push_back(rank);
        }
      }
      world.report->body.segment = segment;
      world.steps(1, seconds);
    }
  }
  World world;
  bool tells_parts = false;
  int connections = 1;       // of that link
  double rounding = 0.0075;  // its error
  int slow_stage = -1;       // that computes 40 % slower
  int throttled_stage = -1;  // for 1 ms of a step
  double codec_seconds = 0;  // of a step, on each stage
};

// A link that no order hides: a message takes twice as long as a micro-batch on a stage.
inline constexpr double kBound = 1e6;
inline NetworkJob bound_job(const char* mode, bool compresses, const char* family = "KFKB") {
  NetworkJob job(mode, family);
  job.tells_parts = true;
  auto& tiers = job.world.job.spec.adaptation;
  tiers.retune.enabled = false;
  tiers.regroup.min_gain_percent = 1000;
  tiers.compress.enabled = compresses;
  job.train(20, kFast, 1.15);
  job.world.links(kFast, kBound);
  return job;
}

}  // namespace weir::reconcile::test
