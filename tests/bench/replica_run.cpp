// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/replica_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stop_token>
#include <thread>

#include "tests/bench/disagreement.h"
#include "tests/bench/namespaces.h"
#include "tests/multiproc/slow_replica.h"
#include "worker/base/random.h"

namespace weir::bench {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr double kWarmUp = 3;                   // steps
constexpr double kDuty = 0.15, kSlower = 3;     // operator/adaptation/shares/README.md "Regimes"
constexpr double kDwell = 10, kSyncDwell = 20;  // steps
constexpr double kSlowShare = 0.2;              // of a bandwidth
constexpr int kMtu = 9000;  // with 1500 the packets of 16 workers take a third of two processors
constexpr double kSync = 0.15;                          // steps that an average of all takes
constexpr double kParameterBytes = 4.0 * 54'000;        // of a stage of mlp cut in two
constexpr const char* kDrift = "replicas drift apart";  // a contraction above 0.5 in the log

// Begin of each spell, disturbed or not; in steps.
std::vector<std::pair<double, bool>> spells(Random& random, double dwell, double end) {
  std::vector<std::pair<double, bool>> list;
  bool on = random.uniform() < kDuty;
  for (double t = 0; t < end; on = !on) {
    list.emplace_back(t, on);
    t += random.exponential(on ? dwell : dwell * (1 - kDuty) / kDuty);
  }
  return list;
}

// Lines of --emulate-slowness.
std::string slowness(const Replicas& setting, int replica) {
  Random random(
      mix_seed(static_cast<std::uint64_t>(setting.seed), static_cast<std::uint64_t>(replica)));
  std::string lines;
  if (setting.kind != Uneven::kChanging) {
    const double tailed = setting.kind == Uneven::kTail ? 0.1 : 0;
    for (int step = 1; step <= 2 * setting.steps; ++step) {
      double factor = random.uniform() < tailed ? 1 + random.exponential(kSlower) : 1;
      if (setting.jitter > 0) factor *= std::exp(setting.jitter / 100.0 * random.normal());
      lines += std::to_string(step) + " " + std::to_string(factor) + "\n";
    }
  } else {
    for (const auto& [begin, slow] : spells(random, kDwell, 2 * setting.steps)) {
      lines += std::to_string(begin * setting.step_seconds()) + "s " +
               std::to_string(slow ? kSlower : 1) + "\n";
    }
  }
  return lines;
}

// Nodes that lose bandwidth now and then, from now on until the end of the object.
class NodeLimits {
 public:
  NodeLimits(const Replicas& setting, const Namespaces& spaces)
      : thread_([=, &spaces](const std::stop_token& stop) { run(setting, spaces, stop); }) {}

  // So that an average of all takes its part of a step: of p members each sends (p-1)/p of the
  // parameters, twice.
  static double bytes_per_second(const Replicas& setting) {
    const double p = setting.replicas;
    return 2 * (p - 1) / p * kParameterBytes / (kSync * setting.step_seconds());
  }

 private:
  struct Change {
    double time;
    int replica;
    double share;
  };

  static void run(const Replicas& setting, const Namespaces& spaces, const std::stop_token& stop) {
    std::vector<Change> changes;
    for (int r = 0; r < setting.replicas; ++r) {
      Random random(
          mix_seed(static_cast<std::uint64_t>(setting.seed), static_cast<std::uint64_t>(r)));
      for (const auto& [begin, slow] : spells(random, kSyncDwell, 2 * setting.steps)) {
        changes.push_back({begin * setting.step_seconds(), r, slow ? kSlowShare : 1});
      }
    }
    std::ranges::sort(changes, {}, &Change::time);
    const auto start = steady_clock::now();
    for (const Change& change : changes) {
      while (!stop.stop_requested() &&
             duration<double>(steady_clock::now() - start).count() < change.time) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (stop.stop_requested()) return;
      for (int s = 0; s < setting.stages; ++s) {
        spaces.limit_port(change.replica * setting.stages + s,
                          change.share * bytes_per_second(setting));
      }
    }
  }

  std::jthread thread_;
};

// Steps and losses of one replica until then. The first stage waits for nobody between two steps,
// so its times add up; the last one knows the loss.
std::vector<std::pair<double, double>> losses_of(const std::vector<test::LoggedStep>& first,
                                                 const std::vector<test::LoggedStep>& last,
                                                 double until) {
  std::vector<std::pair<double, double>> list;
  double time = 0;
  for (std::size_t i = 0; i < std::min(first.size(), last.size()); ++i) {
    time += first[i].iteration_seconds;
    if (time > until) break;
    list.emplace_back(time, std::stod(last[i].loss_hex));
  }
  return list;
}

// Between these times of CLOCK_MONOTONIC.
std::optional<double> disagreement(const Replicas& setting, const std::vector<std::string>& files,
                                   double from, double to) {
  std::vector<std::vector<Recorded>> workers(static_cast<std::size_t>(setting.replicas));
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto records = read_records(files[i]);
    if (!records) return std::nullopt;
    workers[i / static_cast<std::size_t>(setting.stages)].push_back(*std::move(records));
  }
  constexpr int kSamplesAStep = 8;
  const int samples =
      std::max(1, static_cast<int>(kSamplesAStep * (to - from) / setting.step_seconds()));
  const double error = consensus_error(workers, from, to, samples);
  if (error >= 0) return error;
  std::fprintf(stderr, "a worker has not written down its parameters\n");
  return std::nullopt;
}

}  // namespace

