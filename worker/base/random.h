// SPDX-License-Identifier: Apache-2.0
// Random numbers that are equal with every compiler and library: SplitMix64 (Steele, Lea, Flood
// 2014). The seed is always an argument. Not for secrets (use digest.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace weir {

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
  // Uniform in 0 .. bound-1, for bound >= 1. The bias is bound x 2^-64, which is negligible here.
  constexpr std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  double normal() {  // Box-Muller; uses one value of the pair
    const double u = 1.0 - uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * uniform());
  }
  double exponential(double mean) { return -mean * std::log(1.0 - uniform()); }

 private:
  std::uint64_t state_;
};

// Derives a seed from a base seed and a number or name, so that seeds do not depend on the order in
// which they are made.
constexpr std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t value) {
  return Random(seed ^ (value * 0xD6E8FEB86659FD93ULL + 0x2545F4914F6CDD1DULL)).next();
}
constexpr std::uint64_t mix_seed(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return mix_seed(seed, hash);
}

}  // namespace weir
