// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/profile_times.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <tuple>
#include <utility>

#include "worker/base/file_error.h"
#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/base/utf8.h"
#include "worker/protocol/profile.h"

namespace weir::emulate {
namespace {

using stage::LayerTiming;
using std::chrono::nanoseconds;

constexpr double kLongestOp = 3600;  // seconds; a larger value is probably in another unit
constexpr std::int64_t kLargestFile = 64 << 20;  // a profile of 65536 layers has about 20 MB

Result<std::vector<LayerTiming>> timings_of(const std::vector<protocol::ProfileTime>& times,
                                            const std::string& where) {
  std::vector<LayerTiming> timings;
  for (const protocol::ProfileTime& time : times) {
    // Without times of its own the first part is the whole backward.
    const protocol::SplitTime split =
        time.split.value_or(protocol::SplitTime{.input = time.backward, .weights = 0});
    if (std::max({time.forward, time.backward, time.update, split.input, split.weights}) >
        kLongestOp) {
      return invalid(where, "forward, backward or update takes more than an hour");
    }
    timings.push_back({.samples = time.samples,
                       .forward = from_seconds(time.forward),
                       .backward = from_seconds(time.backward),
                       .update = from_seconds(time.update),
                       .backward_input = from_seconds(split.input),
                       .backward_weights = from_seconds(split.weights)});
  }
  return timings;
}

nanoseconds scaled(nanoseconds time, double factor) {
  return nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
}

}  // namespace

Result<ProfileTimes> ProfileTimes::decode(std::string_view text, const stage::Model& model,
                                          const std::string& device_class) {
  WEIR_TRY(const protocol::Profile read,
           protocol::decode_profile(text, protocol::Fields::kTimesOnly));
  if (read.layers.size() != model.layers.size()) {
    return invalid("nodes", std::to_string(read.layers.size()) + " layers, the model " +
                                model.options.name + " has " + std::to_string(model.layers.size()));
  }
  ProfileTimes profile;
  profile.interpolate_ = read.scaling == protocol::Scaling::kInterpolate;
  profile.device_class_ = device_class;
  for (std::size_t i = 0; i < read.layers.size(); ++i) {
    const auto& [id, times] = std::tie(read.layers[i].id, read.layers[i].times);
    const std::string where = "nodes[" + std::to_string(i) + "]";
    if (id != model.layers[i].id) {
      return invalid(where + ".id", in_quotes(id) + ", the model has '" + model.layers[i].id + "'");
    }
    if (profile.device_class_.empty() && times.size() == 1) {
      profile.device_class_ = times.begin()->first;
    }
    const auto found = times.find(profile.device_class_);
    if (found == times.end()) {
      return invalid(where + ".times",
                     "no device class '" + profile.device_class_ + "', there is: " +
                         joined(times, ", ", [](const auto& entry) { return entry.first; }));
    }
    WEIR_TRY(auto layer, timings_of(found->second, where + ".times." + profile.device_class_));
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
    return LayerTiming{.samples = samples,
                       .forward = scaled(from.forward, factor),
                       .backward = scaled(from.backward, factor),
                       .update = from.update,
                       .backward_input = scaled(from.backward_input, factor),
                       .backward_weights = scaled(from.backward_weights, factor)};
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
  return {.samples = samples,
          .forward = between(a.forward, b.forward),
          .backward = between(a.backward, b.backward),
          .update = between(a.update, b.update),
          .backward_input = between(a.backward_input, b.backward_input),
          .backward_weights = between(a.backward_weights, b.backward_weights)};
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
  times.backward_input = [sum](int samples) { return sum(&LayerTiming::backward_input, samples); };
  times.backward_weights = [sum](int samples) {
    return sum(&LayerTiming::backward_weights, samples);
  };
  const auto until = [profile = *this, first_layer, last_layer](nanoseconds LayerTiming::* part,
                                                                std::size_t layer, int samples) {
    nanoseconds total{0};
    for (int i = last_layer; i >= first_layer + static_cast<int>(layer); --i) {
      total += profile.layer(i, samples).*part;
    }
    return total;
  };
  times.backward_until = [until](std::size_t layer, int samples) {
    return until(&LayerTiming::backward, layer, samples);
  };
  times.weights_until = [until](std::size_t layer, int samples) {
    return until(&LayerTiming::backward_weights, layer, samples);
  };
  times.update = sum(&LayerTiming::update, 1);
  return times;
}

}  // namespace weir::emulate
