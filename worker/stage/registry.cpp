// SPDX-License-Identifier: Apache-2.0
// Maps names to layers, checks the options that all models share, and computes the model's digest.
#include "worker/stage/registry.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>

#include "worker/base/digest.h"
#include "worker/stage/learning_rate.h"
#include "worker/stage/models/decoder.h"
#include "worker/stage/models/mlp.h"
#include "worker/stage/recompute.h"

namespace weir::stage {
namespace {

// So that kept activations and the position table have fewer than 2^31 elements.
constexpr int kMaxSequence = 1 << 16;
constexpr int kMaxVocabulary = 1 << 20;  // five times the largest in common use

struct Entry {
  const char* name;
  Layers (*build)(const ModelOptions&);
};

Layers build_named_decoder(const ModelOptions& options) {
  const std::optional<DecoderShape> shape = decoder_of(options);
  return shape ? build_decoder(*shape, options) : Layers();
}

constexpr std::array<Entry, 8> kModels = {{{"mlp", build_mlp},
                                           {"gpt", build_named_decoder},
                                           {"llama", build_named_decoder},
                                           {"gpt-tiny", build_named_decoder},
                                           {"gpt-mini", build_named_decoder},
                                           {"gpt-125m", build_named_decoder},
                                           {"gpt-350m", build_named_decoder},
                                           {"gpt-1.3b", build_named_decoder}}};

// Models whose size comes from the options.
bool is_sized(const ModelOptions& options) {
  return options.name == "gpt" || options.name == "llama";
}

Status check(const Model& model) {
  const ModelOptions& options = model.options;
  if (options.sequence < 1 || options.sequence > kMaxSequence) {
    return invalid("sequence", std::to_string(options.sequence) + " is not within 1.." +
                                   std::to_string(kMaxSequence));
  }
  if (options.vocabulary < 2 || options.vocabulary > kMaxVocabulary) {
    return invalid("vocabulary", std::to_string(options.vocabulary) + " is not within 2.." +
                                     std::to_string(kMaxVocabulary));
  }
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  if (!fraction(options.beta1)) return invalid("beta1", "not within [0, 1)");
  if (!fraction(options.beta2)) return invalid("beta2", "not within [0, 1)");
  if (!(options.epsilon > 0)) return invalid("epsilon", "not above 0");
  if (!(options.learning_rate >= 0) || !std::isfinite(options.learning_rate)) {
    return invalid("learning rate", "not a number of 0 or more");
  }
  if (!(options.weight_decay >= 0) || !std::isfinite(options.weight_decay)) {
    return invalid("weight decay", "not a number of 0 or more");
  }
  WEIR_OK(check_schedule(options));
  const std::optional<DecoderShape> shape = decoder_of(options);
  if (shape && is_sized(options) && !model.source) return check_decoder(*shape, options);
  return Unit{};
}

// Facts that no shape of a parameter shows, such as the number of heads.
std::string facts_of(const Model& model) {
  if (model.source) return model.source->facts();
  const std::optional<DecoderShape> shape = decoder_of(model.options);
  return shape && is_sized(model.options) ? facts_of(*shape) : "";
}

std::string marks_of(const ParameterSpec& parameter) {
  return (parameter.trainable ? "" : " frozen") +
         (parameter.tied_to.empty() ? "" : " tied " + parameter.tied_to);
}

std::string shapes_of(const Model& model, const Layers& layers) {
  std::ostringstream text;
  text << "weir-shapes/1" << facts_of(model);
  for (const auto& layer : layers) {
    text << '\n' << layer->info().id << ' ' << layer->info().kind;
    for (const auto& parameter : layer->parameters()) {
      text << ' ' << parameter.name;
      for (const auto extent : parameter.shape) text << ' ' << extent;
      text << marks_of(parameter);
    }
  }
  return "sha256:" + sha256_hex(text.str());
}

// The digest lists layers and parameters, so that it changes with the structure of the model.
std::string digest_of(const Model& model, const Layers& layers) {
  const ModelOptions& options = model.options;
  std::ostringstream text;
  text.precision(17);
  text << "weir-model/1 " << options.name << " sequence " << options.sequence << " vocabulary "
       << options.vocabulary << " seed " << options.seed << " rate " << options.learning_rate
       << " beta " << options.beta1 << ' ' << options.beta2 << " epsilon " << options.epsilon
       << " decay " << options.weight_decay << " warmup " << options.warmup_steps << ' '
       << options.schedule;
  text << facts_of(model);
  if (options.precision == Precision::kBf16) text << " precision bf16";
  if (falls(options)) text << ' ' << options.total_steps;
  if (options.min_ratio) text << " least " << *options.min_ratio;
  if (options.schedule == "wsd") text << " decay " << decay_steps(options);
  if (options.model_options != ModelOptions().model_options) text << ' ' << options.model_options;
  for (const auto& layer : layers) {
    text << '\n' << layer->info().id << ' ' << layer->info().kind;
    for (const auto& parameter : layer->parameters()) {
      text << ' ' << parameter.name;
      for (const auto extent : parameter.shape) text << ' ' << extent;
      text << ' ' << parameter.mean << ' ' << parameter.deviation << marks_of(parameter);
    }
  }
  return "sha256:" + sha256_hex(text.str());
}

Result<Tie> tie_of(const Layers& layers, std::size_t index) {
  const auto& first = layers.front()->parameters();
  const ParameterSpec& last = layers.back()->parameters()[index];
  const auto found = std::ranges::find(first, last.tied_to, &ParameterSpec::name);
  const std::string what = last.name + " is tied to " + last.tied_to;
  if (found == first.end()) return invalid("model", what + ", no parameter of the first layer");
  if (found->shape != last.shape || found->trainable != last.trainable ||
      found->decays() != last.decays()) {
    return invalid("model", what + ", but has another shape, or is trained in another way");
  }
  return Tie{.first = found->name,
             .last = last.name,
             .first_parameter = static_cast<std::size_t>(found - first.begin()),
             .last_parameter = index,
             .bytes = last.count() * std::int64_t{sizeof(float)}};
}

// Frozen ones need none: they are equal from the start.
Result<std::vector<Tie>> ties_of(const Layers& layers) {
  std::vector<Tie> ties;
  std::set<std::string> tables;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& parameters = layers[i]->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (parameters[p].tied_to.empty()) continue;
      if (i == 0 || i + 1 != layers.size()) {
        return invalid("model", parameters[p].name +
                                    " is tied; only one of the last layer may be, to one of the "
                                    "first");
      }
      WEIR_TRY(Tie tie, tie_of(layers, p));
      if (!tables.insert(tie.first).second) {
        return invalid("model", tie.first + " is tied to two parameters");
      }
      if (parameters[p].trainable) ties.push_back(std::move(tie));
    }
  }
  return ties;
}

