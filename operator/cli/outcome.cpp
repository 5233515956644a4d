// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/outcome.h"

#include <charconv>

#include "worker/base/text.h"

namespace weir::cli {
namespace {

// Takes the text up to `end` off `rest`, and `end` with it. False: `end` does not occur.
bool take(std::string_view& rest, std::string_view end, std::string_view& taken) {
  const std::size_t at = rest.find(end);
  if (at == rest.npos) return false;
  taken = rest.substr(0, at);
  rest.remove_prefix(at + end.size());
  return true;
}

// The revision that a note begins with: "revision 7...".
std::optional<std::int64_t> revision_of(std::string_view note) {
  constexpr std::string_view kStart = "revision ";
  if (!note.starts_with(kStart)) return std::nullopt;
  note.remove_prefix(kStart.size());
  std::int64_t revision = 0;
  const auto [end, error] = std::from_chars(note.data(), note.data() + note.size(), revision);
  return error == std::errc{} && end != note.data() ? std::optional(revision) : std::nullopt;
}

std::string cut_of(const schedule::Plan& plan) {
  return joined(plan.stages, " ", [](const schedule::LayerRange& layers) {
    return std::to_string(layers.first) + "-" + std::to_string(layers.last);
  });
}

std::string arrow(auto before, auto after) {
  return std::to_string(before) + " -> " + std::to_string(after);
}

bool same_places(const schedule::Plan& a, const schedule::Plan& b) {
  if (a.ranks.size() != b.ranks.size()) return false;
  for (std::size_t i = 0; i < a.ranks.size(); ++i) {
    if (a.ranks[i].pod != b.ranks[i].pod || a.ranks[i].stage != b.ranks[i].stage ||
        a.ranks[i].replica != b.ranks[i].replica) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<OutcomeNote> read_outcome(std::string_view note) {
  const auto revision = revision_of(note);
  std::string_view skipped, measured, evidence, predicted;
  if (!revision || !take(note, ": measured ", skipped) || !take(note, " over ", measured) ||
      !take(note, "; predicted ", evidence) || !take(note, " %;", predicted)) {
    return std::nullopt;
  }
  // Where it was converted to the network of then, both predictions are told.
  if (const std::size_t decided = predicted.rfind(' '); decided != predicted.npos) {
    predicted.remove_prefix(decided + 1);
  }
  return OutcomeNote{*revision, std::string(measured), std::string(predicted) + " %",
                     std::string(evidence)};
}

Judgement judgement_of(std::int64_t revision, const std::vector<JobEvent>& events) {
  Judgement out;
  bool judged = false;  // the last event about an outcome was about this revision
  for (const JobEvent& event : events) {
    if (event.reason == "PlanOutcome") {
      const auto outcome = read_outcome(event.note);
      judged = outcome && outcome->revision == revision;
      if (!judged) continue;
      out.measured = outcome->measured;
      // The column is narrow, and the same network is what a comparison is made on.
      constexpr std::string_view kUsual = " on the same network";
      std::string evidence = outcome->evidence;
      if (evidence.ends_with(kUsual)) evidence.resize(evidence.size() - kUsual.size());
      out.verdict = "kept: " + evidence;
    } else if (event.reason == "PlanRolledBack" && judged) {
      out.verdict = "rolled back" + out.verdict.substr(std::string_view("kept").size());
      judged = false;
    } else if (event.reason == "PlanRefused" && revision_of(event.note) == revision) {
      const std::size_t colon = event.note.find(": ");
      out.verdict = "refused" + (colon == event.note.npos ? "" : event.note.substr(colon));
    }
  }
  return out;
}

std::string difference(const schedule::Plan* previous, const schedule::Plan& plan) {
  if (previous == nullptr) {
    return "k " + std::to_string(plan.schedule.k) + ", " + std::to_string(plan.stage_count()) +
           " stages";
  }
  std::vector<std::string> parts;
  if (previous->schedule.k != plan.schedule.k) {
    parts.push_back("k " + arrow(previous->schedule.k, plan.schedule.k));
  }
  if (previous->schedule.micro_batch_size != plan.schedule.micro_batch_size) {
    parts.push_back("micro-batch size " +
                    arrow(previous->schedule.micro_batch_size, plan.schedule.micro_batch_size));
  }
  if (previous->replica_count() != plan.replica_count()) {
    parts.push_back("replicas " + arrow(previous->replica_count(), plan.replica_count()));
  } else if (previous->micro_batches != plan.micro_batches &&
             previous->schedule.micro_batch_size == plan.schedule.micro_batch_size) {
    parts.push_back("shares " + joined(previous->micro_batches) + " -> " +
                    joined(plan.micro_batches));
  }
  if (previous->stage_count() != plan.stage_count()) {
    parts.push_back("stages " + arrow(previous->stage_count(), plan.stage_count()));
  } else if (previous->stages != plan.stages) {
    parts.push_back("layers " + cut_of(*previous) + " -> " + cut_of(plan));
  }
  if (previous->replica_count() == plan.replica_count() && !same_places(*previous, plan)) {
    parts.emplace_back("other workers");
  }
  if (previous->sync.mode != plan.sync.mode) {
    parts.push_back(std::string("sync ") + schedule::name(previous->sync.mode) + " -> " +
                    schedule::name(plan.sync.mode));
  }
  if (previous->codecs != plan.codecs) {
    const auto text = [](const schedule::Codecs& codecs) {
      return codecs.raw() ? std::string("Raw") : describe(codecs);
    };
    parts.push_back("codecs " + text(previous->codecs) + " -> " + text(plan.codecs));
  }
  if (parts.empty() && previous->schedule.caps != plan.schedule.caps) {
    parts.push_back("caps " + joined(previous->schedule.caps) + " -> " +
                    joined(plan.schedule.caps));
  }
  if (previous->schedule.split != plan.schedule.split && parts.empty()) {
    parts.emplace_back(plan.schedule.split ? "other split of backwards" : "whole backwards");
  }
  return parts.empty() ? "the same plan" : joined(parts, ", ");
}

}  // namespace weir::cli
