// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/step_ids.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include "worker/base/check.h"

namespace weir::schedule {

bool are_legal(const Ids& ids, int total) {
  int least = 0;
  for (const IdRange& range : ids) {
    const bool fits = range.first >= least && range.count > 0 && range.first < total &&
                      range.count <= total - range.first;
    if (!fits) return false;
    least = range.first + range.count + 1;
  }
  return true;
}

int count_of(const Ids& ids) {
  int count = 0;
  for (const IdRange& range : ids) count += range.count;
  return count;
}

std::vector<int> listed(const Ids& ids) {
  std::vector<int> list;
  for (const IdRange& range : ids) {
    for (int i = 0; i < range.count; ++i) list.push_back(range.first + i);
  }
  return list;
}

Ids ids_of(std::vector<int> list) {
  std::ranges::sort(list);
  Ids ids;
  for (const int id : list) {
    const bool goes_on = !ids.empty() && ids.back().first + ids.back().count == id;
    if (goes_on) ++ids.back().count;
    if (!goes_on) ids.push_back({.first = id, .count = 1});
  }
  return ids;
}

bool overlap(const Ids& a, const Ids& b) {
  return std::ranges::any_of(a, [&](const IdRange& one) {
    return std::ranges::any_of(b, [&](const IdRange& other) {
      return one.first < other.first + other.count && other.first < one.first + one.count;
    });
  });
}

Ids united(const Ids& a, const Ids& b) {
  std::vector<int> list = listed(a);
  const std::vector<int> more = listed(b);
  list.insert(list.end(), more.begin(), more.end());
  return ids_of(std::move(list));
}

std::vector<int> apportioned(int total, const std::vector<int>& weights) {
  const std::int64_t sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  WEIR_CHECK(sum > 0, "some weight is above 0");
  std::vector<int> parts;
  std::vector<std::pair<std::int64_t, std::size_t>> remainders;  // negative: the largest first
  std::int64_t left = total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t product = std::int64_t{total} * weights[i];
    parts.push_back(static_cast<int>(product / sum));
    left -= parts.back();
    remainders.emplace_back(-(product % sum), i);
  }
  std::ranges::sort(remainders);
  for (std::size_t i = 0; i < remainders.size() && left > 0; ++i, --left) {
    ++parts[remainders[i].second];
  }
  return parts;
}

std::vector<Ids> ids_to_compute(const std::vector<int>& shares, const std::vector<Ids>& kept) {
  Ids there;
  for (const Ids& ids : kept) there.insert(there.end(), ids.begin(), ids.end());
  std::ranges::sort(there, {}, &IdRange::first);
  const int total = std::accumulate(shares.begin(), shares.end(), 0);
  there.push_back({.first = total, .count = 0});
  Ids lack;
  int next = 0;
  for (const IdRange& range : there) {
    if (range.first > next) lack.push_back({.first = next, .count = range.first - next});
    next = range.first + range.count;
  }
  std::vector<Ids> result;
  auto from = lack.begin();
  for (int count : apportioned(count_of(lack), shares)) {
    Ids& own = result.emplace_back();
    while (count > 0) {
      const int taken = std::min(count, from->count);
      own.push_back({.first = from->first, .count = taken});
      *from = {.first = from->first + taken, .count = from->count - taken};
      count -= taken;
      if (from->count == 0) ++from;
    }
  }
  return result;
}

}  // namespace weir::schedule
