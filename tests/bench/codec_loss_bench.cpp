// SPDX-License-Identifier: Apache-2.0
// Losses of training whose tensors between stages have fewer bits, beside those of raw ones: four
// workers, all boundaries in both directions in every step, equal data and seeds. The last tenth of
// the text is for validation, which is always raw. The loss of one moment swings by some percent at
// a constant learning rate, and two runs that round differently swing apart, so runs are compared
// by the mean of the validations of their second half, each one beside the raw run's of the same
// step.
//   codec_loss_bench --data=FILE [--model=NAME] [--steps=N] [--seeds=N] [--first-seed=N]
//     [--precision=fp32|bf16] [--codecs=BF16,Int8,Int6]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiproc/workers.h"
#include "worker/base/text.h"

namespace weir::bench {
namespace {

constexpr int kFail = 1, kWrongUse = 2;
constexpr int kValidations = 20;
constexpr int kStages = 4, kMicroBatches = 4, kSamples = 2;  // a batch of 8

struct Given {
  std::string model = "gpt-tiny", data, precision = "fp32";
  std::string codecs = "BF16,Int8,Int6";  // that are compared with Raw
  int steps = 300, seeds = 3, first_seed = 1;
};

struct Losses {
  double training = 0;             // mean of the last tenth of the steps
  std::vector<double> validation;  // of the second half of the steps, oldest first
  double mean() const;             // of the validations
};

double Losses::mean() const {
  double sum = 0;
  for (const double loss : validation) sum += loss;
  return sum / static_cast<double>(validation.size());
}

// All validations in a log of JSON lines but those of the first half.
std::vector<double> validation_losses(const std::string& log) {
  const std::string line = R"("msg":"validated")", mark = "\"loss\":";
  std::vector<double> all;
  for (std::size_t at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) {
    const std::size_t loss = log.find(mark, at);
    if (loss != std::string::npos) {
      all.push_back(std::strtod(log.c_str() + loss + mark.size(), nullptr));
    }
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end()};
}

// Validations of one run over those of the raw one, step by step, in percent: their mean, and the
// standard deviation of one of them, which says how much a single comparison swings.
struct Over {
  double mean = 0, spread = 0;
};

Over over(const Losses& losses, const Losses& raw) {
  Over result;
  const std::size_t count = std::min(losses.validation.size(), raw.validation.size());
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double one = 100 * (losses.validation[i] / raw.validation[i] - 1);
    sum += one;
    squares += one * one;
  }
  const auto n = static_cast<double>(count);
  result.mean = sum / n;
  if (count > 1) {
    result.spread = std::sqrt(std::max(0., squares - sum * sum / n) / (n - 1));
  }
  return result;
}

std::optional<Losses> train(const Given& given, schedule::Codec codec, int seed,
                            const std::string& text, const std::string& held_out) {
  test::PlanText plan{.type = "KFKB", .dispatch = "Hint", .k = 2};
  plan.stages = kStages;
  plan.micro_batches = kMicroBatches;
  plan.micro_batch_size = kSamples;
  const std::vector<schedule::Codec> all(kStages - 1, codec);
  plan.codecs = {.forward = all, .backward = all};
  test::Workers workers(
      plan, {"--model=" + given.model, "--seq=128", "--threads=1", "--lr=1e-3", "--vocab=256",
             "--steps=" + std::to_string(given.steps), "--seed=" + std::to_string(seed),
             "--precision=" + given.precision, "--data=" + text, "--validation-data=" + held_out,
             "--validation-interval=" + std::to_string(std::max(1, given.steps / kValidations)),
             "--validation-samples=256"});
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::hours(2)) == 0) continue;
    std::fprintf(stderr, "%s\n", workers[i].errors().c_str());
    return std::nullopt;
  }
  const auto steps = workers.steps(kStages - 1);
  const std::size_t tenth = std::max<std::size_t>(1, steps.size() / 10);
  Losses losses;
  for (std::size_t i = steps.size() - tenth; i < steps.size(); ++i) {
    losses.training += std::strtod(steps[i].loss_hex.c_str(), nullptr) / static_cast<double>(tenth);
  }
  losses.validation = validation_losses(workers[kStages - 1].errors());
  if (losses.validation.empty()) return std::nullopt;
  return losses;
}

int run(const Given& given) {
  std::ifstream file(given.data, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() < 100'000) {
    std::fprintf(stderr, "--data=%s: a text of 100 kB or more is needed\n", given.data.c_str());
    return kWrongUse;
  }
  const test::TempDir folder;
  const std::size_t end = text.size() / 10 * 9;
  const std::string training = folder.file("training.txt", text.substr(0, end));
  const std::string held_out = folder.file("held_out.txt", text.substr(end));
  std::map<schedule::Codec, double> sums;
  for (int seed = given.first_seed; seed < given.first_seed + given.seeds; ++seed) {
    Losses raw;
    for (const schedule::Codec codec : schedule::kCodecs) {
      if (codec == schedule::Codec::kBf16 && given.precision == "bf16") continue;
      const bool wanted = given.codecs.find(name(codec)) != std::string::npos;
      if (codec != schedule::Codec::kRaw && !wanted) continue;
      const auto losses = train(given, codec, seed, training, held_out);
      if (!losses) return kFail;
      if (codec == schedule::Codec::kRaw) raw = *losses;
      const Over more = over(*losses, raw);
      sums[codec] += more.mean;
      std::printf(
          "%s, seed %d, %-4s  training %.4f (%+.2f %%)  validation %.4f (%+.2f, sd %.2f %%; end "
          "%.4f)\n",
          given.model.c_str(), seed, name(codec), losses->training,
          100 * (losses->training / raw.training - 1), losses->mean(), more.mean, more.spread,
          losses->validation.back());
      std::fflush(stdout);
    }
  }
  for (const auto& [codec, sum] : sums) {
    if (codec == schedule::Codec::kRaw) continue;
    std::printf("mean of validation over raw, %s: %+.2f %%\n", name(codec), sum / given.seeds);
  }
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Given given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('='));
    const std::string value = key.size() == word.size() ? "" : word.substr(key.size() + 1);
    if (key == "--model") {
      given.model = value;
    } else if (key == "--data") {
      given.data = value;
    } else if (key == "--precision") {
      given.precision = value;
    } else if (key == "--codecs") {
      given.codecs = value;
    } else if (key == "--first-seed" && std::atoi(value.c_str()) > 0) {
      given.first_seed = std::atoi(value.c_str());
    } else if (key == "--steps" && std::atoi(value.c_str()) > 0) {
      given.steps = std::atoi(value.c_str());
    } else if (key == "--seeds" && std::atoi(value.c_str()) > 0) {
      given.seeds = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr,
                   "codec_loss_bench --data=FILE [--model=NAME] [--steps=N] [--seeds=N]\n"
                   "  [--first-seed=N] [--precision=fp32|bf16] [--codecs=BF16,Int8,Int6]\n");
      return weir::bench::kWrongUse;
    }
  }
  return weir::bench::run(given);
}
