// SPDX-License-Identifier: Apache-2.0
// The end of a step in two phases. A note travels from the last stage to stage 0 behind the last
// gradient: the sums of these stages are complete at all replicas. Stage 0 answers with a verdict,
// and a rank updates its parameters when it has the verdict. So no rank has updated while another
// one lacks gradients: after a failure those that have not updated do so alone.
//
// The note carries sums of squares per layer, which stage 0 adds in the order of the layers. So the
// norm, and every number that depends on it, is bit-equal for every cut. The sum decides whether
// gradients are clipped, and whether ranks update at all: if a gradient or the loss is not finite,
// no rank does. Pure: the stage computes the sums and scales the gradients.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/base/result.h"
#include "worker/protocol/messages.h"

namespace weir::engine {

double sum_in_order(std::span<const double> squares);

// Returns limit / norm if the norm, the root of `squares`, is above the limit, else 1. Returns 1
// for limit 0.
float clip_factor(double squares, double limit);

// True if parameters may be updated with gradients that have this sum of squares. False if it is
// not finite, or if Adam's second moment, a float, would overflow. With a limit, gradients of any
// finite size are allowed, because they are clipped.
bool is_usable(double squares, double limit);

// Makes the sums of the last stage not finite if the loss is not finite, so that one sum decides
// for both.
std::vector<double> with_loss(std::vector<double> squares, double loss);

// To the stage before: the sums of squares of this stage's layers and of all later ones, and the
// loss of the step.
struct Note {
  std::vector<double> squares;
  double loss = 0;
};
constexpr std::size_t note_bytes(std::size_t layers) {
  return (layers + 1) * sizeof(double);
}
std::vector<std::byte> encode_note(const Note& note);
Note decode_note(std::span<const std::byte> bytes);

// To the next stage. The verdict carries the limit, so that ranks detect different options.
using protocol::Verdict;
constexpr std::size_t kVerdictBytes = 3 * sizeof(double);
std::vector<std::byte> encode_verdict(const Verdict& verdict, double limit);
// The error is kConflict, e.g. "--grad-clip is 0.5 here, 1 on the stage before".
Result<Verdict> decode_verdict(std::span<const std::byte> bytes, double limit);

}  // namespace weir::engine
