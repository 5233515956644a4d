// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/explained_job.h"

#include <algorithm>
#include <cmath>

#include "worker/base/check.h"

namespace weir::sim {
namespace {

constexpr int kSamples = 4;              // of a micro-batch
constexpr double kOutputBytes = 30'720;  // per sample
constexpr double kParameterBytes = 2e6;  // of a stage
constexpr double kBytesOfSum = 3;        // of a parameter's bytes: double out, float back
constexpr double kUsualOff = 0.1;        // by as much profile, probe and baselines are wrong
constexpr double kDevices = 0.01;        // devices of one kind differ
constexpr int kNeighbours = 4;           // links that a rank reports

// forward, backward: seconds of a stage.
std::string profile(int stages, int layers_of_stage, double forward, double backward) {
  std::string nodes;
  const int layers = stages * layers_of_stage;
  for (int i = 0; i < layers; ++i) {
    nodes += std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
             R"(","parameterBytes":)" +
             std::to_string(static_cast<int>(kParameterBytes / layers_of_stage)) +
             R"(,"outputBytesPerSample":)" + std::to_string(static_cast<int>(kOutputBytes)) +
             R"(,"times":{"A":[{"samples":4,"forward":)" +
             std::to_string(forward / layers_of_stage) + R"(,"backward":)" +
             std::to_string(backward / layers_of_stage) + "}]}}";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}

double off(Random& random) {
  return 1 + kUsualOff * (2 * random.uniform() - 1);
}

}  // namespace

ExplainedJob::ExplainedJob(std::uint64_t seed, int least_stages, int least_replicas,
                           bool usual_links_slow)
    : seed_(seed) {
  Random random(mix_seed(seed, "job"));
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least + 1)));
  };
  const int stages = draw(least_stages, 8), replicas = draw(least_replicas, 4);
  const int k = draw(1, 2), micro_batches = std::max(stages, draw(8, 24));
  constexpr int kMostLayers = 4;
  layers_of_stage_ = 1 + static_cast<int>(Random(mix_seed(seed, "layers")).below(kMostLayers));
  start(stages, replicas, micro_batches, k);
  shape_.jitter = 0.01 * draw(1, 5);
  const bool too_fast = !usual_links_slow && random.below(4) == 0;  // to be timed
  for (int s = 0; s < stages; ++s) {
    shape_.sums.push_back(part_of_usual(s) * kBytesOfSum * (replicas - 1) / replicas *
                          kParameterBytes);
  }
  std::vector<double> stage_factors;  // the profile of a stage is wrong
  for (int s = 0; s < stages; ++s) stage_factors.push_back(off(random));
  for (int r = 0; r < replicas; ++r) {
    for (int s = 0; s < stages; ++s) {
      const double device = stage_factors[static_cast<std::size_t>(s)] *
                            std::exp(kDevices * random.normal()) * part_of_usual(s);
      shape_.forward.push_back(kForward * device);
      shape_.backward.push_back(kBackward * device);
      if (s + 1 == stages) continue;
      const double slow = usual_links_slow ? 0.5 + random.uniform() : 0.02 + 0.3 * random.uniform();
      for (auto& links : shape_.links) {
        links.push_back(too_fast ? 3e-5 : kForward * slow * off(random));
      }
    }
  }
  sum_rate_ = 2e7 * (1 + 4 * random.uniform());
  for (double& seconds : shape_.sums) seconds /= sum_rate_;
  shape_.save = 0.01 + 0.02 * random.uniform();
}

