// SPDX-License-Identifier: Apache-2.0
// A thread has some positions: it makes their cosines and sines once for all samples and heads.
#include <cmath>
#include <numbers>
#include <vector>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/rotary.h"

namespace weir::stage::ops {
namespace {

using Index = Team::Index;

double scaled(const RotaryShape& shape, double frequency) {
  if (shape.factor == 1) return frequency;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > double{shape.original} / double{shape.low}) return frequency / shape.factor;
  if (wavelength < double{shape.original} / double{shape.high}) return frequency;
  const double smooth =
      (shape.original / wavelength - shape.low) / (double{shape.high} - shape.low);
  return (1 - smooth) * frequency / shape.factor + smooth * frequency;
}

void turn(Index half, const float* cosine, const float* sine, float* x) {
  for (Index i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

void rotary(Team& team, const RotaryShape& shape, float* values) {
  const Index half = shape.size / 2;
  const Index least = least_rows(Index{shape.samples} * shape.heads * shape.size);
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<std::size_t>(half));
  for (int i = 0; i < half; ++i) frequencies.push_back(rotary_frequency(shape, i));
  team.run(shape.sequence, least, [&](Index begin, Index end) {
    std::vector<float> cosine(frequencies.size()), sine(frequencies.size());
    for (Index t = begin; t < end; ++t) {
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = static_cast<float>(t) * frequencies[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(shape.direction * std::sin(angle));
      }
      for (Index b = 0; b < shape.samples; ++b) {
        float* row = values + (b * shape.sequence + t) * shape.stride;
        for (Index h = 0; h < shape.heads; ++h) {
          turn(half, cosine.data(), sine.data(), row + h * shape.size);
        }
      }
    }
  });
}

}  // namespace

float rotary_frequency(const RotaryShape& shape, int i) {
  const float plain = static_cast<float>(std::pow(double{shape.theta}, -2.0 * i / shape.size));
  return static_cast<float>(scaled(shape, plain));
}

void run_on_host(const Rotary& op, const Host& host) {
  const RotaryShape& s = op.shape;
  const std::size_t count =
      product(s.samples * s.sequence - 1, s.stride) + product(s.heads, s.size);
  rotary(host.team, s, InOut(op.values, count, host));
}

}  // namespace weir::stage::ops
