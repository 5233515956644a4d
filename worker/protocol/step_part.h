// SPDX-License-Identifier: Apache-2.0
// Parts of a step of one rank. Its engine thread is in exactly one of them at any time, so they add
// up to the time between the ends of two steps (worker/engine/README.md "Parts of a step").
#pragma once

#include <array>
#include <cstddef>

namespace weir::protocol {

enum class StepPart : unsigned char {
  kForward,  // ops; `weights`: of split backwards
  kBackward,
  kWeights,
  kOptimizer,  // with zeroing the gradients of the step
  kData,       // loading tokens
  kCodec,      // encoding and decoding tensors between stages
  // Waits for the activations of the next op or the header of the step, and for its gradients:
  // while the sender has not handed them to the link, and while the link carries them.
  kForwardLate,
  kForwardLink,
  kGradientLate,
  kGradientLink,
  // An op could run, but the send window for its result is full: its oldest result is on its way,
  // or waits for a slot of the receiver.
  kFullLink,
  kFullPeer,
  kSum,      // exact sums: for the other replicas, and for the other end of tied tables
  kAverage,  // for the grant and the average of replicas that average
  kNote,     // for the gradients of the later stages
  kVerdict,  // for the gradients of all stages and replicas
  kClip,     // the norm of the gradients
  kSave,     // copying the state, or holding a step back for a checkpoint
  kSwitch,   // a plan adopted or a generation entered
  kValidation,
  kOther,  // dispatch, polling, letters, reports
};
// Labels of weir_step_part_seconds_total and keys of reports, in the order of the enumerators.
inline constexpr std::array kStepPartNames{
    "forward",      "backward",     "weights",       "optimizer",     "data",      "codec",
    "forward_late", "forward_link", "gradient_late", "gradient_link", "full_link", "full_peer",
    "sum",          "average",      "note",          "verdict",       "clip",      "save",
    "switch",       "validation",   "other"};
inline constexpr std::size_t kStepParts = kStepPartNames.size();
static_assert(static_cast<std::size_t>(StepPart::kOther) + 1 == kStepParts);

constexpr const char* name(StepPart part) {
  return kStepPartNames[static_cast<std::size_t>(part)];
}

}  // namespace weir::protocol
