// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/tuned_job.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/search_split.h"

namespace weir::sim {
namespace {

constexpr double kSampleBytes = 60'000;
constexpr std::size_t kMeasuredSteps = 10;  // the coordinator's window
constexpr double kTie = 1.005;              // as the tuner
// Cost of a change, in steps, assumed: buffers for another size, else hardly anything.
constexpr double kSizeChange = 0.2, kOrderChange = 0.01;

retune::SystemTime at(double seconds) {
  return retune::SystemTime(std::chrono::milliseconds(std::llround(1e3 * seconds)));
}

}  // namespace

retune::Size Job::size(int micro_batch_size) const {
  retune::Size result{.micro_batch_size = micro_batch_size,
                      .micro_batches = samples / micro_batch_size};
  const double f = forward * (micro_batch_size + overhead);
  const auto count = static_cast<std::size_t>(stages);
  result.stages.assign(count, {.forward = from_seconds(f),
                               .backward = from_seconds(backward_ratio * f),
                               .backward_input = from_seconds((1 - weights) * backward_ratio * f),
                               .backward_weights = from_seconds(weights * backward_ratio * f)});
  result.boundary_bytes.assign(count - 1,
                               static_cast<std::int64_t>(kSampleBytes * micro_batch_size));
  result.cap_max.assign(count,
                        std::min(result.micro_batches, samples_in_flight / micro_batch_size));
  const schedule::StageMemory bytes{.activation_bytes = micro_batch_size,
                                    .held_bytes = micro_batch_size,
                                    .in_backward_bytes = micro_batch_size};
  result.rooms.assign(count, {.memory = bytes, .limit_bytes = samples_in_flight});
  return result;
}

schedule::PipelineModel Job::model(int micro_batch_size) const {
  schedule::PipelineModel model;
  model.stages = size(micro_batch_size).stages;
  for (const double seconds : transfer) {
    model.forward.push_back(
        {.transfer = from_seconds(seconds * micro_batch_size), .latency = {}, .trace = {}});
  }
  model.backward = model.forward;
  return model;
}

TunedJob::TunedJob(Job job, Loop loop, schedule::Schedule first, std::uint64_t seed)
    : job_(std::move(job)), loop_(std::move(loop)), random_(seed), current_(std::move(first)) {
  WEIR_CHECK(job_.transfer.size() + 1 == static_cast<std::size_t>(job_.stages),
             "a transfer time per boundary");
  transfers_.resize(2 * job_.transfer.size());
  next_tick_ = loop_.tick;
  load_model();
}

void TunedJob::load_model() {
  micro_batches_ = job_.samples / current_.micro_batch_size;
  schedule::PipelineModel model = job_.model(current_.micro_batch_size);
  for (std::size_t b = 0; b < job_.shares.size(); ++b) {
    model.forward[b].trace = job_.shares[b];
    model.backward[b].trace = job_.shares[b];
  }
  model.record = true;
  model_ = std::move(model);
}

void TunedJob::set_transfer(std::size_t boundary, double seconds_per_sample) {
  job_.transfer[boundary] = seconds_per_sample;
  load_model();
}

void TunedJob::run(std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) one_step();
}

void TunedJob::run_until(double seconds) {
  while (time_ < seconds) one_step();
}

double TunedJob::mean(std::size_t first, std::size_t end) const {
  const auto begin = steps_.begin();
  return std::accumulate(begin + static_cast<std::ptrdiff_t>(first),
                         begin + static_cast<std::ptrdiff_t>(end), 0.0) /
         static_cast<double>(end - first);
}

double TunedJob::least_free() const {
  if (job_.real_samples <= 0) return 1;
  return 1 - *std::ranges::max_element(most_held()) * current_.micro_batch_size / job_.real_samples;
}

void TunedJob::one_step() {
  model_.start = from_seconds(time_);
  const auto timeline = schedule::simulate(current_, micro_batches_, model_);
  WEIR_CHECK(timeline.has_value(), "legal plans end");
  const double bytes = kSampleBytes * current_.micro_batch_size;
  for (const schedule::TimedSend& send : timeline->sends) {
    const auto link = 2 * static_cast<std::size_t>(send.boundary) + (send.forward ? 0U : 1U);
    transfers_[link].push_back(
        {time_ + to_seconds(send.end), bytes, to_seconds(send.end - send.start)});
  }
  double step = to_seconds(timeline->step);
  if (loop_.step_noise > 0) step *= std::exp(loop_.step_noise * random_.normal());
  step *= 1 + owed_;
  owed_ = 0;
  time_ += step;
  steps_.push_back(step);
  if (!loop_.tune) {
    for (auto& link : transfers_) link.clear();
    return;
  }
  while (time_ >= next_scrape_) take_scrape();
  if (time_ < next_tick_) return;
  while (time_ >= next_tick_) next_tick_ += loop_.tick;
  evaluate();
}

