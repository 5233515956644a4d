// SPDX-License-Identifier: Apache-2.0
// The three rules of the suffix search (search.h). A suffix's values start at 0; `over`
// is the boundary behind the new stage. Inside the room only.
#pragma once

#include <algorithm>
#include <vector>

#include "operator/planner/sync/search.h"

namespace weir::planner {

// Least contribution of the part before an ideal to sum + (M-1) max, from relaxations over rising
// periods.
class PeriodGrid {
 public:
  // Cells from the least possible period to below / M.
  PeriodGrid(const SyncModel& model, const SyncSpace& space, const Buckets& buckets, double below);
  // The least of (sum of the part before) + (M-1) max(slowest, its slowest).
  double rest(std::size_t ideal, int key, double slowest) const;
  double all() const;  // of the whole model
  // Whether a plan better than `below` can have a boundary at this ideal.
  bool useful(const SyncModel& model, std::size_t ideal, double below) const;

 private:
  double more_;  // M-1
  std::size_t keys_;
  std::vector<double> low_;  // of each cell; its end is the next one's
  std::vector<Relaxation> cells_;
  // [cell][bucket][key]: least over this and later cells of before + (M-1) low.
  std::vector<std::vector<double>> later_;
  const Buckets* buckets_;
};

struct SumRule {  // 5b: a = sum, b = max, c = exposed AllReduce
  const SyncModel* model;
  const PeriodGrid* grid;  // null: no bound
  double more;             // M-1

  bool join(const Values& old, const StagePrice& stage, const SyncSend* over, Values& out) const {
    const double both = over == nullptr ? 0 : over->both();
    const double back = over == nullptr ? 0 : over->backward;
    out = {.a = old.a + stage.busy() + both,
           .b = std::max({old.b, stage.busy(), both}),
           .c = std::max(stage.update, old.c - back - stage.backward)};
    return true;
  }
  double final(const Values& values, const StagePrice&) const {
    return values.a + more * values.b + std::max(0.0, values.c);
  }
  double least(const Values& values, std::size_t ideal, int key) const {
    const double send = model->least_send(ideal);
    const double slowest = std::max(values.b, send);
    if (grid == nullptr) return values.a + send + more * slowest;
    return values.a + send + grid->rest(ideal, key, slowest);
  }
  double longest_stage(const Values& values, double best) const {
    return (best - values.a) / (more + 1);
  }
};

// 5a: a = U, b = A, c = the way of one micro-batch through the suffix and back; the value is V with
// updates, below every schedule's step.
struct BoundRule {
  const SyncModel* model;
  const Relaxation* before;  // null: no bound
  double more;               // M-1
  bool whole_way = true;     // false: the way behind an op or a transfer is left out, and so is c

  bool join(const Values& old, const StagePrice& stage, const SyncSend* over, Values& out) const {
    const double t = stage.busy();
    double longest = std::max(stage.forward, stage.backward);  // op or transfer
    out.a = (more + 1) * t;
    out.b = (more + 1) * t + stage.update;
    out.c = t;
    if (over != nullptr) {
      longest = std::max(longest, over->hold());
      out.a = std::max(out.a, old.a + t + over->both());
      out.b = std::max(out.b, old.b + stage.forward + over->forward);
      out.c += over->both() + (whole_way ? old.c : 0);
    }
    out.a = std::max(out.a, out.c + more * longest);
    return true;
  }
  double final(const Values& values, const StagePrice& front) const {
    return std::max(values.a + front.update, values.b);
  }
  double least(const Values& values, std::size_t ideal, int key) const {
    double up = values.a;
    if (ideal > 0) {
      up += model->least_send(ideal);
      if (before != nullptr) up += before->before(ideal, key);
    }
    return std::max(up, values.b);
  }
  double longest_stage(const Values& values, double best) const {
    return std::min(best / (more + 1), best - values.a);
  }
};

struct PaceRule {  // 5c: BoundRule, c = psi: no loop's period is above `period`
  BoundRule bound;
  int k;
  bool slack;  // caps 1 + k d: no bursts, k (q-s) + 1 micro-batches in a loop
  bool flat;   // leave out A: updates are short
  double period;

  bool join(const Values& old, const StagePrice& stage, const SyncSend* over, Values& out) const {
    const double t = stage.busy();
    if (t > period) return false;
    const double own = t - k * period;
    const double bursts = slack ? 0 : k - 1;
    const double open = slack ? t - period : own + bursts * std::max(stage.forward, stage.arrives);
    out.c = open;
    if (over != nullptr) {
      if (over->hold() > period) return false;
      const double closing =
          own + bursts * std::max(stage.backward, over->hold_backward) + over->both() + old.c;
      if (closing > kRounding * period) return false;
      out.c = std::max(open, own + over->both() + old.c);
    }
    const double psi = out.c;
    bound.join(old, stage, over, out);  // c of the bound is not kept
    out.c = psi;
    if (flat) out.b = 0;
    return true;
  }
  double final(const Values& values, const StagePrice& front) const {
    return bound.final(values, front);
  }
  double least(const Values& values, std::size_t ideal, int key) const {
    return bound.least(values, ideal, key);
  }
  double longest_stage(const Values& values, double best) const {
    return std::min(period, bound.longest_stage(values, best));
  }

  static constexpr double kRounding = 1e-9;  // sums in another order
};

}  // namespace weir::planner
