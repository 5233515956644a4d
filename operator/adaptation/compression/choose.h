// SPDX-License-Identifier: Apache-2.0
// Codecs for bound links (operator/adaptation/compression/README.md "Choice"). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/schedule/bounds.h"
#include "worker/schedule/codecs.h"
#include "worker/schedule/simulator.h"

namespace weir::compression {

// A pipeline without codecs, and what a codec makes of its links.
struct Raw {
  int micro_batches = 1;
  schedule::PipelineModel model;             // its links carry raw tensors
  std::vector<std::int64_t> boundary_bytes;  // of one micro-batch
  int samples = 1;                           // of one micro-batch
  int number_bytes = 4;
  double codec_seconds = 0;  // of one encoding or decoding of a number
};

// The codecs that a job may use, from the finest on. With numbers of two bytes BF16 changes
// nothing.
std::vector<schedule::Codec> ladder(schedule::Codec coarsest, int number_bytes);

// The same pipeline with codecs, and with the time that they take.
schedule::PipelineModel with_codecs(const Raw& raw, const schedule::Codecs& codecs);

// Slow links are those whose raw transfer takes this part of the slowest stage's forward and
// backward. All others stay raw: they would gain a little while the pipeline fills, no more.
inline constexpr double kSlow = 0.5;

// The choices worth a look, each once, without the raw one: for a time t of one transfer each slow
// boundary and direction has its finest codec that is as fast, or the coarsest one. t runs over all
// times that any codec gives, so all bound links and both directions of a link move together.
std::vector<schedule::Codecs> choices(const Raw& raw, schedule::Codec coarsest);

// The finest of them within 4 % of the shortest step that any order could take; raw, if that is
// within 4 %, too. backwards: whether orders with split backwards count.
schedule::Codecs choose(const Raw& raw, schedule::Codec coarsest, schedule::Backwards backwards);

// Bytes of a micro-batch on the wire over all boundaries; more is finer.
std::int64_t bytes_of(const Raw& raw, const schedule::Codecs& codecs);

bool has_slow_links(const Raw& raw);

}  // namespace weir::compression
