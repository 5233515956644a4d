// SPDX-License-Identifier: Apache-2.0
// A reader with the path of the field in each message, because plugins are written by other people.
#include "worker/stage/foreign/description.h"

#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace weir::stage {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 64U << 20U, kMostLayers = 65536, kLongestName = 256;
constexpr std::int64_t kMostNumber = std::int64_t{1} << 62;
// Parameters begin at cache lines, and so do their halves in bf16.
constexpr std::int64_t kAlignment = 32;

Result<std::string> text_of(const json& object, const std::string& path, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::string();
  if (!found->is_string()) return invalid(path + key, "is no text");
  auto text = found->get<std::string>();
  if (text.size() > kLongestName) return invalid(path + key, "is longer than 256 bytes");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ') return invalid(path + key, "has a control character");
  }
  return text;
}

Result<std::string> name_of(const json& object, const std::string& path, const char* key) {
  WEIR_TRY(std::string text, text_of(object, path, key));
  if (text.empty()) return invalid(path + key, "is missing or empty");
  return text;
}

Result<std::int64_t> number_of(const json& object, const std::string& path, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::int64_t{0};
  if (!found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<std::uint64_t>() > static_cast<std::uint64_t>(kMostNumber))) {
    return invalid(path + key, "is no whole number within 0..2^62");
  }
  const auto number = found->get<std::int64_t>();
  if (number < 0 || number > kMostNumber) {
    return invalid(path + key, "is no whole number within 0..2^62");
  }
  return number;
}

Result<bool> flag_of(const json& object, const std::string& path, const char* key, bool usual) {
  const auto found = object.find(key);
  if (found == object.end()) return usual;
  if (!found->is_boolean()) return invalid(path + key, "is neither true nor false");
  return found->get<bool>();
}

// a x b, or an error if it is above 2^62. Both are at least 0.
Result<std::int64_t> times(std::int64_t a, std::int64_t b, const std::string& path) {
  if (a != 0 && b > kMostNumber / a) return invalid(path, "is too large");
  return a * b;
}

Result<ParameterSpec> parameter_of(const json& object, const std::string& path) {
  if (!object.is_object()) return invalid(path, "is no object");
  const std::string inside = path + ".";
  ParameterSpec spec;
  spec.alignment = kAlignment;
  WEIR_TRY(spec.name, name_of(object, inside, "name"));
  const auto shape = object.find("shape");
  if (shape == object.end() || !shape->is_array() || shape->empty() || shape->size() > 16) {
    return invalid(inside + "shape", "is no list of 1 to 16 numbers");
  }
  std::int64_t count = 1;
  for (const json& extent : *shape) {
    if (!extent.is_number_integer() || extent.get<std::int64_t>() < 1) {
      return invalid(inside + "shape", "has an extent that is no whole number of 1 or more");
    }
    spec.shape.push_back(extent.get<std::int64_t>());
    WEIR_TRY(count, times(count, spec.shape.back(), inside + "shape"));
  }
  WEIR_TRY([[maybe_unused]] const std::int64_t bytes,
           times(count, 16 * kStateFactor, inside + "shape"));
  WEIR_TRY(spec.decay, flag_of(object, inside, "decay", spec.shape.size() >= 2));
  WEIR_TRY(spec.trainable, flag_of(object, inside, "trainable", true));
  WEIR_TRY(spec.tied_to, text_of(object, inside, "tiedTo"));
  return spec;
}