void ExplainedJob::start(int stages, int replicas, int micro_batches, int k) {
  auto& spec = world_.job.spec;
  spec.worker_groups[0].count = stages;
  spec.stages = stages;
  spec.data_parallel = replicas;
  spec.micro_batch_size = kSamples;
  spec.global_batch = replicas * micro_batches * kSamples;
  spec.schedule.k_initial = k;
  spec.adaptation.mode = "Observe";
  for (int i = 0; i < 4; ++i) {
    world_.settle();
    world_.kubelets_run();
    world_.settle();
    world_.workers_register();
    world_.members->body.model = {"m", stages * layers_of_stage_, "sha256:0"};
    world_.members->body.profile_json = profile(stages, layers_of_stage_, kForward, kBackward);
    world_.settle();
    world_.coordinator_applies();
    world_.settle();
  }
  WEIR_CHECK(world_.plan() != nullptr, "the job trains");
  plan_ = *world_.plan();
  WEIR_CHECK(plan_.stage_count() == stages && plan_.replica_count() == replicas, "as ordered");
  for (const auto& [first, last] : plan_.stages) shape_.layers.push_back(last - first + 1);
  world_.steps(1, 1);
}

double ExplainedJob::part_of_usual(int stage) const {
  return static_cast<double>(shape_.layers[static_cast<std::size_t>(stage)]) / layers_of_stage_;
}

const schedule::RankPlace& ExplainedJob::rank(int replica, int stage) const {
  return *std::ranges::find_if(
      plan_.ranks, [&](const auto& one) { return one.replica == replica && one.stage == stage; });
}
const std::string& ExplainedJob::pod(int replica, int stage) const {
  return rank(replica, stage).pod;
}
const std::string& ExplainedJob::node(int replica, int stage) const {
  return rank(replica, stage).node;
}

double ExplainedJob::seconds(const std::vector<Fault>& faults) const {
  StepWorld steps(plan_, shape_, seed_);
  for (int i = 0; i < kUsualSteps; ++i) steps.step();
  for (const Fault& fault : faults) steps.plant(fault);
  const double begin = steps.time();
  for (int i = 0; i < kFaultySteps; ++i) steps.step();
  return (steps.time() - begin) / kFaultySteps;
}

// Links of sums, as Prometheus would tell them. A fault at replica r slows what r receives from the
// next replica.
void ExplainedJob::tell_sums(const std::vector<Fault>& faults, Random& random) {
  constexpr double kNoise = 0.02;
  auto& links = world_.estimates.sync_links;
  Random usual(mix_seed(seed_, "usual sums"));
  links.clear();
  const int replicas = plan_.replica_count();
  for (int r = 0; r < replicas; ++r) {
    for (int s = 0; s < plan_.stage_count(); ++s) {
      for (int i = 1; i <= kNeighbours && i < replicas; ++i) {
        const int from = (r + i) % replicas;
        double rate = sum_rate_ * std::exp(kNoise * random.normal());
        for (const Fault& fault : faults) {
          if (fault.kind != FaultKind::kSums || fault.replica != r || fault.stage != s) continue;
          if (i == 1) rate /= fault.size;
        }
        links.push_back({.link = {r, s, estimator::Direction::kSync, from},
                         .from_node = node(from, s),
                         .to_node = node(r, s),
                         .now = rate,
                         .baseline = sum_rate_ * off(usual),
                         .mean = rate});
      }
    }
  }
}

explain::Causes ExplainedJob::causes(const std::vector<Fault>& faults) {
  StepWorld steps(plan_, shape_, seed_);
  coordinator::Segments segments;
  segments.follow(&plan_, 1);
  Random random(mix_seed(seed_, "reports"));
  for (int i = 0; i < kUsualSteps + kFaultySteps; ++i) {
    if (i == kUsualSteps) {
      for (const Fault& fault : faults) steps.plant(fault);
    }
    const double begin = steps.time();
    for (const auto& status : steps.step()) segments.on_status(status);
    world_.now += std::chrono::milliseconds(std::llround(1e3 * (steps.time() - begin)));
    world_.report->body.step += 1;
    if (i % kReportSteps != kReportSteps - 1) continue;
    tell_sums(i < kUsualSteps ? std::vector<Fault>{} : faults, random);
    world_.report->received = world_.now;
    world_.report->body.segment = segments.current();
    world_.carry_out(world_.pass());
  }
  return world_.adaptation.network.causes;
}

}  // namespace weir::sim
