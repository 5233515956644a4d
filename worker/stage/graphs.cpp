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

bool same(const std::vector<std::unique_ptr<ops::Call>>& a,
          const std::vector<std::unique_ptr<ops::Call>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& one, const auto& other) { return one->same(*other); });
}

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
    : kernels_(kernels),
      device_(device),
      clock_(clock),
      use_(use),
      recorder_([this](std::unique_ptr<ops::Call> call) { calls_.push_back(std::move(call)); }) {
  WEIR_CHECK(use != GraphUse::kOff, "a runner of graphs makes some");
  WEIR_CHECK(kernels.makes_graphs(), "the device makes graphs");
  asked_ = device.ask_before_trim([this] { return enqueue_before_trim(); });
}

ops::Kernels& GraphRunner::begin(PassKind kind) {
  kind_ = kind;
  calls_.clear();
  broken_up_ = false;
  if (given_up_ || !kinds_.contains(kind)) return kernels_;
  recording_ = std::this_thread::get_id();
  return recorder_;
}

bool GraphRunner::enqueue_before_trim() {
  const std::thread::id recording = recording_;
  if (recording == std::thread::id()) return true;
  if (recording != std::this_thread::get_id()) return false;
  call_all(std::exchange(calls_, {}));
  broken_up_ = true;
  return true;
}

Status GraphRunner::run() {
  const SteadyTime start = clock_.now();
  Pass* pass = nullptr;
  const std::int64_t launches = launches_;
  if (broken_up_) {
    call_all(std::exchange(calls_, {}));
  } else if (!calls_.empty()) {
    pass = &known(std::exchange(calls_, {}));
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
GraphRunner::Pass& GraphRunner::known(Calls calls) {
  ++runs_;
  const auto found = std::find_if(passes_.begin(), passes_.end(),
                                  [&](const auto& pass) { return same(pass->calls, calls); });
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
  passes_.back()->calls = std::move(calls);
  passes_.back()->last_run = runs_;
  return *passes_.back();
}

Status GraphRunner::enqueue(Pass& pass) {
  if (!runs_as_graph(pass.ways, use_)) {
    pass.graph.reset();
    call_all(pass.calls);
    return Unit{};
  }
  if (!pass.graph) {
    auto made = kernels_.make_graph([&] { call_all(pass.calls); });
    if (!made) {
      give_up(made.error().message);
      call_all(pass.calls);
      return Unit{};
    }
    pass.graph = *std::move(made);
  }
  ++launches_;
  return pass.graph->launch();
}

void GraphRunner::call_all(const Calls& calls) {
  for (const auto& call : calls) call->make(kernels_);
}

void GraphRunner::note(Pass& pass, bool as_graph, std::chrono::nanoseconds took) {
  Ways::Way& way = as_graph ? pass.ways.graph : pass.ways.ops;
  if (++way.runs > kPrepares) way.best = std::min(way.best, took);
  if (as_graph && way.runs == kPrepares + kTimed) {
    log_debug("stage", "a pass was timed both ways",
              {{"ops", static_cast<std::int64_t>(pass.calls.size())},
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
