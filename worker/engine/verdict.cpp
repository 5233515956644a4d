// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/verdict.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

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

namespace {

std::vector<std::byte> to_bytes(std::span<const double> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return {bytes.begin(), bytes.end()};
}

std::vector<double> to_numbers(std::span<const std::byte> bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

}  // namespace

std::vector<std::byte> encode_note(const Note& note) {
  std::vector<double> numbers = note.squares;
  numbers.push_back(note.loss);
  return to_bytes(numbers);
}

Note decode_note(std::span<const std::byte> bytes) {
  std::vector<double> numbers = to_numbers(bytes);
  WEIR_CHECK(!numbers.empty(), "the slot has the size of a note");
  const double loss = numbers.back();
  numbers.pop_back();
  return {.squares = std::move(numbers), .loss = loss};
}

std::vector<std::byte> encode_verdict(const Verdict& verdict, double limit) {
  const double numbers[] = {verdict.squares, verdict.loss, limit};
  return to_bytes(numbers);
}

Result<Verdict> decode_verdict(std::span<const std::byte> bytes, double limit) {
  const std::vector<double> numbers = to_numbers(bytes);
  WEIR_CHECK(numbers.size() == 3, "the slot has the size of a verdict");
  if (numbers[2] == limit) return Verdict{.squares = numbers[0], .loss = numbers[1]};
  std::ostringstream reason;
  reason << "--grad-clip is " << limit << " here, " << numbers[2] << " on the stage before";
  return Error{Code::kConflict, reason.str()};
}

}  // namespace weir::engine
