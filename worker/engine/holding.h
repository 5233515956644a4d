// SPDX-License-Identifier: Apache-2.0
// The state of whole layers after a step, which a rank holds. It belongs to the rank, not to a
// generation, so a generation that cannot be built or connected, or that is aborted, loses nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "worker/schedule/plan.h"
#include "worker/stage/stage.h"

namespace weir::engine {

struct Holding {
  std::unique_ptr<stage::Stage> stage;  // null: nothing
  schedule::LayerRange layers;
  // As in protocol::Held.
  std::int64_t history = 0, pending = 0;
  int replica = -1;
};

class Holdings {
 public:
  const Holding& current() const { return held_; }
  stage::Stage* held() const { return held_.stage.get(); }
  bool holds(schedule::LayerRange layers) const { return held() && held_.layers == layers; }
  // The stage of the generation that is being made, or that runs; null without one.
  stage::Stage* in_use() const { return next_.stage ? next_.stage.get() : held(); }

  // Takes a whole state instead of what is held.
  void replace(Holding holding) {
    next_ = {};
    held_ = std::move(holding);
  }
  // Takes the state of a generation that begins with the next settle(). What is held stays until
  // then, because others fetch from it.
  void add(Holding holding) { next_ = std::move(holding); }
  // GO: the generation begins, and what it does not use is given up.
  void settle(bool placed, std::int64_t history) {
    if (next_.stage) held_ = std::exchange(next_, {});
    if (!placed) held_ = {};
    held_.history = history;
    held_.pending = 0;
  }
  // The state in use belongs to that history, too, whose GO is to come.
  void await(std::int64_t history) { (next_.stage ? next_ : held_).pending = history; }
  // replica: protocol::Held::replica of the generation that runs.
  void of_replica(int replica) { held_.replica = replica; }
  // The generation does not begin.
  void forget_next() { next_ = {}; }

 private:
  Holding held_, next_;
};

}  // namespace weir::engine
