// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/sailor_profile.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/planner/model/json_lines.h"
#include "operator/planner/model/limits.h"
#include "operator/planner/model/sailor_reader.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

using nlohmann::json;

constexpr double kMostFloats = 1e14;
constexpr double kFloatBytes = 4;

struct ProfileReader : SailorReader {
  Result<double> member(const json& object, const std::string& pointer, const char* field) const {
    const auto found = object.find(field);
    if (found == object.end()) return bad(pointer + "/" + field, "missing");
    return number(*found, pointer + "/" + field, 0, kMostFloats);
  }

  // {"0": ..., "1": ...}: the layers in order, each read by `read(value, pointer)`.
  template <class Layer, class Read>
  Result<std::vector<Layer>> layers(const json& value, const std::string& pointer,
                                    const Read& read) const {
    WEIR_OK(object(value, pointer));
    if (value.size() > kMostLayers) return bad(pointer, "more than 65536 layers");
    std::vector<Layer> result(value.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      const std::string here = pointer + "/" + std::to_string(i);
      const auto found = value.find(std::to_string(i));
      if (found == value.end()) return bad(here, "missing");
      WEIR_TRY(result[i], read(*found, here));
    }
    return result;
  }
};

std::int64_t bytes_of(double floats) {
  return std::llround(floats * kFloatBytes);
}

}  // namespace

Result<SailorTimes> decode_sailor_times(std::string_view text, const std::string& name) {
  const ProfileReader reader{{text, name}};
  json document;
  WEIR_OK(parse_json(text, name, document));
  WEIR_OK(reader.object(document, ""));
  SailorTimes times;
  const auto layer = [&](const json& value,
                         const std::string& pointer) -> Result<std::array<double, 3>> {
    if (!value.is_array() || value.size() != 3) {
      return reader.bad(pointer, "expected [forward, backward, update]");
    }
    std::array<double, 3> result{};
    for (std::size_t i = 0; i < 3; ++i) {
      WEIR_TRY(result[i],
               reader.number(value[i], pointer + "/" + std::to_string(i), 0, kMostLayerSeconds));
    }
    return result;
  };
  for (const auto& [size, degrees] : document.items()) {
    const std::string at = "/" + size;
    WEIR_TRY(const int samples, reader.count(size, at, 1));
    WEIR_OK(reader.object(degrees, at));
    for (const auto& [degree, layers] : degrees.items()) {
      const std::string here = at + "/" + degree;
      WEIR_TRY(const int ranks, reader.count(degree, here, 1));
      WEIR_TRY(auto entry, (reader.layers<std::array<double, 3>>(layers, here, layer)));
      if (times.layers != 0 && entry.size() != times.layers) {
        return reader.bad(here, std::to_string(entry.size()) + " layers, others have " +
                                    std::to_string(times.layers));
      }
      times.layers = entry.size();
      times.entries.emplace(std::pair{samples, ranks}, std::move(entry));
    }
  }
  return times;
}

Result<SailorSizes> decode_sailor_sizes(std::string_view text, const std::string& model,
                                        const std::string& name) {
  const ProfileReader reader{{text, name}};
  json document;
  WEIR_OK(parse_json(text, name, document));
  WEIR_OK(reader.object(document, ""));
  const auto found = document.find(model);
  if (found == document.end()) {
    std::string known;
    for (const auto& [key, value] : document.items()) known += (known.empty() ? "" : ", ") + key;
    return reader.bad("/" + model, "no such model (known: " + known + ")");
  }
  WEIR_OK(reader.object(*found, "/" + model));
  const auto layer = [&](const json& value, const std::string& pointer) -> Result<SailorLayer> {
    if (!value.is_object()) return reader.bad(pointer, "expected an object");
    SailorLayer result;
    WEIR_TRY(result.parameter_floats, reader.member(value, pointer, "params_floats"));
    WEIR_TRY(result.output_floats, reader.member(value, pointer, "act_output_floats"));
    WEIR_TRY(result.activation_floats, reader.member(value, pointer, "act_mem_floats"));
    return result;
  };
  SailorSizes sizes;
  for (const auto& [degree, layers] : found->items()) {
    const std::string here = "/" + model + "/" + degree;
    WEIR_TRY(const int ranks, reader.count(degree, here, 1));
    WEIR_TRY(sizes[ranks], (reader.layers<SailorLayer>(layers, here, layer)));
  }
  return sizes;
}

Result<Model> model_of_sailor(const std::vector<std::pair<std::string, SailorTimes>>& classes,
                              const SailorSizes& sizes) {
  if (sizes.empty()) return invalid("sailor: no sizes of the model");
  const auto& [lowest, layers] = *sizes.begin();  // whole layers where degree 1 is there
  Model model;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Layer layer;
    layer.id = "layer" + std::to_string(i);
    layer.parameter_bytes = bytes_of(layers[i].parameter_floats) * lowest;
    layer.output_bytes_per_sample = bytes_of(layers[i].output_floats);
    layer.stash_bytes_per_sample = bytes_of(layers[i].activation_floats) * lowest;
    model.layers.push_back(std::move(layer));
  }
  for (const auto& [name, times] : classes) {
    if (times.layers != layers.size()) {
      return invalid("sailor: class " + name + " has times of " + std::to_string(times.layers) +
                     " layers, the model has " + std::to_string(layers.size()));
    }
    int degree = SailorReader::kMostCount;
    for (const auto& [key, entry] : times.entries) degree = std::min(degree, key.second);
    for (const auto& [key, entry] : times.entries) {  // by rising sizes of micro-batches
      if (key.second != degree) continue;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        model.layers[i].times[name].push_back({key.first, from_seconds(entry[i][0]),
                                               from_seconds(entry[i][1]),
                                               from_seconds(entry[i][2])});
      }
    }
  }
  return model;
}

}  // namespace weir::planner
