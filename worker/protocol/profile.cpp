// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/profile.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "worker/protocol/json_io.h"

namespace weir::protocol {
namespace {

using nlohmann::json;

constexpr const char* kProfileVersion = "weir.dev/profile/v1";
constexpr std::size_t kMaxLayers = 65536;  // limit of the planner's reader, too

struct Optimizer {
  double state_factor = schedule::kStateFactor;
};
struct Head {
  std::string version, model, digest;
  Optimizer optimizer;
};
struct Sizes {
  std::string id, description;
  std::int64_t parameter = 0, output = 0, activations = -1, transient_per_sample = 0, transient = 0;
};

template <class Io, Is<Optimizer> T>
void fields(Io& io, T& optimizer) {
  io("stateFactor", optimizer.state_factor);
}
template <class Io, Is<Head> T>
void fields(Io& io, T& head) {
  io.required("apiVersion", head.version);
  io("model", head.model);
  io("digest", head.digest);
  io("optimizer", head.optimizer);
}
template <class Io, Is<Sizes> T>
void fields(Io& io, T& sizes) {
  io.required("id", sizes.id);
  io("description", sizes.description);
  io.required("parameterBytes", sizes.parameter);
  io.required("outputBytesPerSample", sizes.output);
  io("stashBytesPerSample", sizes.activations);
  io("transientBytesPerSample", sizes.transient_per_sample);
  io("transientBytes", sizes.transient);
}

}  // namespace

template <class Io, Is<ProfileTime> T>
void fields(Io& io, T& time) {
  io.required("samples", time.samples);
  io.required("forward", time.forward);
  io.required("backward", time.backward);
  io("update", time.update);
}

namespace {

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

Result<std::vector<ProfileTime>> decode_times(const json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) return invalid(where, "is not a list with entries");
  std::vector<ProfileTime> out;
  for (const auto& entry : list) {
    const std::string name = where + "[" + std::to_string(out.size()) + "]";
    if (!entry.is_object()) return invalid(name, "is not an object");
    ProfileTime time;
    Reader reader(entry);
    fields(reader, time);
    if (const auto error = reader.error()) return error->with(name);
    if (time.samples < (out.empty() ? 1 : out.back().samples + 1)) {
      return invalid(name + ".samples", "does not rise from 1");
    }
    if (!is_time(time.forward) || !is_time(time.backward) || !is_time(time.update)) {
      return invalid(name, "holds a time that is negative or not finite");
    }
    out.push_back(time);
  }
  return out;
}

Result<ProfileLayer> decode_layer(const json& node, const std::string& where) {
  if (!node.is_object()) return invalid(where, "is not an object");
  Sizes sizes;
  Reader reader(node);
  fields(reader, sizes);
  if (const auto error = reader.error()) return error->with(where);
  if (sizes.activations < 0 && !reader.has("stashBytesPerSample")) sizes.activations = sizes.output;
  if (sizes.id.empty()) return invalid(where + ".id", "is empty");
  if (sizes.parameter < 0 || sizes.output < 0 || sizes.activations < 0 ||
      sizes.transient_per_sample < 0 || sizes.transient < 0) {
    return invalid(where, "holds a negative size");
  }
  ProfileLayer layer{sizes.id,          sizes.description,          sizes.parameter, sizes.output,
                     sizes.activations, sizes.transient_per_sample, sizes.transient, {}};
  const auto times = node.find("times");
  if (times == node.end() || !times->is_object() || times->empty()) {
    return invalid(where + ".times", "has no device class");
  }
  for (const auto& [device, list] : times->items()) {
    WEIR_TRY(layer.times[device], decode_times(list, where + ".times." + device));
  }
  return layer;
}

}  // namespace

std::string encode_profile(const Profile& profile) {
  json root{{"apiVersion", kProfileVersion}, {"model", profile.model},
            {"digest", profile.digest},      {"optimizer", {{"stateFactor", profile.state_factor}}},
            {"scaling", "interpolate"},      {"nodes", json::array()}};
  for (const auto& layer : profile.layers) {
    json node{{"id", layer.id},
              {"description", layer.description},
              {"parameterBytes", layer.parameter_bytes},
              {"outputBytesPerSample", layer.output_bytes_per_sample},
              {"stashBytesPerSample", layer.activation_bytes_per_sample},
              {"transientBytesPerSample", layer.transient_bytes_per_sample},
              {"transientBytes", layer.transient_bytes},
              {"times", json::object()}};
    for (const auto& [device, times] : layer.times) {
      auto& list = node["times"][device] = json::array();
      for (const auto& time : times) {
        list.push_back({{"samples", time.samples},
                        {"forward", time.forward},
                        {"backward", time.backward},
                        {"update", time.update}});
      }
    }
    root["nodes"].push_back(std::move(node));
  }
  return root.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Profile> decode_profile(std::string_view text) {
  WEIR_TRY(const Document document, Document::parse(text));
  Head head;
  Reader reader(document.root());
  fields(reader, head);
  if (const auto error = reader.error()) return *error;
  if (head.version != kProfileVersion) {
    return invalid("apiVersion", "\"" + head.version + "\" is not known, only " + kProfileVersion);
  }
  const auto nodes = document.root().find("nodes");
  if (nodes == document.root().end() || !nodes->is_array() || nodes->empty() ||
      nodes->size() > kMaxLayers) {
    return invalid("nodes", "is not a list of 1 to 65536 layers");
  }
  Profile profile{head.model, head.digest, head.optimizer.state_factor, {}};
  for (const auto& node : *nodes) {
    const std::string where = "nodes[" + std::to_string(profile.layers.size()) + "]";
    WEIR_TRY(ProfileLayer layer, decode_layer(node, where));
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

Status merge(Profile& into, const Profile& other) {
  if (into.model != other.model) return invalid("model", into.model + " is not " + other.model);
  if (into.digest != other.digest) return invalid("digest", "differs between the profiles");
  if (into.layers.size() != other.layers.size()) {
    return invalid("nodes", std::to_string(into.layers.size()) + " layers are not " +
                                std::to_string(other.layers.size()));
  }
  for (std::size_t i = 0; i < into.layers.size(); ++i) {
    if (into.layers[i].id != other.layers[i].id) {
      return invalid("nodes[" + std::to_string(i) + "].id",
                     into.layers[i].id + " is not " + other.layers[i].id);
    }
  }
  into.state_factor =
      // differs if only some devices keep a copy for saves in the same memory
      std::max(into.state_factor, other.state_factor);
  for (std::size_t i = 0; i < into.layers.size(); ++i) {
    into.layers[i].times.insert(other.layers[i].times.begin(), other.layers[i].times.end());
  }
  return Unit{};
}

}  // namespace weir::protocol