Result<LayerDescription> layer_of(const json& object, const std::string& path, bool first,
                                  bool last, Precision precision, std::int64_t input_bytes) {
  if (!object.is_object()) return invalid(path, "is no object");
  const std::string inside = path + ".";
  LayerDescription layer{.input_bytes_per_sample = input_bytes};
  LayerInfo& info = layer.info;
  WEIR_TRY(info.id, name_of(object, inside, "id"));
  WEIR_TRY(info.kind, text_of(object, inside, "kind"));
  WEIR_TRY(info.description, text_of(object, inside, "description"));
  if (info.kind.empty()) info.kind = info.id;
  WEIR_TRY(const std::int64_t output, number_of(object, inside, "outputValues"));
  if (last && output != 0) return invalid(inside + "outputValues", "must be 0 for the last layer");
  if (!last && output == 0) return invalid(inside + "outputValues", "must be above 0");
  WEIR_TRY(info.needs_inputs, flag_of(object, inside, "needsInputs", first));
  WEIR_TRY(const bool needs_targets, flag_of(object, inside, "needsTargets", last));
  if (needs_targets && !last) {
    return invalid(inside + "needsTargets", "targets reach the last layer only");
  }
  WEIR_TRY(info.output_bytes_per_sample,
           times(output, element_bytes(precision), inside + "outputValues"));
  WEIR_TRY(const std::int64_t stash, number_of(object, inside, "stashBytesPerSample"));
  WEIR_TRY(const std::int64_t stash_once, number_of(object, inside, "stashBytes"));
  WEIR_TRY(const std::int64_t transient, number_of(object, inside, "transientBytesPerSample"));
  WEIR_TRY(const std::int64_t transient_once, number_of(object, inside, "transientBytes"));
  constexpr std::int64_t kMostBytesHeld = kMostNumber / 4;
  if (stash > kMostBytesHeld || stash_once > kMostBytesHeld || input_bytes > kMostBytesHeld) {
    return invalid(inside + "stashBytes", "is too large");
  }
  if (transient > kMostBytesHeld || transient_once > kMostBytesHeld) {
    return invalid(inside + "transientBytes", "is too large");
  }
  info.activation_bytes_per_sample = input_bytes + stash;
  info.activation_bytes = stash_once;
  info.transient_bytes_per_sample = transient;
  info.transient_bytes = transient_once;
  const auto parameters = object.find("parameters");
  if (parameters != object.end() && !parameters->is_array()) {
    return invalid(inside + "parameters", "is no list");
  }
  for (std::size_t i = 0; parameters != object.end() && i < parameters->size(); ++i) {
    WEIR_TRY(ParameterSpec spec,
             parameter_of((*parameters)[i], inside + "parameters[" + std::to_string(i) + "]"));
    layer.parameters.push_back(std::move(spec));
  }
  info.parameter_bytes = parameter_bytes(layer.parameters);
  info.frozen_bytes = frozen_bytes(layer.parameters);
  return layer;
}

}  // namespace

Result<ModelDescription> read_description(std::string_view text, Precision precision,
                                          int vocabulary) {
  if (text.size() > kMostBytes) return invalid("description", "is longer than 64 MiB");
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return invalid("description", "is no JSON object");
  ModelDescription model;
  WEIR_TRY(model.name, name_of(document, "", "name"));
  WEIR_TRY(model.engine, text_of(document, "", "engine"));
  WEIR_TRY(model.note, text_of(document, "", "note"));
  WEIR_TRY(const std::int64_t own, number_of(document, "", "vocabulary"));
  if (own != 0 && own != vocabulary) {
    return invalid("vocabulary", "the model has " + std::to_string(own) + " tokens, --vocab is " +
                                     std::to_string(vocabulary));
  }
  if (const auto given = document.find("export"); given != document.end()) {
    if (!given->is_object()) return invalid("export", "is no object");
    model.export_json = given->dump(-1, ' ', false, json::error_handler_t::replace);
  }
  const auto layers = document.find("layers");
  if (layers == document.end() || !layers->is_array() || layers->empty() ||
      layers->size() > kMostLayers) {
    return invalid("layers", "is no list of 1 to 65536 layers");
  }
  std::set<std::string> ids, names;
  std::int64_t input_bytes = 0;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const std::string path = "layers[" + std::to_string(i) + "]";
    WEIR_TRY(LayerDescription layer,
             layer_of((*layers)[i], path, i == 0, i + 1 == layers->size(), precision, input_bytes));
    if (!ids.insert(layer.info.id).second) {
      return invalid(path + ".id", layer.info.id + " is there twice");
    }
    for (const ParameterSpec& spec : layer.parameters) {
      if (!names.insert(spec.name).second) {
        return invalid(path, "parameter " + spec.name + " is there twice");
      }
    }
    input_bytes = layer.info.output_bytes_per_sample;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

}  // namespace weir::stage
