// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/gate/gate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "worker/base/gain.h"
#include "worker/base/text.h"

namespace weir::gate {
namespace {

constexpr double kMissedPart = 1.0 / 3;  // least part of the promised time to be saved
constexpr double kMissedErrors = 2;      // standard errors by which a missed gain is certain
constexpr double kCertain = 1.28;        // standard errors: 80 % on both sides, 90 % on one
constexpr std::chrono::seconds kMostCooldown{3600};
// Time within which a cost must be repaid if weir.dev/replan waives the
// cooldown.
constexpr std::chrono::seconds kHorizon{600};

template <class... Numbers>
std::string text(const char* format, Numbers... numbers) {
  std::array<char, 200> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, numbers...);
  return buffer.data();
}

std::chrono::seconds cooldown_of(const Rules& rules, const Clock& clock) {
  if (rules.cooldown.count() == 0) return rules.cooldown;
  return std::max(rules.cooldown, clock.cooldown);
}

bool is_enough(double gain, const Rules& rules) {
  return gain > rules.least_gain || (rules.or_equal && gain == rules.least_gain);
}

// Why the cost of an offer is not worth its gain yet; "" = it is.
std::string cost_objection(const Offer& offer, const Moment& moment, const Rules& rules,
                           const Clock& clock) {
  if (!rules.must_repay) return {};
  const std::chrono::seconds cooldown = cooldown_of(rules, clock);
  const auto horizon = cooldown.count() > 0 ? cooldown : kHorizon;
  const double saved = static_cast<double>(horizon.count()) *
                       (offer.now_seconds - offer.then_seconds) / offer.now_seconds;
  if (saved < offer.cost_seconds) {
    return text("its cost of %.1f s is not repaid: %.1f s in %ld s", offer.cost_seconds, saved,
                static_cast<long>(horizon.count()));
  }
  if (cooldown.count() > 0 && moment.loss_seconds < offer.cost_seconds) {
    return text("%.1f s lost since the last action, its cost is %.1f s", moment.loss_seconds,
                offer.cost_seconds);
  }
  return {};
}

// Why an offer that gains enough must wait; "" = it need not.
std::string objection(const Offer& offer, const Moment& moment, const Rules& rules,
                      const Clock& clock, const Record& record) {
  if (record.wins_in_row < rules.wins_needed) return "seen once, needs a second evaluation";
  std::string wait = reason_to_wait(moment, rules, clock);
  return wait.empty() ? cost_objection(offer, moment, rules, clock) : wait;
}

double promised(const Measured& measured) {
  return saved_part(measured.predicted_now.value_or(measured.predicted_gain));
}

Verdict verdict_of(const Measured& measured, double gain, double error) {
  const bool fell = gain < -kSlower && gain + kCertain * error < 0;
  if (fell && measured.can_return) return Verdict::kRollback;
  const double saved = saved_part(gain);
  const double saved_error = measured.error / (1 + gain);
  const bool less = saved < kMissedPart * promised(measured) &&
                    promised(measured) - saved > kMissedErrors * saved_error;
  return fell || less ? Verdict::kMissed : Verdict::kKeep;
}

std::chrono::seconds next_cooldown(Verdict verdict, const Rules& rules, const Clock& clock) {
  const std::chrono::seconds cooldown = std::max(rules.cooldown, clock.cooldown);
  if (verdict == Verdict::kKeep) return std::max(rules.cooldown, cooldown / 2);
  return std::min(kMostCooldown, 2 * cooldown);
}

}  // namespace

Weighed weigh(const Offer& offer, const Moment& moment, const Rules& rules, const Clock& clock,
              const Record& before) {
  Weighed result{
      .act = false, .enough = false, .gain = 0, .reason = {}, .answer = {}, .record = before};
  const auto answer = [&](std::string text) {
    result.answer = std::move(text);
    result.reason += result.answer;
  };
  Record& record = result.record;
  end_quarantine(record, moment.step);
  if (offer.now_seconds <= 0 || offer.then_seconds <= 0) {
    nothing_offered(record);
    answer("the time of a step is not known");
    return result;
  }
  result.gain = throughput_gain(offer.now_seconds, offer.then_seconds);
  result.reason = text("%.3f s -> %.3f s predicted (%+.1f %%), ", offer.now_seconds,
                       offer.then_seconds, 100 * result.gain);
  if (!is_enough(result.gain, rules)) {
    nothing_offered(record);
    answer(text("below the least gain of %.1f %%", 100 * rules.least_gain));
    return result;
  }
  if (record.quarantine.contains(offer.name)) {
    nothing_offered(record);
    answer("kept out: it was refused, or rolled back less than 100 steps ago");
    return result;
  }
  result.enough = true;
  // The last evaluation may have favoured another offer.
  if (rules.same_offer && record.wanted != offer.name) record.wins_in_row = 0;
  ++record.wins_in_row;
  record.wanted = offer.name;
  const std::string wait = objection(offer, moment, rules, clock, record);
  if (!wait.empty()) {
    answer("waits: " + wait);
    return result;
  }
  answer(rules.must_repay ? text("costs %.1f s once", offer.cost_seconds) : "made now");
  result.act = true;
  nothing_offered(record);
  return result;
}

