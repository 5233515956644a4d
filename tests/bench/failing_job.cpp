// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/failing_job.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"
#include "worker/base/median.h"
#include "worker/base/random.h"

namespace weir::bench {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr std::int64_t kWarmUp = 3, kQuiet = 10;  // steps, of these the median is the undisturbed
constexpr std::int64_t kBehind = 8;               // steps that are measured behind the failures
constexpr auto kPoll = std::chrono::milliseconds(10);

class FailingJob {
 public:
  explicit FailingJob(const Failures& failures)
      : given_(failures),
        random_(failures.seed),
        emulation_(failures.replicas, failures.stages, 1,
                   failures.step / (failures.micro_batches + failures.stages - 1)) {
    plan_.stages = given_.stages;
    plan_.layers = test::kEmulatedLayers;
    plan_.shares.assign(static_cast<std::size_t>(given_.replicas), given_.micro_batches);
    std::vector<std::string> words = small_model();
    words.push_back(emulation_.emulation());
    words.emplace_back("--rejoin-timeout=0");
    std::vector<std::vector<std::string>> extra = emulation_.devices();
    for (std::size_t i = 0; i < extra.size(); ++i) {
      extra[i].push_back("--pod-uid=uid-" + std::to_string(i));
    }
    extra_ = extra;
    workers_.emplace(plan_, words, extra);
    seen_at_ = steady_clock::now();
  }

  std::optional<Survived> run() {
    if (!until_step(kWarmUp + kQuiet)) return std::nullopt;
    result_.undisturbed = median_step(kWarmUp);
    if (!kill_and_restart()) return std::nullopt;
    if (!settle()) return std::nullopt;
    check_losses();
    return result_;
  }

 private:
  int count() const { return given_.replicas * given_.stages; }
  bool last_stage(int worker) const { return worker % given_.stages == given_.stages - 1; }
  bool away(int worker) const {
    return std::ranges::any_of(returns_, [&](const auto& one) { return one.second == worker; });
  }
  double now() const { return duration<double>(steady_clock::now() - begin_).count(); }

  // Sees steps that have been completed. Returns false when none has been for too long.
  bool observe() {
    std::this_thread::sleep_for(kPoll);
    std::int64_t newest = -1;
    for (int i = 0; i < count(); ++i) newest = std::max(newest, workers_->newest_step(i));
    if (newest > newest_) {
      newest_ = newest;
      seen_at_ = steady_clock::now();
      working_since_ = now();
    }
    const auto limit = test::kPatience + duration<double>(20 * given_.step);
    if (steady_clock::now() - seen_at_ < limit) return true;
    std::fprintf(stderr, "no step after step %lld:\n%s\n", static_cast<long long>(newest_),
                 (*workers_)[0].errors().c_str());
    return false;
  }
  bool until_step(std::int64_t step) {
    while (newest_ < step) {
      if (!observe()) return false;
    }
    return true;
  }

  // Between the steps that worker 0 has logged from this one on.
  double median_step(std::int64_t from) const {
    std::vector<double> times;
    for (const test::LoggedStep& step : workers_->steps(0)) {
      if (step.step >= from) times.push_back(step.iteration_seconds);
    }
    return times.empty() ? 0 : median(times);
  }

  bool kill_and_restart() {
    begin_ = seen_at_;
    working_since_ = 0;
    const std::int64_t first = newest_;
    double failure = interval();
    for (bool ends = false; !ends;) {
      const std::int64_t before = newest_;
      if (!observe()) return false;
      restart_due();
      ends = now() >= given_.seconds && newest_ > before;
      if (now() < failure || now() >= given_.seconds) continue;
      kill_one();
      failure += interval();
    }
    result_.seconds = duration<double>(seen_at_ - begin_).count();
    result_.steps = newest_ - first;
    result_.meanwhile = median_step(first + 1);
    return true;
  }
  double interval() { return given_.fixed ? given_.between : random_.exponential(given_.between); }

  void restart_due() {
    while (!returns_.empty() && returns_.begin()->first <= now()) {
      const int worker = returns_.begin()->second;
      returns_.erase(returns_.begin());
      workers_->restart(worker, extra_[static_cast<std::size_t>(worker)]);
    }
  }

  void kill_one() {
    std::vector<int> there;
    for (int i = given_.coordinator ? 0 : 1; i < count(); ++i) {
      if (!away(i)) there.push_back(i);
    }
    if (there.empty()) return;
    const int victim = there[random_.below(there.size())];
    (*workers_)[victim].signal(SIGKILL);
    static_cast<void>((*workers_)[victim].wait());
    if (last_stage(victim)) logs_.push_back(workers_->steps(victim));
    returns_.emplace(now() + given_.away, victim);
    ++result_.failures;
    if (victim == 0) ++result_.of_coordinator;
    result_.dropped += now() - working_since_;
    working_since_ = now();
  }

  // All are back, and a few steps are done.
  bool settle() {
    while (!returns_.empty()) {
      if (!observe()) return false;
      restart_due();
    }
    for (int worker = 0; worker < count(); ++worker) {
      while (workers_->newest_step(worker) < newest_ - 1) {
        if (!observe()) return false;
      }
    }
    const std::int64_t from = newest_ + 1;
    if (!until_step(from + kBehind)) return false;
    result_.after = median_step(from);
    const std::string log = (*workers_)[0].errors();
    const auto told = [&](const std::string& text) {
      int times = 0;
      for (auto at = log.find(text); at != log.npos; at = log.find(text, at + 1)) ++times;
      return times;
    };
    result_.covers = told("the others go on, incarnation");
    result_.joins = told("joined again, incarnation");
    return true;
  }

  void check_losses() {
    workers_->end();
    for (int i = 0; i < count(); ++i) {
      if (last_stage(i)) logs_.push_back(workers_->steps(i));
    }
    std::int64_t steps = 0;
    for (const auto& log : logs_) {
      for (const test::LoggedStep& step : log) steps = std::max(steps, step.step + 1);
    }
    const auto expected = test::losses_alone(small_model(), given_.replicas * given_.micro_batches,
                                             static_cast<std::size_t>(steps));
    std::vector<bool> seen(static_cast<std::size_t>(steps));
    for (const auto& log : logs_) {
      std::int64_t next = 0;
      for (const test::LoggedStep& step : log) {
        if (step.step < next) ++result_.again;
        next = std::max(next, step.step + 1);
        const auto index = static_cast<std::size_t>(step.step);
        ++result_.compared;
        if (index >= expected.size() || step.loss_hex != expected[index]) ++result_.different;
        seen[index] = true;
      }
    }
    result_.missing = std::ranges::count(seen, false);
  }

  Failures given_;
  Random random_;
  test::SlowReplica emulation_;
  test::PlanText plan_;
  std::vector<std::vector<std::string>> extra_;
  std::optional<test::Workers> workers_;
  std::vector<std::vector<test::LoggedStep>> logs_;  // of last stages that were killed
  std::multimap<double, int> returns_;               // when which worker starts again
  steady_clock::time_point begin_{}, seen_at_{};     // of the failures; of the newest step's end
  double working_since_ = 0;  // the step under way: since the one before ended, or a failure
  std::int64_t newest_ = -1;
  Survived result_;
};

}  // namespace

std::vector<std::string> small_model() {
  return {"--model=mlp", "--seq=4", "--vocab=32", "--lr=0.01",
          "--steps=" + std::to_string(test::kNoEnd)};
}

std::optional<Survived> survive(const Failures& failures) {
  return FailingJob(failures).run();
}

}  // namespace weir::bench
