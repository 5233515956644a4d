// SPDX-License-Identifier: Apache-2.0
// The joint part of a step of the replicas of a stage in Exact mode: the sums of their gradients,
// the mean loss, and the agreement on the epoch of the next step. The work is posted to a
// transport::Collective, which does it while the engine computes. One object per step; engine
// thread only.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "worker/base/result.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/step_ids.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Sent by each replica to the others of its stage at the end of a step.
struct StepSummary {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;  // of the plan in force
  std::uint32_t incarnation = 0;
  // First stage: the epoch that it would change to before the next step; 0 = none.
  std::uint32_t next_epoch = 0;
  std::vector<double> losses;  // last stage: sums by micro-batch
  bool operator==(const StepSummary&) const = default;
};
std::size_t summary_bytes(int losses);
std::vector<std::byte> encode_summary(const StepSummary& summary);
// kInvalid: `bytes` are not a summary with this number of losses.
Result<StepSummary> decode_summary(std::span<const std::byte> bytes, int losses);

// The epoch that all summaries name; 0 if there is none or they differ. All replicas see the same
// summaries, so all change before the same step, whenever COMMIT reached them.
std::uint32_t agreed_epoch(const std::vector<StepSummary>& summaries);

class ReplicaSync {
 public:
  // The references must outlive the object. The plan has several replicas. ids: of the step, by
  // replica: those whose gradients are in its sums.
  ReplicaSync(transport::Collective& collective, stage::Stage& stage, const schedule::Plan& plan,
              std::vector<schedule::Ids> ids, int incarnation, std::int64_t step, bool last_stage);

  // The sums of this layer (index within the stage) are complete. All replicas call this in the
  // same order.
  void layer_is_summed(std::size_t index);
  // Call this when the collective has done all of them: the gradients become those of the step.
  void sums_are_complete() { stage_.gradients_are_set(); }
  // Then sends the rest of what the other replicas need, which tells them that this rank has its
  // gradients. losses: last stage: of this replica, by rising id.
  void send_card(std::uint32_t next_epoch, std::vector<double> losses);
  // Call this when the collective has done that, too. kConflict: the replicas run different plans.
  Status take_cards();

  double loss() const { return loss_; }  // of the global batch; last stage only
  std::uint32_t next_epoch() const { return next_epoch_; }

 private:
  transport::CollectiveTag next_tag();

  transport::Collective& collective_;
  stage::Stage& stage_;
  const schedule::Plan& plan_;
  const std::vector<schedule::Ids> ids_;
  const int incarnation_;
  const std::int64_t step_;
  const bool last_stage_;
  std::vector<int> members_;
  std::vector<stage::LayerSum> layers_;
  std::uint32_t parts_ = 0;  // operations posted
  // Shared: the collective may outlive this object.
  std::shared_ptr<std::vector<std::vector<std::byte>>> summaries_;
  double loss_ = std::numeric_limits<double>::quiet_NaN();
  std::uint32_t next_epoch_ = 0;
};

}  // namespace weir::engine