std::string reason_to_wait(const Moment& moment, const Rules& rules, const Clock& clock) {
  if (moment.unjudged) return "the last change is not judged yet";
  const std::int64_t steps = moment.step - moment.last_change_step;
  if (steps < rules.steps_between) {
    return text("%ld steps since the last change, at least %d", static_cast<long>(steps),
                rules.steps_between);
  }
  const auto left = cooldown_left(moment.now, rules, clock);
  if (left.count() <= 0) return {};
  const std::chrono::seconds cooldown = cooldown_of(rules, clock);
  return text("cooldown: %ld of %ld s", static_cast<long>((cooldown - left).count()),
              static_cast<long>(cooldown.count()));
}

std::chrono::seconds cooldown_left(SystemTime now, const Rules& rules, const Clock& clock) {
  if (!clock.last_change) return std::chrono::seconds(0);
  const auto end = *clock.last_change + cooldown_of(rules, clock);
  return std::max(std::chrono::seconds(0), std::chrono::ceil<std::chrono::seconds>(end - now));
}

void nothing_offered(Record& record) {
  record.wins_in_row = 0;
  record.wanted.clear();
}

void end_quarantine(Record& record, std::int64_t step) {
  std::erase_if(record.quarantine, [&](const auto& entry) { return step >= entry.second; });
}

void resume(Clock& clock, std::optional<SystemTime> last_change, int cooldown_seconds) {
  if (!clock.last_change) clock.last_change = last_change;
  if (clock.cooldown.count() == 0) clock.cooldown = std::chrono::seconds(cooldown_seconds);
}

Judged judge(const Measured& measured, const std::string& offer, std::int64_t step,
             const Rules& rules, const Clock& clock, const Record& record) {
  Judged result{.verdict = Verdict::kKeep, .measured_gain = 0, .clock = clock, .record = record};
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) return result;
  result.measured_gain = throughput_gain(measured.before_seconds, measured.after_seconds);
  result.gain_error = (1 + result.measured_gain) * measured.error;
  result.verdict = verdict_of(measured, result.measured_gain, result.gain_error);
  if (result.verdict == Verdict::kRollback) {
    result.record.quarantine[offer] = step + kQuarantineSteps;
    nothing_offered(result.record);
  }
  result.clock.cooldown = next_cooldown(result.verdict, rules, clock);
  return result;
}

std::string outcome_text(std::int64_t revision, const std::string& what, const Measured& measured,
                         const Judged& judged) {
  const std::string against =
      measured.restated ? "the plan before as simulated on this network"
                        : std::to_string(measured.before_steps) +
                              (measured.predicted_now ? " on the same network" : " before");
  const std::string promise =
      measured.predicted_now
          ? "for this network " + signed_percent(*measured.predicted_now) + " %" +
                (measured.interval_now ? " (80 %: " + interval_text(*measured.interval_now) + ")"
                                       : "") +
                ", when decided "
          : "";
  return "revision " + std::to_string(revision) + (what.empty() ? "" : " (" + what + ")") +
         ": measured " + signed_percent(judged.measured_gain) + " % (+-" +
         percent(judged.gain_error) + ") over " + std::to_string(measured.after_steps) +
         " steps against " + against + "; predicted " + promise +
         signed_percent(measured.predicted_gain) + " %; step " +
         number(measured.before_seconds, 2) + " s -> " + number(measured.after_seconds, 2) + " s";
}

std::string missed_text(const Measured& measured, const Judged& judged) {
  return "measured gain " + percent(judged.measured_gain) + " % (+-" + percent(judged.gain_error) +
         "), predicted " + percent(measured.predicted_now.value_or(measured.predicted_gain)) + " %";
}

}  // namespace weir::gate
