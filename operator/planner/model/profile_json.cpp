// SPDX-License-Identifier: Apache-2.0
// The only place that knows the text of a profile. Numbers that would overflow nanoseconds or bytes
// are refused.
#include "operator/planner/model/profile_json.h"

#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "operator/planner/model/limits.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

using nlohmann::json;

constexpr const char* kProfileVersion = "weir.dev/profile/v1";
constexpr std::size_t kMostProfileBytes = 16U << 20;  // a ConfigMap holds 1 MiB, a register body 2

// One line of printable text, whatever names the profile holds.
Error invalid(const std::string& field, const std::string& reason) {
  std::string message = field + ": " + reason;
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\x7f') c = '?';
  }
  return {Code::kInvalid, std::move(message)};
}

std::string indexed(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

Result<std::string> text_of(const json& object, const std::string& path, const char* field,
                            std::optional<std::string> missing = std::nullopt) {
  const auto found = object.find(field);
  if (found == object.end()) {
    if (missing) return *std::move(missing);
    return invalid(path + field, "missing");
  }
  if (!found->is_string()) return invalid(path + field, "not a string");
  return found->get<std::string>();
}

Result<std::int64_t> bytes_of(const json& object, const std::string& path, const char* field,
                              std::optional<std::int64_t> missing) {
  const auto found = object.find(field);
  if (found == object.end()) {
    if (missing) return *missing;
    return invalid(path + field, "missing");
  }
  if (!found->is_number_integer()) return invalid(path + field, "not an integer");
  // Unsigned values above int64 come out negative.
  const auto value = found->get<std::int64_t>();
  if (value < 0 || value > kMostBytes) return invalid(path + field, "not in 0 .. 2^50 bytes");
  return value;
}

Result<std::chrono::nanoseconds> seconds_of(const json& object, const std::string& path,
                                            const char* field, bool required) {
  const auto found = object.find(field);
  if (found == object.end()) {
    if (required) return invalid(path + field, "missing");
    return std::chrono::nanoseconds(0);
  }
  if (!found->is_number()) return invalid(path + field, "not a number of seconds");
  const auto value = found->get<double>();
  if (!(value >= 0 && value <= kMostLayerSeconds)) {
    return invalid(path + field, "not in 0 .. 86400 seconds");
  }
  return from_seconds(value);
}

Result<LayerTime> decode_time(const json& entry, const std::string& path, int least_samples) {
  if (!entry.is_object()) return invalid(path, "not an object");
  const std::string prefix = path + ".";
  const auto samples = entry.find("samples");
  if (samples == entry.end()) return invalid(prefix + "samples", "missing");
  if (!samples->is_number_integer()) return invalid(prefix + "samples", "not an integer");
  const auto count = samples->get<std::int64_t>();
  if (count < least_samples || count > std::numeric_limits<std::int32_t>::max()) {
    return invalid(prefix + "samples", std::to_string(count) + " is below " +
                                           std::to_string(least_samples) + ", or not rising");
  }
  LayerTime time;
  time.samples = static_cast<int>(count);
  WEIR_TRY(time.forward, seconds_of(entry, prefix, "forward", true));
  WEIR_TRY(time.backward, seconds_of(entry, prefix, "backward", true));
  WEIR_TRY(time.update, seconds_of(entry, prefix, "update", false));
  return time;
}

Status decode_times(const json& node, const std::string& path, Layer& layer) {
  const auto classes = node.find("times");
  if (classes == node.end()) return invalid(path + "times", "missing");
  if (!classes->is_object() || classes->empty()) {
    return invalid(path + "times", "not an object with a device class");
  }
  for (const auto& [device_class, entries] : classes->items()) {
    std::string here = path;
    here.append("times.").append(device_class);
    if (!entries.is_array() || entries.empty()) return invalid(here, "not a list of times");
    std::vector<LayerTime>& times = layer.times[device_class];
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const int least = times.empty() ? 1 : times.back().samples + 1;
      WEIR_TRY(const LayerTime time, decode_time(entries[i], indexed(here, i), least));
      times.push_back(time);
    }
  }
  return Unit{};
}

Result<Layer> decode_layer(const json& node, const std::string& path) {
  if (!node.is_object()) return invalid(path, "not an object");
  const std::string prefix = path + ".";
  Layer layer;
  WEIR_TRY(layer.id, text_of(node, prefix, "id"));
  if (layer.id.empty()) return invalid(prefix + "id", "empty");
  WEIR_TRY(layer.description, text_of(node, prefix, "description", ""));
  WEIR_TRY(layer.parameter_bytes, bytes_of(node, prefix, "parameterBytes", std::nullopt));
  WEIR_TRY(layer.output_bytes_per_sample,
           bytes_of(node, prefix, "outputBytesPerSample", std::nullopt));
  WEIR_TRY(layer.stash_bytes_per_sample,
           bytes_of(node, prefix, "stashBytesPerSample", layer.output_bytes_per_sample));
  WEIR_TRY(layer.transient_bytes_per_sample, bytes_of(node, prefix, "transientBytesPerSample", 0));
  WEIR_TRY(layer.transient_bytes, bytes_of(node, prefix, "transientBytes", 0));
  WEIR_OK(decode_times(node, prefix, layer));
  return layer;
}

