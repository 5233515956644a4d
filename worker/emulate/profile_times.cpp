// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/profile_times.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/base/file_error.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::emulate {
namespace {

using nlohmann::json;
using stage::LayerTiming;
using std::chrono::nanoseconds;

constexpr const char* kVersion = "weir.dev/profile/v1";
constexpr double kLongestOp = 3600;  // seconds; a larger value is probably in another unit
constexpr std::int64_t kLargestFile = 64 << 20;  // a profile of 65536 layers has about 20 MB

Result<nanoseconds> read_time(const json& entry, const char* field, const std::string& where) {
  const auto found = entry.find(field);
  if (found == entry.end()) return nanoseconds(0);
  const bool good = found->is_number() && std::isfinite(found->get<double>()) &&
                    found->get<double>() >= 0 && found->get<double>() <= kLongestOp;
  if (!good) return invalid(where + "." + field, "must be a time in seconds");
  return from_seconds(found->get<double>());
}

Result<std::vector<LayerTiming>> read_times(const json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) return invalid(where, "must be a list of times");
  std::vector<LayerTiming> times;
  for (const json& entry : list) {
    const auto samples = entry.is_object() ? entry.find("samples") : entry.end();
    const int least = times.empty() ? 1 : times.back().samples + 1;
    const bool rising = entry.is_object() && samples != entry.end() &&
                        samples->is_number_integer() && *samples >= least && *samples <= 1 << 20;
    if (!rising) return invalid(where + ".samples", "must be integers from 1 on, strictly rising");
    LayerTiming timing{.samples = samples->get<int>()};
    WEIR_TRY(timing.forward, read_time(entry, "forward", where));
    WEIR_TRY(timing.backward, read_time(entry, "backward", where));
    WEIR_TRY(timing.update, read_time(entry, "update", where));
    times.push_back(timing);
  }
  return times;
}

std::string classes_of(const json& times) {
  std::string names;
  for (const auto& [name, unused] : times.items()) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

nanoseconds scaled(nanoseconds time, double factor) {
  return nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
}

}  // namespace

Result<ProfileTimes> ProfileTimes::decode(std::string_view text, const stage::Model& model,
                                          const std::string& device_class) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return invalid("profile", "is no JSON object");
  const json version = document.value("apiVersion", json());
  if (version != kVersion) return invalid("apiVersion", version.dump() + " is not " + kVersion);
  const json scaling = document.value("scaling", json("interpolate"));
  if (scaling != "interpolate" && scaling != "proportional") {
    return invalid("scaling", scaling.dump() + " is neither interpolate nor proportional");
  }
  const json nodes = document.value("nodes", json());
  if (!nodes.is_array() || nodes.size() != model.layers.size()) {
    return invalid("nodes", std::to_string(nodes.is_array() ? nodes.size() : 0) +
                                " layers, the model " + model.options.name + " has " +
                                std::to_string(model.layers.size()));
  }
  ProfileTimes profile;
  profile.interpolate_ = scaling == "interpolate";
  profile.device_class_ = device_class;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string where = "nodes[" + std::to_string(i) + "]";
    const json id = nodes[i].is_object() ? nodes[i].value("id", json()) : json();
    if (id != model.layers[i].id) {
      return invalid(where + ".id", id.dump() + ", the model has \"" + model.layers[i].id + "\"");
    }
    const json times = nodes[i].value("times", json());
    if (!times.is_object()) return invalid(where + ".times", "is missing");
    if (profile.device_class_.empty() && times.size() == 1) {
      profile.device_class_ = times.begin().key();
    }
    const auto found = times.find(profile.device_class_);
    if (found == times.end()) {
      return invalid(where + ".times", "no device class '" + profile.device_class_ +
                                           "', there is: " + classes_of(times));
    }
    WEIR_TRY(auto layer, read_times(*found, where + ".times." + profile.device_class_));
    profile.layers_.push_back(std::move(layer));
  }
  return profile;
}

Result<ProfileTimes> ProfileTimes::read(const std::string& path, const stage::Model& model,
                                        const std::string& device_class) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return unreadable(path);
  if (file.tellg() > kLargestFile) return invalid(path, "is too large for a profile");
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  Result<ProfileTimes> profile = decode(text.str(), model, device_class);
  if (!profile) return profile.error().with(path);
  return profile;
}

LayerTiming ProfileTimes::layer(int index, int samples) const {
  const std::vector<LayerTiming>& known = layers_[static_cast<std::size_t>(index)];
  const LayerTiming& last = known.back();
  const auto proportional = [samples](const LayerTiming& from) {
    const double factor = static_cast<double>(samples) / from.samples;
    return LayerTiming{samples, scaled(from.forward, factor), scaled(from.backward, factor),
                       from.update};
  };
  if (samples >= last.samples) return proportional(last);
  if (!interpolate_) return proportional(known.front());
  if (samples <= known.front().samples) {
    LayerTiming least = known.front();
    least.samples = samples;
    return least;
  }
  std::size_t upper = 1;
  while (known[upper].samples < samples) ++upper;
  const LayerTiming& a = known[upper - 1];
  const LayerTiming& b = known[upper];
  const double share = static_cast<double>(samples - a.samples) / (b.samples - a.samples);
  const auto between = [share](nanoseconds x, nanoseconds y) { return x + scaled(y - x, share); };
  return {samples, between(a.forward, b.forward), between(a.backward, b.backward),
          between(a.update, b.update)};
}

StageTimes ProfileTimes::stage(int first_layer, int last_layer) const {
  const auto sum = [profile = *this, first_layer, last_layer](nanoseconds LayerTiming::* part,
                                                              int samples) {
    nanoseconds total{0};
    for (int i = first_layer; i <= last_layer; ++i) total += profile.layer(i, samples).*part;
    return total;
  };
  StageTimes times;
  times.forward = [sum](int samples) { return sum(&LayerTiming::forward, samples); };
  times.backward = [sum](int samples) { return sum(&LayerTiming::backward, samples); };
  times.update = sum(&LayerTiming::update, 1);
  return times;
}

}  // namespace weir::emulate