void TunedJob::take_scrape() {
  estimator::Scrape scrape{at(next_scrape_), {}};
  for (std::size_t link = 0; link < transfers_.size(); ++link) {
    auto& transfers = transfers_[link];
    while (!transfers.empty() && transfers.front().end <= next_scrape_ - loop_.window) {
      transfers.pop_front();
    }
    double bytes = 0, busy = 0;
    for (const Transfer& transfer : transfers) {
      if (transfer.end > next_scrape_) break;
      bytes += transfer.bytes;
      busy += transfer.busy;
    }
    if (busy <= 0) continue;
    const double noise = std::exp(loop_.rate_noise * random_.normal());
    scrape.links.push_back(
        {{0, static_cast<int>(link / 2),
          link % 2 == 0 ? estimator::Direction::kForward : estimator::Direction::kBackward},
         "",
         "",
         noise * bytes / busy,
         0});
  }
  estimator::add_scrapes(links_, {scrape});
  next_scrape_ += loop_.scrape;
}

void TunedJob::evaluate() {
  const retune::Size now = job_.size(current_.micro_batch_size);
  retune::Input input;
  input.current = current_;
  input.micro_batches = now.micro_batches;
  input.stages = now.stages;
  input.boundary_bytes = now.boundary_bytes;
  input.cap_max = now.cap_max;
  input.rooms = now.rooms;
  for (const int size : job_.sizes) {
    if (size != current_.micro_batch_size) input.other_sizes.push_back(job_.size(size));
  }
  using std::chrono_literals::operator""h;
  input.rates = estimator::estimates_of(links_, estimator::Freshness::kFresh, at(time_), 1h).rates;
  input.step = static_cast<std::int64_t>(steps_.size());
  const std::size_t recent = std::min(kMeasuredSteps, steps_.size());
  input.measured_step_seconds = mean(steps_.size() - recent, steps_.size());
  input.now = at(time_);
  input.settings = loop_.settings;
  input.used_scrapes = loop_.used_scrapes;
  for (const int held : most_held()) {
    input.free_memory.push_back(
        job_.real_samples > 0 ? 1 - held * current_.micro_batch_size / job_.real_samples : -1);
  }
  retune::Tuned tuned = retune::tune(input, state_);
  state_ = std::move(tuned.state);
  if (!tuned.decision.candidates.empty()) ++evaluations_;
  if (!tuned.decision.change) return;
  alarms_ += tuned.decision.memory_guard ? 1 : 0;
  const schedule::Schedule& next = tuned.decision.change->schedule;
  owed_ = next.micro_batch_size == current_.micro_batch_size ? kOrderChange : kSizeChange;
  current_ = next;
  switches_.push_back({steps_.size(), time_, tuned.decision.change->text});
  load_model();
}

schedule::RateTrace bursts(Random& random, double share, double mean_burst, double duty,
                           double horizon) {
  schedule::RateTrace trace;
  bool preempted = random.uniform() < duty;
  for (double now = 0; now < horizon;) {
    trace.emplace_back(from_seconds(now), preempted ? share : 1.0);
    const double mean = preempted ? mean_burst : mean_burst * (1 - duty) / duty;
    now += std::max(1e-9, random.exponential(mean));
    preempted = !preempted;
  }
  return trace;
}

std::vector<schedule::Schedule> fixed_plans(const Job& job, schedule::Dispatch dispatch) {
  std::vector<schedule::Schedule> plans;
  for (const int size : job.sizes) {
    const int micro_batches = job.samples / size;
    const auto add = [&](std::vector<int> caps) {
      if (caps.front() * size > job.samples_in_flight) return;
      schedule::Schedule plan;
      plan.dispatch = schedule::dispatch_in_force(caps, dispatch);
      plan.k = schedule::k_of_caps(caps);
      plan.micro_batch_size = size;
      plan.caps = std::move(caps);
      plans.push_back(plan);
      if (job.weights <= 0) return;
      for (const auto& held : {plan.caps, std::vector<int>(plan.caps.size(), plan.caps.front())}) {
        plans.push_back(schedule::with_split(plan, held, dispatch, micro_batches, job.model(size)));
      }
    };
    for (const int k : {1, 2, 3, 4, 6, 8}) {
      add(schedule::kfkb_caps(job.stages, micro_batches, k));
    }
    if (dispatch == schedule::Dispatch::kStrict) continue;
    for (int slack = 2; slack <= 8; ++slack) {
      add(schedule::slack_caps(job.stages, micro_batches, slack));
    }
  }
  return plans;
}

double throughput(const Job& job, const schedule::Schedule& plan, double seconds) {
  TunedJob run(job, Loop{.tune = false}, plan, 1);
  run.run_until(seconds);
  return static_cast<double>(run.steps().size()) / run.time();
}

schedule::Schedule best_when_free(const Job& job, const std::vector<schedule::Schedule>& plans) {
  const auto step = [&](const schedule::Schedule& plan) {
    return schedule::simulate(plan, job.samples / plan.micro_batch_size,
                              job.model(plan.micro_batch_size))
        ->step;
  };
  std::chrono::nanoseconds least = step(plans.front());
  for (const auto& plan : plans) least = std::min(least, step(plan));
  const schedule::Schedule* best = nullptr;
  int fewest = 0;
  for (const auto& plan : plans) {
    if (to_seconds(step(plan)) > kTie * to_seconds(least)) continue;
    const auto& most = plan.split ? plan.split->held : plan.caps;
    const int samples = plan.micro_batch_size * std::accumulate(most.begin(), most.end(), 0);
    if (best == nullptr || samples < fewest) {
      best = &plan;
      fewest = samples;
    }
  }
  return *best;
}

}  // namespace weir::sim
