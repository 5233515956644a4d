// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/verdict.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "worker/base/check.h"

namespace weir::engine {

double sum_in_order(std::span<const double> squares) {
  double sum = 0;
  for (const double one : squares) sum += one;
  return sum;
}

float clip_factor(double squares, double limit) {
  const double norm = std::sqrt(squares);
  if (limit <= 0 || !std::isfinite(norm) || norm <= limit) return 1;
  return static_cast<float>(limit / norm);
}

bool is_usable(double squares, double limit) {
  if (!std::isfinite(squares)) return false;
  return limit > 0 || squares <= std::numeric_limits<float>::max();
}

std::vector<double> with_loss(std::vector<double> squares, double loss) {
  if (!std::isfinite(loss) && !squares.empty()) {
    squares.back() = std::numeric_limits<double>::quiet_NaN();
  }
  return squares;
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
