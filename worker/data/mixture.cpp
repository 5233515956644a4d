// SPDX-License-Identifier: Apache-2.0
#include "worker/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "worker/base/check.h"
#include "worker/base/numbers.h"

namespace weir::data {
namespace {

struct Weighted {
  std::string path;
  std::optional<double> weight;
};

Result<Weighted> parse_one(std::string_view text) {
  constexpr double kMost = std::numeric_limits<float>::max();
  Weighted one;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    if (const auto weight = parse_number(text.substr(0, colon), -kMost, kMost)) {
      if (*weight <= 0) return invalid(std::string(text) + ": its weight is not above 0");
      one.weight = *weight;
      text.remove_prefix(colon + 1);
    }
  }
  if (text.empty()) return invalid("a path is empty");
  one.path = text;
  return one;
}

// Rounds weights to shares of kPlaces.
std::vector<int> thousandths(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int> places;
  std::vector<double> rests;
  for (const double weight : weights) {
    const double exact = weight / sum * kPlaces;
    places.push_back(static_cast<int>(std::floor(exact)));
    rests.push_back(exact - std::floor(exact));
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return rests[a] > rests[b]; });
  const int missing = kPlaces - std::accumulate(places.begin(), places.end(), 0);
  WEIR_CHECK(missing >= 0 && missing <= static_cast<int>(order.size()), "shares are rounded down");
  for (int i = 0; i < missing; ++i) ++places[order[static_cast<std::size_t>(i)]];
  return places;
}

}  // namespace

Result<std::vector<Share>> parse_shares(std::string_view text) {
  std::vector<Share> shares;
  std::vector<double> weights;
  std::size_t given = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    WEIR_TRY(Weighted one, parse_one(text.substr(at, end - at)));
    given += one.weight ? 1 : 0;
    weights.push_back(one.weight.value_or(1));
    shares.push_back({.path = std::move(one.path)});
    at = end + 1;
  }
  if (given != 0 && given != shares.size())
    return invalid("some of its files have a weight and some have none");
  const std::vector<int> places = thousandths(weights);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (places[i] == 0) return invalid(shares[i].path + ": its share is below a thousandth");
    shares[i].places = places[i];
  }
  return shares;
}

Mixture::Mixture(const std::vector<int>& places) : places_(places) {
  WEIR_CHECK(std::accumulate(places.begin(), places.end(), 0) == kPlaces, "thousandths");
  // Each place goes to the file that lacks most of its share then, the first one among equals. A
  // file that has its whole share lacks nothing at any place, so that the shares come out exactly.
  std::vector<std::uint64_t> taken(places.size(), 0);
  for (int place = 1; place <= kPlaces; ++place) {
    std::size_t chosen = 0;
    std::int64_t most = -1;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t lacks =
          std::int64_t{places[i]} * place - static_cast<std::int64_t>(taken[i]) * kPlaces;
      if (lacks <= most) continue;
      most = lacks;
      chosen = i;
    }
    table_.push_back({.file = chosen, .before = taken[chosen]++});
  }
}

Mixture::Sample Mixture::at(std::uint64_t sample) const {
  const auto [file, before] = table_[sample % kPlaces];
  return {.file = file,
          .number = sample / kPlaces * static_cast<std::uint64_t>(places_[file]) + before};
}

}  // namespace weir::data
