// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/graphs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"

namespace weir::stage {
namespace {

constexpr int kPrepares = 1;  // runs that are not timed
constexpr int kTimed = 3;     // timed runs, of which the best counts

}  // namespace

bool runs_as_graph(const Ways& ways, GraphUse use) {
  if (use == GraphUse::kOff) return false;
  if (use == GraphUse::kAlways) return ways.ops.runs > 0;
  if (ways.ops.runs < kPrepares + kTimed) return false;
  if (ways.graph.runs < kPrepares + kTimed) return true;
  return ways.graph.best <= ways.ops.best;
}

GraphRunner::GraphRunner(ops::Kernels& kernels, device::Device& device, const Clock& clock,
                         GraphUse use)
    : kernels_(kernels), device_(device), clock_(clock), use_(use) {
  WEIR_CHECK(use != GraphUse::kOff, "a runner of graphs makes some");
  WEIR_CHECK(kernels.makes_graphs(), "the device makes graphs");
  asked_ = device.ask_before_trim([this] { return enqueue_before_trim(); });
}

ops::Kernels& GraphRunner::begin(PassKind kind) {
  kind_ = kind;
  recorder_.recorded.clear();
  broken_up_ = false;
  if (given_up_ || !kinds_.contains(kind)) return kernels_;
  recording_ = std::this_thread::get_id();
  return recorder_;
}

bool GraphRunner::enqueue_before_trim() {
  const std::thread::id recording = recording_;
  if (recording == std::thread::id()) return true;
  if (recording != std::this_thread::get_id()) return false;
  run_all(std::exchange(recorder_.recorded, {}));
  broken_up_ = true;
  return true;
}

Status GraphRunner::run() {
  const SteadyTime start = clock_.now();
  Pass* pass = nullptr;
  const std::int64_t launches = launches_;
  if (broken_up_) {
    run_all(std::exchange(recorder_.recorded, {}));
  } else if (!recorder_.recorded.empty()) {
    pass = &known(std::exchange(recorder_.recorded, {}));
    WEIR_TRY([[maybe_unused]] const Unit enqueued, enqueue(*pass));
  }
  recording_ = std::thread::id();
  WEIR_TRY([[maybe_unused]] const Unit fine, kernels_.status());
  WEIR_TRY([[maybe_unused]] const Unit done, device_.synchronize());
  kinds_.insert(kind_);
  if (pass != nullptr) note(*pass, launches_ > launches, clock_.now() - start);
  if (given_up_) passes_.clear();
  return Unit{};
}

// A linear search: passes differ in their first arguments, and there are few of them.
GraphRunner::Pass& GraphRunner::known(Ops ops) {
  ++runs_;
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const auto& pass) {
    return std::ranges::equal(pass->ops, ops, ops::same);
  });
  if (found != passes_.end()) {
    ++met_again_;
    (*found)->last_run = runs_;
    return **found;
  }
  if (passes_.size() == kMostPasses) {
    ++forgotten_;
    passes_.erase(
        std::min_element(passes_.begin(), passes_.end(),
                         [](const auto& a, const auto& b) { return a->last_run < b->last_run; }));
  }
  passes_.push_back(std::make_unique<Pass>());
  passes_.back()->ops = std::move(ops);
  passes_.back()->last_run = runs_;
  return *passes_.back();
}

Status GraphRunner::enqueue(Pass& pass) {
  if (!runs_as_graph(pass.ways, use_)) {
    pass.graph.reset();
    run_all(pass.ops);
    return Unit{};
  }
  if (!pass.graph) {
    auto made = kernels_.make_graph(pass.ops);
    if (!made) {
      give_up(made.error().message);
      run_all(pass.ops);
      return Unit{};
    }
    pass.graph = *std::move(made);
  }
  ++launches_;
  return pass.graph->launch();
}

void GraphRunner::run_all(const Ops& ops) {
  for (const ops::Op& op : ops) kernels_.run(op);
}

void GraphRunner::note(Pass& pass, bool as_graph, std::chrono::nanoseconds took) {
  Ways::Way& way = as_graph ? pass.ways.graph : pass.ways.ops;
  if (++way.runs > kPrepares) way.best = std::min(way.best, took);
  if (as_graph && way.runs == kPrepares + kTimed) {
    log_debug("stage", "a pass was timed both ways",
              {{"ops", static_cast<std::int64_t>(pass.ops.size())},
               {"op_by_op_us", pass.ways.ops.best.count() / 1000},
               {"graph_us", way.best.count() / 1000}});
  }
  if (forgotten_ > static_cast<std::int64_t>(kMostPasses) && met_again_ < forgotten_) {
    give_up("memory comes at other addresses in each step");
  }
}

void GraphRunner::give_up(const std::string& reason) {
  if (given_up_) return;
  given_up_ = true;
  log_warn("stage", "ops are launched one by one: " + reason);
}

}  // namespace weir::stage