// Kahn: nodes that never become free lie on a cycle.
bool has_cycle(std::size_t layers, const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<std::size_t>> consumers(layers);
  std::vector<int> open(layers, 0);
  for (const auto& [from, to] : edges) {
    consumers[static_cast<std::size_t>(from)].push_back(static_cast<std::size_t>(to));
    ++open[static_cast<std::size_t>(to)];
  }
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < layers; ++i) {
    if (open[i] == 0) free.push_back(i);
  }
  std::size_t seen = 0;
  while (!free.empty()) {
    const std::size_t layer = free.back();
    free.pop_back();
    ++seen;
    for (const std::size_t next : consumers[layer]) {
      if (--open[next] == 0) free.push_back(next);
    }
  }
  return seen != layers;
}

Status decode_edges(const json& document, const std::unordered_map<std::string, int>& index,
                    Model& model) {
  const auto edges = document.find("edges");
  if (edges == document.end()) return Unit{};
  if (!edges->is_array()) return invalid("edges", "not a list");
  for (std::size_t i = 0; i < edges->size(); ++i) {
    const json& edge = (*edges)[i];
    const std::string path = indexed("edges", i);
    if (!edge.is_array() || edge.size() != 2 || !edge[0].is_string() || !edge[1].is_string()) {
      return invalid(path, "not a pair of ids");
    }
    int ends[2] = {};
    for (std::size_t side = 0; side < 2; ++side) {
      const auto found = index.find(edge[side].get<std::string>());
      if (found == index.end()) {
        return invalid(path, "no node with id " + edge[side].get<std::string>());
      }
      ends[side] = found->second;
    }
    model.edges.emplace_back(ends[0], ends[1]);
  }
  if (has_cycle(model.layers.size(), model.edges)) return invalid("edges", "form a cycle");
  return Unit{};
}

Status decode_head(const json& document, Model& model) {
  WEIR_TRY(const std::string version, text_of(document, "", "apiVersion"));
  if (version != kProfileVersion) {
    return invalid("apiVersion", "\"" + version + "\" is not known, expected " + kProfileVersion);
  }
  WEIR_TRY(model.name, text_of(document, "", "model", ""));
  WEIR_TRY(model.digest, text_of(document, "", "digest", ""));
  WEIR_TRY(const std::string scaling, text_of(document, "", "scaling", "interpolate"));
  if (scaling != "interpolate" && scaling != "proportional") {
    return invalid("scaling", "\"" + scaling + "\" is neither interpolate nor proportional");
  }
  model.scaling = scaling == "proportional" ? Scaling::kProportional : Scaling::kInterpolate;

  const auto optimizer = document.find("optimizer");
  if (optimizer == document.end()) return Unit{};
  if (!optimizer->is_object()) return invalid("optimizer", "not an object");
  const auto factor = optimizer->find("stateFactor");
  if (factor == optimizer->end()) return Unit{};
  constexpr double kMostStateFactor = 64;  // 9 is the largest in use: 2-byte weights
  if (!factor->is_number()) return invalid("optimizer.stateFactor", "not a number");
  model.state_factor = factor->get<double>();
  if (!(model.state_factor >= 1 && model.state_factor <= kMostStateFactor)) {
    return invalid("optimizer.stateFactor", "not in 1 .. 64");
  }
  return Unit{};
}

Result<Model> decode(const json& document) {
  if (!document.is_object()) return invalid("profile", "not a JSON object");
  Model model;
  WEIR_OK(decode_head(document, model));
  const auto nodes = document.find("nodes");
  if (nodes == document.end()) return invalid("nodes", "missing");
  if (!nodes->is_array() || nodes->empty() || nodes->size() > kMostLayers) {
    return invalid("nodes", "not a list of 1 .. 65536 layers");
  }
  std::unordered_map<std::string, int> index;
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    const std::string path = indexed("nodes", i);
    WEIR_TRY(Layer layer, decode_layer((*nodes)[i], path));
    if (!index.emplace(layer.id, static_cast<int>(i)).second) {
      return invalid(path + ".id", "\"" + layer.id + "\" is there twice");
    }
    model.layers.push_back(std::move(layer));
  }
  WEIR_OK(decode_edges(document, index, model));
  return model;
}

}  // namespace

Result<Model> decode_profile(std::string_view text) {
  if (text.size() > kMostProfileBytes) return invalid("profile", "longer than 16 MiB");
  try {
    return decode(json::parse(text));
  } catch (const json::parse_error& error) {
    return invalid("profile", "not JSON at byte " + std::to_string(error.byte));
  } catch (const json::exception& error) {
    return invalid("profile", error.what());
  }
}

}  // namespace weir::planner
