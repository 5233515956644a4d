// SPDX-License-Identifier: Apache-2.0
// The time that encoding and decoding tensors between stages adds to the ops of a pipeline (README
// "Codecs"). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/facts/facts.h"
#include "operator/planner/model/model.h"
#include "worker/schedule/codecs.h"
#include "worker/schedule/simulator.h"

namespace weir::costing {

// Seconds of one encoding or decoding of a number.
struct CodecSeconds {
  double per_number = 0;
  bool measured = false;  // else assumed, by the kinds of devices
};
// On the slowest device of the job, which counts for all: as the newest segment of a plan with
// codecs tells it.
CodecSeconds codec_seconds(const facts::Facts& facts, const planner::Model& model);

// Numbers that each stage encodes and decodes for a micro-batch, in its forward and in its
// backward. boundary_bytes: raw.
struct CodecNumbers {
  double forward = 0, backward = 0;
};
std::vector<CodecNumbers> codec_numbers(const schedule::Codecs& codecs,
                                        const std::vector<std::int64_t>& boundary_bytes,
                                        int number_bytes);

// Adds what these codecs take to the times of the stages. A negative time takes it away.
void add_codec_seconds(const std::vector<CodecNumbers>& numbers, double per_number,
                       std::vector<schedule::StageTime>& stages);

}  // namespace weir::costing
