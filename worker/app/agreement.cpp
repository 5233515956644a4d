// SPDX-License-Identifier: Apache-2.0
#include "worker/app/agreement.h"

#include <utility>

#include "worker/stage/layer.h"
#include "worker/stage/learning_rate.h"

namespace weir::app {
namespace {

std::string given(const std::string& text) {
  return text.empty() ? "not given" : "given";
}

const char* name_of(stage::Precision precision) {
  return precision == stage::Precision::kBf16 ? "bf16" : "fp32";
}

Settings shape_options(const stage::ModelOptions& m) {
  Settings all = {{"--model", m.name},
                  {"--seq", std::to_string(m.sequence)},
                  {"--vocab", std::to_string(m.vocabulary)}};
  const auto size = [&](const char* option, int given) {
    if (given != 0) all.push_back({option, std::to_string(given)});
  };
  size("--layers", m.blocks);
  size("--width", m.width);
  size("--heads", m.heads);
  size("--kv-heads", m.kv_heads);
  size("--ffn", m.ffn);
  if (m.model_options != stage::ModelOptions().model_options) {
    all.push_back({"--model-option", m.model_options});
  }
  return all;
}

Settings optimizer_options(const stage::ModelOptions& m) {
  Settings all = {{"--seed", std::to_string(m.seed)},
                  {"--lr", exact_text(m.learning_rate)},
                  {"--warmup", std::to_string(m.warmup_steps)},
                  {"--lr-schedule", m.schedule},
                  {"--weight-decay", exact_text(m.weight_decay)},
                  {"Adam's beta1", exact_text(m.beta1)},
                  {"Adam's beta2", exact_text(m.beta2)},
                  {"Adam's epsilon", exact_text(m.epsilon)}};
  if (stage::falls(m)) {
    all.push_back({"--steps (length of the schedule)", std::to_string(m.total_steps)});
    all.push_back({"--min-lr-ratio", exact_text(stage::least_ratio(m))});
  }
  if (m.schedule == "wsd") {
    all.push_back({"--decay-steps", std::to_string(stage::decay_steps(m))});
  }
  return all;
}

void append(Settings& to, Settings from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// The digest as a version without shapes would have written it.
std::string old_digest(const checkpoint::Manifest& found, const stage::Model& model) {
  stage::ModelOptions then = model.options;
  then.seed = found.seed;
  then.learning_rate = found.optimizer.learning_rate;
  then.beta1 = found.optimizer.beta1;
  then.beta2 = found.optimizer.beta2;
  then.epsilon = found.optimizer.epsilon;
  then.weight_decay = found.optimizer.weight_decay;
  then.schedule = found.optimizer.schedule;
  then.warmup_steps = found.optimizer.warmup_steps;
  const Result<stage::Model> described = stage::describe_model(then, model.source);
  return described ? described->digest : "";
}

// Such a version did not write the length of a schedule. If the digest shows that everything is
// equal, the length is the current one.
Settings old_settings(const checkpoint::Manifest& found, std::int64_t total_steps) {
  return optimizer_options({.seed = found.seed,
                            .learning_rate = found.optimizer.learning_rate,
                            .beta1 = found.optimizer.beta1,
                            .beta2 = found.optimizer.beta2,
                            .epsilon = found.optimizer.epsilon,
                            .weight_decay = found.optimizer.weight_decay,
                            .warmup_steps = found.optimizer.warmup_steps,
                            .schedule = found.optimizer.schedule,
                            .total_steps = total_steps});
}

}  // namespace

Settings settings_of_job(const Options& o, const stage::Model& model, const data::Dataset& data,
                         const data::Dataset* validation) {
  Settings all = shape_options(o.model);
  append(all, {{"--precision", name_of(o.model.precision)},
               {"--data", data.content()},
               {"order of the data", data::kOrder},
               {"--recompute", o.model.recompute},
               {"--steps", std::to_string(o.steps)}});
  append(all, optimizer_options(o.model));
  append(all, {{"--grad-clip", exact_text(o.grad_clip)},
               {"--diverged-after", std::to_string(o.diverged_after)},
               {"--init-from", o.init_from.empty() ? "not given" : o.init_from},
               {"--checkpoint-dir", given(o.checkpoint_dir)},
               {"--validation-interval", std::to_string(o.validation_interval)}});
  if (validation != nullptr) {
    append(all, {{"--validation-samples", std::to_string(o.validation_samples)},
                 {"--validation-data", validation->content()}});
  }
  append(all, {{"layers of the model", model.shapes}});
  if (model.source && !model.source->content().empty()) {
    all.push_back({"initial values of the model", model.source->content()});
  }
  return all;
}

Settings settings_of_checkpoint(const Options& o, const data::Dataset& data) {
  Settings all = shape_options(o.model);
  append(all, {{"--precision", name_of(o.model.precision)},
               {"--data", data.content()},
               {"order of the data", data::kOrder}});
  append(all, optimizer_options(o.model));
  append(all, {{"--grad-clip", exact_text(o.grad_clip)}});
  return all;
}

Verdict compare(const checkpoint::Manifest& found, const Options& options,
                const stage::Model& model, const Settings& now) {
  const std::string step = "step " + std::to_string(found.step);
  const std::string job = options.owner();
  if (!job.empty() && !found.job.empty() && found.job != job) {
    return {"holds " + step + " of job " + found.job + ", this is " + job +
                ": give it a folder of its own; --init-from takes the other job's parameters",
            {}};
  }
  if (!found.shapes.empty() && found.shapes != model.shapes) {
    const std::string what = describe(differences(now, found.settings), "the checkpoint");
    return {"holds " + step + " of another model (" + (what.empty() ? found.model : what) + ")",
            {}};
  }
  const bool old = found.shapes.empty() && found.digest != model.digest;
  const bool known = !old || old_digest(found, model) == found.digest;
  if (!known && (found.model != options.model.name || !options.change_options)) {
    return {"holds " + step + " of another model or other options of training (" + found.model +
                "), written by a version that does not say which; --change-options tries it",
            {}};
  }
  Verdict verdict{.different = differences(
                      now, old ? old_settings(found, options.model.total_steps) : found.settings)};
  if (!verdict.different.empty() && !options.change_options) {
    verdict.refusal = "holds " + step + " of a run with other options: " +
                      describe(verdict.different, "the checkpoint") +
                      "; --change-options goes on with the new ones, --init-from takes the "
                      "parameters alone";
  }
  return verdict;
}

}  // namespace weir::app
