// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/model.h"

#include <algorithm>
#include <cmath>

#include "worker/base/check.h"

namespace weir::planner {
namespace {

using std::chrono::nanoseconds;

nanoseconds scaled(nanoseconds time, double factor) {
  return nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
}

LayerTime proportional(const LayerTime& from, int samples) {
  const double factor = static_cast<double>(samples) / from.samples;
  return {.samples = samples,
          .forward = scaled(from.forward, factor),
          .backward = scaled(from.backward, factor),
          .update = from.update,
          .backward_input = scaled(from.backward_input, factor),
          .backward_weights = scaled(from.backward_weights, factor)};
}

LayerTime between(const LayerTime& low, const LayerTime& high, int samples) {
  const double part =
      static_cast<double>(samples - low.samples) / static_cast<double>(high.samples - low.samples);
  const auto time = [&](nanoseconds LayerTime::* of) {
    return low.*of + scaled(high.*of - low.*of, part);
  };
  return {.samples = samples,
          .forward = time(&LayerTime::forward),
          .backward = time(&LayerTime::backward),
          .update = low.update,
          .backward_input = time(&LayerTime::backward_input),
          .backward_weights = time(&LayerTime::backward_weights)};
}

LayerTime with_parts(LayerTime time) {
  if (time.backward_input + time.backward_weights == nanoseconds(0)) {
    time.backward_input = time.backward;
  }
  return time;
}

}  // namespace

std::int64_t state_bytes(double state_factor, std::int64_t parameter_bytes,
                         std::int64_t frozen_bytes) {
  return static_cast<std::int64_t>(std::ceil(state_factor * static_cast<double>(parameter_bytes))) +
         frozen_bytes;
}

LayerTime layer_time(const Model& model, const Layer& layer, const std::string& device_class,
                     int samples) {
  WEIR_CHECK(samples >= 1, "a micro-batch holds samples");
  auto found = layer.times.find(device_class);
  if (found == layer.times.end()) found = layer.times.begin();
  if (found == layer.times.end() || found->second.empty()) return {samples};
  const std::vector<LayerTime>& times = found->second;
  if (model.scaling == Scaling::kProportional)
    return proportional(with_parts(times.front()), samples);

  const auto at_least = std::ranges::lower_bound(times, samples, {}, &LayerTime::samples);
  if (at_least == times.end()) return proportional(with_parts(times.back()), samples);
  // Below the smallest measured size splitting gains nothing.
  if (at_least == times.begin() || at_least->samples == samples) {
    LayerTime result = with_parts(*at_least);
    result.samples = samples;
    return result;
  }
  return between(with_parts(*std::prev(at_least)), with_parts(*at_least), samples);
}

}  // namespace weir::planner
