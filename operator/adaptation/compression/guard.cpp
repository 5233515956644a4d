// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/compression/guard.h"

#include <cmath>
#include <string>
#include <vector>

#include "operator/adaptation/compression/choose.h"
#include "worker/base/text.h"

namespace weir::compression {
namespace {

using schedule::Codec;
using schedule::Codecs;

constexpr int kSteps = 8;             // as many newest ones as a report looks at
constexpr double kWorse = 1.01;       // times the validation loss of raw tensors
constexpr int kWorseValidations = 2;  // in a row

constexpr double kErrors = 5;  // standard errors by which training losses are worse

struct Spread {
  double mean = 0, squared_error = 0;  // of the mean
};
Spread spread_of(const std::deque<double>& losses) {
  const auto count = static_cast<double>(losses.size());
  double sum = 0, squares = 0;
  for (const double loss : losses) sum += loss;
  for (const double loss : losses) squares += (loss - sum / count) * (loss - sum / count);
  return {sum / count, squares / (count - 1) / count};
}

// Why training losses are certainly worse; "" = they are not, or too few are known.
std::string why_worse(const Losses& losses) {
  if (losses.raw.size() < kLosses || losses.coded.size() < kLosses) return "";
  const Spread raw = spread_of(losses.raw), coded = spread_of(losses.coded);
  const double error = std::sqrt(raw.squared_error + coded.squared_error);
  if (!(coded.mean > raw.mean + kErrors * error)) return "";
  return "the training loss of " + std::to_string(kLosses) + " reports is " +
         number(coded.mean, 4) + ", with raw tensors it was " + number(raw.mean, 4) +
         "; no codec is tried until weir.dev/replan";
}

// About twice the usual values: more comes from blocks that one number owns.
struct Limits {
  double error = 1, zeroed = 1;
};
Limits limits_of(Codec codec) {
  if (codec == Codec::kInt8) return {.error = 0.02, .zeroed = 0.05};
  if (codec == Codec::kInt6) return {.error = 0.06, .zeroed = 0.12};
  return {};
}

}  // namespace

void note(const std::optional<protocol::Validation>& newest, bool raw, Validations& validations) {
  if (!newest || newest->step <= validations.step) return;
  validations.step = newest->step;
  if (raw || !validations.raw) {
    validations.raw = newest->loss;
    validations.worse_in_row = 0;
    return;
  }
  // A loss that is no number is worse than any.
  const bool fine = newest->loss <= kWorse * *validations.raw;
  validations.worse_in_row = fine ? 0 : validations.worse_in_row + 1;
}

void note(double loss, std::int64_t step, bool raw, Losses& losses) {
  if (step <= losses.step || !std::isfinite(loss)) return;
  losses.step = step;
  if (raw) losses.coded.clear();
  auto& own = raw ? losses.raw : losses.coded;
  own.push_back(loss);
  if (own.size() > kLosses) own.pop_front();
}

std::optional<Reverted> guard(const schedule::Plan& plan, int number_bytes,
                              const protocol::Segment* segment, const Validations& validations,
                              const Losses& losses) {
  if (plan.codecs.raw()) return std::nullopt;
  if (validations.worse_in_row >= kWorseValidations) {
    return Reverted{.codecs = {},
                    .why = "two validation losses in a row are more than 1 % above " +
                           number(validations.raw.value_or(NAN), 4) +
                           ", that of raw tensors; no codec is tried until weir.dev/replan",
                    .for_good = true};
  }
  if (validations.step < 0) {
    const std::string why = why_worse(losses);
    if (!why.empty()) return Reverted{.codecs = {}, .why = why, .for_good = true};
  }
  if (segment == nullptr || segment->steps < kSteps) return std::nullopt;
  for (const protocol::SegmentLink& link : segment->links) {
    Codecs codecs = plan.codecs;
    auto& direction = link.forward ? codecs.forward : codecs.backward;
    const auto boundary = static_cast<std::size_t>(link.boundary);
    if (link.boundary < 0 || boundary >= direction.size()) continue;
    const Codec codec = direction[boundary];
    const Limits most = limits_of(codec);
    const bool error = link.rounding_error > most.error;
    if (!error && link.zeroed <= most.zeroed) continue;
    const std::vector<Codec> finer = ladder(codec, number_bytes);
    direction[boundary] = finer.size() < 2 ? Codec::kRaw : finer[finer.size() - 2];
    return Reverted{
        .codecs = codecs,
        .why =
            "link " + std::to_string(link.boundary) + "-" + std::to_string(link.boundary + 1) +
            (link.forward ? " forward: " : " backward: ") +
            (error ? "error ratio " + number(link.rounding_error, 3) + " for " +
                         std::to_string(kSteps) + " steps, limit " + number(most.error, 3)
                   : percent(link.zeroed) + " % of the numbers became 0 for " +
                         std::to_string(kSteps) + " steps, limit " + percent(most.zeroed) + " %") +
            "; " + name(codec) + " is not tried again for 1000 steps"};
  }
  return std::nullopt;
}

}  // namespace weir::compression
