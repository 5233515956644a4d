// SPDX-License-Identifier: Apache-2.0
// Split backwards beside whole ones where compute is real: two workers with a thread each train a
// GPT in two stages. Prints the measured time of each part by kind of layer, then the step of both
// plans, run in turn, beside what the simulator expects of these times.
//   split_compute_bench [--model=NAME] [--seq=N] [--micro-batches=N] [--steps=N] [--rounds=N]
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/multiproc/workers.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/device/device.h"
#include "worker/schedule/search_split.h"
#include "worker/stage/measure.h"

namespace weir::bench {
namespace {

constexpr int kStages = 2, kWarmUp = 1, kMeasureRounds = 3;

struct Given {
  std::string model = "gpt-mini";
  int sequence = 256, micro_batches = 8, steps = 8, rounds = 3;
};

double milliseconds(std::chrono::nanoseconds time) {
  return 1e3 * to_seconds(time);
}

schedule::StageTime sum_of(const std::vector<std::vector<stage::LayerTiming>>& layers, int first,
                           int last) {
  schedule::StageTime sum;
  for (int i = first; i <= last; ++i) {
    const stage::LayerTiming& layer = layers[static_cast<std::size_t>(i)].front();
    sum.forward += layer.forward;
    sum.backward += layer.backward;
    sum.backward_input += layer.backward_input;
    sum.backward_weights += layer.backward_weights;
  }
  return sum;
}

// The last layer of the first stage, for the shortest slower stage.
int even_cut(const std::vector<std::vector<stage::LayerTiming>>& layers) {
  const int last = static_cast<int>(layers.size()) - 1;
  const auto slower = [&](int cut) {
    const schedule::StageTime a = sum_of(layers, 0, cut), b = sum_of(layers, cut + 1, last);
    return std::max(a.forward + a.backward, b.forward + b.backward);
  };
  int best = 0;
  for (int cut = 1; cut < last; ++cut) {
    if (slower(cut) < slower(best)) best = cut;
  }
  return best;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// Seconds of the steps behind the warm-up; empty if a worker failed.
std::vector<double> steps_of(const Given& given, const schedule::Schedule& schedule, int cut,
                             int layers) {
  test::PlanText plan{.type = "KFKB"};
  plan.dispatch = schedule::name(schedule.dispatch);
  plan.k = schedule.k;
  plan.caps = schedule.caps;
  plan.split = schedule.split;
  plan.stages = kStages;
  plan.micro_batches = given.micro_batches;
  plan.micro_batch_size = 1;
  plan.ranges = {{0, cut}, {cut + 1, layers - 1}};
  test::Workers workers(plan, {"--model=" + given.model, "--seq=" + std::to_string(given.sequence),
                               "--threads=1", "--steps=" + std::to_string(given.steps + kWarmUp)});
  for (int i = 0; i < kStages; ++i) {
    if (workers[i].wait(std::chrono::minutes(20)) == 0) continue;
    std::fprintf(stderr, "%s\n", workers[i].errors().c_str());
    return {};
  }
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) {
    if (step.step >= kWarmUp) times.push_back(step.iteration_seconds);
  }
  return times;
}

using Timings = std::vector<std::vector<stage::LayerTiming>>;

// How much longer the layers take while another thread computes them, too. A step gains nothing
// from time that a processor fills at its neighbour's cost: caches, memory, or one core of two.
double slowdown_beside_another(const stage::Model& model, const Timings& alone) {
  std::array<Result<Timings>, 2> both{Timings{}, Timings{}};
  {
    std::vector<std::jthread> threads;
    for (auto& timed : both) {
      threads.emplace_back([&] {
        timed = stage::measure(model, *device::make_host_device(), {1}, kMeasureRounds, {});
      });
    }
  }
  if (!both[0] || !both[1]) return 0;
  const int last = static_cast<int>(alone.size()) - 1;
  const auto total = [&](const Timings& timed) {
    const schedule::StageTime sum = sum_of(timed, 0, last);
    return to_seconds(sum.forward + sum.backward);
  };
  return (total(*both[0]) + total(*both[1])) / (2 * total(alone));
}

// Means of one micro-batch over a step, in the order of 1F1B with two in flight: all layers of the
// stage one after the other, so that what a layer has read is out of the caches when its weight
// gradients read it again.
Result<schedule::StageTime> time_step(stage::Stage& stage, const stage::Model& model,
                                      int micro_batches, bool split) {
  Random random(1);
  const auto precision = model.options.precision;
  WEIR_TRY(const device::Buffer input,
           stage::random_values(stage.device(), stage.input_bytes(1), precision, random));
  WEIR_TRY(const device::Buffer gradient,
           stage::random_values(stage.device(), stage.output_bytes(1), precision, random));
  const std::vector<std::int32_t> words(static_cast<std::size_t>(model.options.sequence), 1);
  const stage::Tokens tokens{.inputs = words, .targets = words, .samples = 1};
  const SystemClock clock;
  schedule::StageTime sum;
  const auto timed = [&](std::chrono::nanoseconds& part, auto&& op) -> Status {
    const SteadyTime begin = clock.now();
    WEIR_OK(op());
    part += clock.now() - begin;
    return Unit{};
  };
  const auto forward = [&](int m) {
    return timed(sum.forward, [&]() -> Status {
      WEIR_TRY([[maybe_unused]] const device::Buffer out, stage.forward(m, input, tokens));
      return Unit{};
    });
  };
  stage.begin_step(0, micro_batches);
  WEIR_OK(forward(0));
  for (int m = 0; m < micro_batches; ++m) {
    if (m + 1 < micro_batches) WEIR_OK(forward(m + 1));
    WEIR_OK(timed(split ? sum.backward_input : sum.backward, [&]() -> Status {
      WEIR_TRY([[maybe_unused]] const device::Buffer out,
               split ? stage.backward_input(m, gradient) : stage.backward(m, gradient));
      return Unit{};
    }));
    if (split) {
      WEIR_OK(timed(sum.backward_weights, [&] { return stage.backward_weights(m); }));
    }
  }
  stage.optimizer_step();
  for (auto* part : {&sum.forward, &sum.backward, &sum.backward_input, &sum.backward_weights}) {
    *part /= micro_batches;
  }
  return sum;
}

// Both stages at once, as in the run.
Result<std::vector<schedule::StageTime>> time_stages(const stage::Model& model, int cut, int layers,
                                                     int micro_batches) {
  constexpr int kRounds = 5;
  std::array<Status, kStages> ends{Unit{}, Unit{}};
  std::vector<schedule::StageTime> times(kStages);
  const auto run_stage = [&](std::size_t s) -> Status {
    const auto device = device::make_host_device();
    WEIR_TRY(const auto stage,
             stage::make_stage(model, s == 0 ? 0 : cut + 1, s == 0 ? cut : layers - 1, *device));
    std::array<std::vector<std::chrono::nanoseconds>, 4> parts;
    for (int round = 0; round <= kRounds; ++round) {
      WEIR_TRY(const auto whole, time_step(*stage, model, micro_batches, false));
      WEIR_TRY(const auto split, time_step(*stage, model, micro_batches, true));
      if (round == 0) continue;
      parts[0].push_back((whole.forward + split.forward) / 2);
      parts[1].push_back(whole.backward);
      parts[2].push_back(split.backward_input);
      parts[3].push_back(split.backward_weights);
    }
    for (auto& part : parts) std::ranges::sort(part);
    times[s] = {parts[0][kRounds / 2], parts[1][kRounds / 2], parts[2][kRounds / 2],
                parts[3][kRounds / 2]};
    return Unit{};
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t s = 0; s < kStages; ++s) {
      threads.emplace_back([&, s] { ends[s] = run_stage(s); });
    }
  }
  for (const Status& end : ends) WEIR_OK(end);
  return times;
}

int run(const Given& given) {
  stage::ModelOptions options{.name = given.model, .sequence = given.sequence};
  const auto model = stage::describe_model(options);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 2;
  }
  const auto device = device::make_host_device();
  const auto timed = stage::measure(*model, *device, {1}, kMeasureRounds, {});
  if (!timed) {
    std::fprintf(stderr, "%s\n", timed.error().message.c_str());
    return 1;
  }
  std::printf("%s, %d tokens a sample, micro-batches of 1; ms of one: f, b, bi, w\n",
              given.model.c_str(), given.sequence);
  std::set<std::string> told;
  for (std::size_t i = 0; i < timed->size(); ++i) {
    const stage::LayerTiming& layer = (*timed)[i].front();
    if (!told.insert(model->layers[i].kind).second) continue;
    std::printf("  %-12s %8.2f %8.2f %8.2f %8.2f\n", model->layers[i].kind.c_str(),
                milliseconds(layer.forward), milliseconds(layer.backward),
                milliseconds(layer.backward_input), milliseconds(layer.backward_weights));
  }
  std::printf("two threads at once: each takes %.3f of the time of one alone\n",
              slowdown_beside_another(*model, *timed));
  const int layers = static_cast<int>(timed->size());
  const int cut = even_cut(*timed);
  const schedule::PipelineModel pipeline{
      .stages = {sum_of(*timed, 0, cut), sum_of(*timed, cut + 1, layers - 1)},
      .forward = {{}},
      .backward = {{}}};
  const auto whole_stages = time_stages(*model, cut, layers, given.micro_batches);
  if (!whole_stages) {
    std::fprintf(stderr, "%s\n", whole_stages.error().message.c_str());
    return 1;
  }
  for (int s = 0; s < kStages; ++s) {
    const auto print = [&](const char* what, const schedule::StageTime& time) {
      std::printf("stage %d, %s: %8.2f %8.2f %8.2f %8.2f\n", s, what, milliseconds(time.forward),
                  milliseconds(time.backward), milliseconds(time.backward_input),
                  milliseconds(time.backward_weights));
    };
    print("sum of its layers        ", pipeline.stages[static_cast<std::size_t>(s)]);
    print("as it runs, both at once ", (*whole_stages)[static_cast<std::size_t>(s)]);
  }
  const schedule::Schedule whole{.family = schedule::Family::kKfkb,
                                 .dispatch = schedule::Dispatch::kStrict,
                                 .k = 1,
                                 .micro_batch_size = 1,
                                 .caps = schedule::kfkb_caps(kStages, given.micro_batches, 1)};
  const schedule::Schedule split =
      schedule::with_split(whole, std::vector<int>(kStages, whole.caps.front()),
                           schedule::Dispatch::kHint, given.micro_batches, pipeline);
  std::vector<double> whole_steps, split_steps;
  for (int round = 0; round < given.rounds; ++round) {
    for (const auto& [schedule, steps] :
         {std::pair(&whole, &whole_steps), std::pair(&split, &split_steps)}) {
      const std::vector<double> times = steps_of(given, *schedule, cut, layers);
      if (times.empty()) return 1;
      steps->insert(steps->end(), times.begin(), times.end());
    }
  }
  std::chrono::nanoseconds update{0};  // of the first stage, which begins its update last
  for (int i = 0; i <= cut; ++i) update += (*timed)[static_cast<std::size_t>(i)].front().update;
  schedule::PipelineModel running = pipeline;
  running.stages = *whole_stages;
  const auto simulated = [&](const schedule::Schedule& schedule,
                             const schedule::PipelineModel& model_of_it) {
    const auto timeline = schedule::simulate(schedule, given.micro_batches, model_of_it);
    return timeline ? milliseconds(timeline->step + update) : 0;
  };
  const auto expected = [&](const schedule::Schedule& schedule) {
    return simulated(schedule, pipeline);
  };
  const double a = 1e3 * median(whole_steps), b = 1e3 * median(split_steps);
  std::printf("layers 0-%d, %d-%d, %d micro-batches, split %s\n", cut, cut + 1, layers - 1,
              given.micro_batches, schedule::describe(*split.split).c_str());
  std::printf("whole: %.1f ms (simulated %.1f)\n", a, expected(whole));
  std::printf("split: %.1f ms (simulated %.1f)\n", b, expected(split));
  std::printf("split over whole: %.3f, simulated %.3f; from stages as they run %.3f (%.1f, %.1f)\n",
              b / a, expected(split) / expected(whole),
              simulated(split, running) / simulated(whole, running), simulated(whole, running),
              simulated(split, running));
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Given given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == word.npos ? "" : word.substr(equals + 1);
    int* const number = key == "--seq"             ? &given.sequence
                        : key == "--micro-batches" ? &given.micro_batches
                        : key == "--steps"         ? &given.steps
                        : key == "--rounds"        ? &given.rounds
                                                   : nullptr;
    if (key == "--model" && !value.empty()) {
      given.model = value;
    } else if (number != nullptr && std::atoi(value.c_str()) > 0) {
      *number = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr,
                   "split_compute_bench [--model=NAME] [--seq=N] [--micro-batches=N] [--steps=N] "
                   "[--rounds=N]\n");
      return 2;
    }
  }
  return run(given);
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  return weir::bench::parse_and_run(argc, argv);
}
