// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/bounds.h"

#include <algorithm>
#include <vector>

#include "worker/base/check.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;

nanoseconds way(const LinkModel& link) {
  return link.transfer + link.latency;
}

}  // namespace

nanoseconds least_compute(const StageTime& stage, Backwards backwards) {
  const nanoseconds parts = stage.backward_input + stage.backward_weights;
  const bool split = backwards == Backwards::kSplit;
  return stage.forward + (split ? std::min(parts, stage.backward) : stage.backward);
}

// b is the time of B and w of W; w = 0 for whole backwards. No forward of stage s starts before
// PRE(s). From the end of its last B to the end of the step it takes UP(s), from the end of a
// forward to the start of its B RT(s). The longest f, b or transfer is q.
//
//   PRE(s) = sum over i < s of (f_i + c_i)
//   UP(0) = w_0,  UP(s) = max(w_s, b_{s-1} + c_{s-1} + UP(s-1))
//   RT(s) = sum over i > s of (f_i + b_i) + both transfers of every boundary l >= s
//
//   work   PRE(s) + M (f_s + b_s) + max(M w_s, UP(s))
//   start  PRE(s) + f_s + RT(s) + M b_s + max(M w_s, UP(s))
//   part   PRE(S-1) + f_{S-1} + b_{S-1} + UP(S-1) + (M-1) q
//
// A stage can work from PRE(s) on, and its last B still travels up. All its B come after the first
// forward has been to the end and back. The last micro-batch that passes q has the rest of its way
// before it, the first one had its way to q behind it.
nanoseconds least_step(const PipelineModel& model, int micro_batches, Backwards backwards) {
  WEIR_CHECK(!model.stages.empty() && micro_batches >= 1, "a step has stages and micro-batches");
  const std::size_t count = model.stages.size();
  const bool split = backwards == Backwards::kSplit;
  std::vector<nanoseconds> f, b, w;
  for (const StageTime& stage : model.stages) {
    f.push_back(stage.forward);
    // An order that may split need not (least_compute).
    const nanoseconds input =
        split ? std::min(stage.backward_input, stage.backward) : stage.backward;
    const nanoseconds both = least_compute(stage, backwards) - stage.forward;
    b.push_back(input);
    w.push_back(split ? std::max(nanoseconds(0), both - input) : nanoseconds(0));
  }
  std::vector<nanoseconds> pre{nanoseconds(0)}, up{w.front()}, rt(count, nanoseconds(0));
  nanoseconds q = std::max(f.front(), b.front());
  for (std::size_t s = 1; s < count; ++s) {
    const LinkModel &there = model.forward[s - 1], &back = model.backward[s - 1];
    pre.push_back(pre.back() + f[s - 1] + way(there));
    up.push_back(std::max(w[s], b[s - 1] + way(back) + up.back()));
    q = std::max({q, f[s], b[s], there.transfer, back.transfer});
  }
  for (std::size_t s = count - 1; s-- > 0;) {
    rt[s] = rt[s + 1] + f[s + 1] + b[s + 1] + way(model.forward[s]) + way(model.backward[s]);
  }
  nanoseconds bound = pre.back() + f.back() + b.back() + up.back() + (micro_batches - 1) * q;
  for (std::size_t s = 0; s < count; ++s) {
    const nanoseconds end = std::max(micro_batches * w[s], up[s]);
    bound = std::max({bound, pre[s] + micro_batches * (f[s] + b[s]) + end,
                      pre[s] + f[s] + rt[s] + micro_batches * b[s] + end});
  }
  return bound;
}

}  // namespace weir::schedule
