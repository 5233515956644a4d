// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/grad_clip.h"

#include <cmath>
#include <cstring>
#include <sstream>

#include "worker/base/check.h"

namespace weir::engine {

std::vector<double> layer_squares(const std::vector<stage::Parameter>& parameters, int layers) {
  std::vector<double> sums(static_cast<std::size_t>(layers), 0.0);
  if (parameters.empty()) return sums;
  const int first = parameters.front().layer;
  for (const stage::Parameter& parameter : parameters) {
    const int layer = parameter.layer - first;
    WEIR_CHECK(layer >= 0 && layer < layers, "parameters come in the order of their layers");
    double sum = 0;
    for (const float gradient : parameter.gradient) {
      sum += static_cast<double>(gradient) * static_cast<double>(gradient);
    }
    sums[static_cast<std::size_t>(layer)] += sum;
  }
  return sums;
}

double sum_in_order(std::span<const double> squares) {
  double sum = 0;
  for (const double one : squares) sum += one;
  return sum;
}

void clip(const std::vector<stage::Parameter>& parameters, double squares, double limit) {
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm) || norm <= limit) return;
  const auto factor = static_cast<float>(limit / norm);
  for (const stage::Parameter& parameter : parameters) {
    for (float& gradient : parameter.gradient) gradient *= factor;
  }
}

std::vector<std::byte> encode_squares(std::span<const double> squares) {
  const auto bytes = std::as_bytes(squares);
  return {bytes.begin(), bytes.end()};
}

std::vector<double> decode_squares(std::span<const std::byte> note) {
  std::vector<double> squares(note.size() / sizeof(double));
  if (!squares.empty()) std::memcpy(squares.data(), note.data(), squares.size() * sizeof(double));
  return squares;
}

std::vector<std::byte> encode_verdict(double squares, double limit) {
  const double verdict[] = {squares, limit};
  return encode_squares(verdict);
}

Result<double> decode_verdict(std::span<const std::byte> note, double limit) {
  const std::vector<double> verdict = decode_squares(note);
  WEIR_CHECK(verdict.size() == 2, "the slot has the size of a verdict");
  if (verdict[1] == limit) return verdict[0];
  std::ostringstream reason;
  reason << "--grad-clip is " << limit << " here, " << verdict[1] << " on the stage before";
  return Error{Code::kConflict, reason.str()};
}

}  // namespace weir::engine