// As they are built, whatever is recomputed.
Result<Layers> plain_layers_of(const Model& model) {
  const ModelOptions& options = model.options;
  WEIR_TRY([[maybe_unused]] const Unit checked, check(model));
  if (model.source) return model.source->layers();
  std::string known;
  for (const auto& entry : kModels) {
    if (options.name == entry.name) return entry.build(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return invalid("model", "unknown model " + options.name + "; known are " + known);
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  names.reserve(kModels.size());
  for (const auto& entry : kModels) names.emplace_back(entry.name);
  return names;
}

Result<Layers> layers_of(const Model& model) {
  WEIR_TRY(Layers layers, plain_layers_of(model));
  WEIR_OK(recompute(layers, model.options.recompute, model.options.sequence));
  return layers;
}

Result<Model> describe_model(const ModelOptions& options,
                             std::shared_ptr<const LayerSource> source) {
  Model model{.options = options, .source = std::move(source)};
  if (model.source) model.options.name = model.source->name();
  WEIR_TRY(Layers layers, plain_layers_of(model));
  WEIR_TRY(model.ties, ties_of(layers));
  model.digest = digest_of(model, layers);
  model.shapes = shapes_of(model, layers);
  WEIR_OK(recompute(layers, model.options.recompute, model.options.sequence));
  for (const auto& layer : layers) {
    model.layers.push_back(layer->info());
    for (const ParameterSpec& spec : layer->parameters()) {
      if (spec.tied_to.empty()) model.parameters += spec.count();
    }
  }
  return model;
}

}  // namespace weir::stage
