// SPDX-License-Identifier: Apache-2.0
// What reconcile decides for a job, as text: the only file here that knows the form of its answer.
#pragma once

#include <string>
#include <vector>

#include "operator/controller/reconcile/pass/outcome.h"
#include "tests/operator/controller/reconcile/world.h"

namespace weir::recorded {

// One pass: a line for each decision, in order; "" without any. What adaptation remembers is none.
std::string text_of(const api::PipelineJob& job, const reconcile::Outcome& outcome);

// Listens to a world; all passes that decided something, each after a line with its time.
class Decisions {
 public:
  void listen(reconcile::test::World& world);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace weir::recorded