double Replicas::step_seconds() const {
  return (share + stages - 1) * test::kOpSeconds;
}

double ReplicasOutcome::loss_at(double seconds) const {
  constexpr std::size_t kNewest = 5;
  double sum = 0;
  for (const auto& curve : losses) {
    std::size_t end = 0;
    while (end < curve.size() && curve[end].first <= seconds) ++end;
    end = std::max<std::size_t>(end, 1);
    const std::size_t count = std::min(kNewest, end);
    for (std::size_t i = end - count; i < end; ++i) {
      sum += curve[i].second / static_cast<double>(count);
    }
  }
  return sum / static_cast<double>(losses.size());
}

std::size_t ReplicasOutcome::steps_at(double seconds) const {
  std::size_t done = 0;
  for (const auto& curve : losses) {
    done += static_cast<std::size_t>(
        std::ranges::count_if(curve, [&](const auto& step) { return step.first <= seconds; }));
  }
  return done;
}

double ReplicasOutcome::time_of(std::size_t steps) const {
  std::vector<double> times;
  for (const auto& curve : losses) {
    for (const auto& [time, loss] : curve) times.push_back(time);
  }
  std::ranges::sort(times);
  return steps >= 1 && steps <= times.size() ? times[steps - 1] : 0;
}

std::optional<ReplicasOutcome> run_replicas(const Replicas& setting, test::PlanText plan,
                                            const std::string& program) {
  const double end = setting.steps * setting.step_seconds();
  const int count = setting.replicas * setting.stages;
  const test::SlowReplica slow(setting.replicas, setting.stages, setting.slow);
  plan.stages = setting.stages;
  plan.layers = test::kEmulatedLayers;
  plan.shares.assign(static_cast<std::size_t>(setting.replicas), setting.share);
  auto devices = slow.devices();
  const test::TempDir folder;
  const bool traced =
      setting.kind == Uneven::kTail || setting.kind == Uneven::kChanging || setting.jitter > 0;
  for (int i = 0; i < count && traced; ++i) {
    const std::string file =
        folder.file("slow-" + std::to_string(i), slowness(setting, i / setting.stages));
    devices[static_cast<std::size_t>(i)].push_back("--emulate-slowness=" + file);
  }
  std::unique_ptr<Namespaces> spaces;
  std::vector<test::Host> hosts(static_cast<std::size_t>(count));
  if (setting.kind == Uneven::kSlowSync) {
    spaces = Namespaces::make(0, count, kMtu);
    if (!spaces) return std::nullopt;
    hosts = spaces->hosts();
    for (int i = 0; i < count; ++i) {
      if (!spaces->limit_port(i, NodeLimits::bytes_per_second(setting))) return std::nullopt;
    }
  }
  std::vector<std::string> files;
  for (test::Host& host : hosts) {
    host.program = program;
    files.push_back(folder.file("parameters-" + std::to_string(files.size()), ""));
    host.prefix.insert(host.prefix.end(), {"env", "WEIR_BENCH_PARAMETERS=" + files.back()});
  }

  constexpr int kEndless = 1'000'000;
  std::vector<std::string> common = slow.common(kEndless);
  common.emplace_back("--lr=0.01");  // so that the loss is near its end after these steps
  test::Workers workers(plan, common, devices, 0, hosts);
  const int last = setting.stages - 1;
  if (!workers.reaches(last, 1)) {
    std::fprintf(stderr, "the workers do not train: %s\n", workers[0].errors().c_str());
    return std::nullopt;
  }
  std::optional<NodeLimits> limits;
  if (spaces) limits.emplace(setting, *spaces);
  const double begin = duration<double>(steady_clock::now().time_since_epoch()).count();
  std::this_thread::sleep_for(duration<double>(end));

  ReplicasOutcome outcome;
  const auto apart = disagreement(setting, files, begin + end / 2, begin + end);
  if (!apart) return std::nullopt;
  outcome.consensus_error = *apart;
  const double warm = kWarmUp * setting.step_seconds();
  for (int r = 0; r < setting.replicas; ++r) {
    const int worker = r * setting.stages;
    auto curve = losses_of(workers.steps(worker), workers.steps(worker + last), end);
    const auto first = std::ranges::find_if(curve, [&](const auto& s) { return s.first >= warm; });
    if (curve.end() - first < 2) {
      std::fprintf(stderr, "replica %d has done %zu steps in %.1f s\n", r, curve.size(), end);
      return std::nullopt;
    }
    outcome.throughput += setting.share * static_cast<double>(curve.end() - first - 1) /
                          (curve.back().first - first->first);
    outcome.losses.push_back(std::move(curve));
  }
  const std::string log = workers[0].errors();
  for (std::size_t at = log.find(kDrift); at != log.npos; at = log.find(kDrift, at + 1)) {
    ++outcome.drifts;
  }
  return outcome;
}

}  // namespace weir::bench
