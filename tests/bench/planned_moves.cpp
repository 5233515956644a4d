// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/planned_moves.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "tests/bench/failing_job.h"
#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"
#include "worker/base/median.h"

namespace weir::bench {
namespace {

using std::chrono::steady_clock;

constexpr int kEvery = 2;             // steps between snapshots
constexpr std::int64_t kBetween = 6;  // steps from a move to the next one, which warm up first

std::string uid(int life) {
  return "--pod-uid=uid-" + std::to_string(life);
}

class Mover {
 public:
  explicit Mover(const PlannedMoves& given)
      : given_(given),
        emulation_(1, given.stages, 1, given.step / (given.micro_batches + given.stages - 1)) {
    plan_.stages = given.stages;
    plan_.micro_batches = given.micro_batches;
    plan_.layers = test::kEmulatedLayers;
    for (int s = 0; s < given.stages; ++s) plan_.on.push_back(s);
    std::vector<std::string> words = small_model();
    words.insert(
        words.end(),
        {emulation_.emulation(), "--emulate-device=x1", "--recovery-dir=" + memory_.path().string(),
         "--recovery-every=" + std::to_string(kEvery), "--recovery-copies=On"});
    std::vector<std::vector<std::string>> extra;
    for (int i = 0; i <= given.stages; ++i) extra.push_back({uid(lives_++)});
    workers_.emplace(plan_, words, extra, given.stages + 1);
  }

  std::optional<Moved> run() {
    int waits = given_.stages;  // the worker that holds no stage
    for (int move = 0; move < given_.moves; ++move) {
      if (!until_step(next_ + kBetween) || !copies_are_whole()) return stands_still();
      const auto stage = static_cast<std::size_t>(1 + move % (given_.stages - 1));
      const int leaves = plan_.on[stage];
      const auto from = ended_.size();
      (*workers_)[leaves].signal(SIGTERM);
      if ((*workers_)[leaves].wait() != test::kTerminated) return stands_still();
      if (stage + 1 == plan_.on.size()) keep_log(leaves);
      plan_.on[stage] = waits;
      plan_.trigger = "Restart";
      plan_.state = "Recover";
      ++plan_.revision;
      workers_->write_plan(plan_);
      std::filesystem::remove_all(memory_.path() / ("worker-" + std::to_string(leaves)));
      next_ = static_cast<std::int64_t>(ended_.size());
      if (!until_step(next_ + 2)) return stands_still();  // the first may be from before the move
      double longest = 0;
      for (std::size_t i = from; i < ended_.size(); ++i) {
        longest =
            std::max(longest, std::chrono::duration<double>(ended_[i] - ended_[i - 1]).count());
      }
      longest_.push_back(longest);
      workers_->restart(leaves, {uid(lives_++)});
      waits = leaves;
    }
    if (!until_step(next_ + kBetween)) return stands_still();
    workers_->end();
    keep_log(plan_.on.back());
    measure();
    compare();
    return result_;
  }

 private:
  std::optional<Moved> stands_still() {
    std::fprintf(stderr, "the job stands still:\n%s\n", (*workers_)[0].errors().c_str());
    return std::nullopt;
  }
  // Sees the ends of worker 0's steps, which has all of them.
  bool until_step(std::int64_t step) {
    const auto until = steady_clock::now() + test::kPatience;
    while (static_cast<std::int64_t>(ended_.size()) <= step) {
      if (steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto newest = static_cast<std::size_t>(workers_->newest_step(0) + 1);
      if (newest > ended_.size()) ended_.resize(newest, steady_clock::now());
    }
    return true;
  }
  // Of this generation, as the coordinator tells.
  bool copies_are_whole() {
    const auto until = steady_clock::now() + test::kPatience;
    while (told() <= told_) {
      if (steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    told_ = told();
    return true;
  }
  int told() {
    const std::string log = (*workers_)[0].errors();
    int count = 0;
    for (std::size_t at = 0; (at = log.find("snapshots and copies", at)) != log.npos; ++at) ++count;
    return count;
  }
  void keep_log(int worker) { logs_.push_back(workers_->steps(worker)); }

  void measure() {
    std::vector<double> quiet;
    std::int64_t next = 0;
    for (const test::LoggedStep& step : workers_->steps(0)) {
      result_.again += step.step < next ? 1 : 0;
      next = step.step + 1;
      quiet.push_back(step.iteration_seconds);
    }
    result_.step = median(quiet);
    for (const double seconds : longest_) result_.pauses.push_back(seconds - result_.step);
  }
  void compare() {
    std::map<std::int64_t, std::string> losses;
    for (const auto& log : logs_) {
      for (const test::LoggedStep& step : log) losses[step.step] = step.loss_hex;
    }
    const auto expected = test::losses_alone(small_model(), given_.micro_batches, losses.size());
    for (const auto& [step, loss] : losses) {
      const auto at = static_cast<std::size_t>(step);
      ++result_.compared;
      if (at >= expected.size() || expected[at] != loss) ++result_.different;
    }
  }

  const PlannedMoves given_;
  const test::TempDir memory_{test::kMemory};
  test::SlowReplica emulation_;
  test::PlanText plan_;
  std::optional<test::Workers> workers_;
  std::vector<std::vector<test::LoggedStep>> logs_;  // of the last stage
  int lives_ = 0, told_ = 0;
  std::int64_t next_ = 0;                        // steps that were done at the last move
  std::vector<steady_clock::time_point> ended_;  // when each step was seen to end
  std::vector<double> longest_;                  // by move: seconds from one end to the next
  Moved result_;
};

}  // namespace

std::optional<Moved> move_by_plan(const PlannedMoves& given) {
  return Mover(given).run();
}

}  // namespace weir::bench
