// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/async/ideal_subsets.h"

#include <bit>

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr int kMostNodes = 4096;  // the table of ancestors takes nodes^2 / 8 bytes: 2 MiB

}  // namespace

std::vector<int> chains_of(const Dag& dag, int most) {
  if (dag.nodes > kMostNodes) return {};
  const Index words = (static_cast<Index>(dag.nodes) + 63) / 64;
  std::vector<std::uint64_t> ancestors(static_cast<Index>(dag.nodes) * words, 0);
  std::vector<int> chains;
  std::vector<int> tails;
  for (Index node = 0; node < static_cast<Index>(dag.nodes); ++node) {
    std::uint64_t* mine = &ancestors[node * words];
    for (const int before : dag.predecessors[node]) {
      const auto at = static_cast<Index>(before);
      for (Index w = 0; w < words; ++w) mine[w] |= ancestors[at * words + w];
      mine[at / 64] |= std::uint64_t{1} << (at % 64);
    }
    int nearest = -1;
    for (int chain = 0; chain < static_cast<int>(tails.size()); ++chain) {
      const auto tail = static_cast<Index>(tails[static_cast<Index>(chain)]);
      if (((mine[tail / 64] >> (tail % 64)) & 1U) == 0) continue;
      if (nearest < 0 || tails[static_cast<Index>(nearest)] < static_cast<int>(tail)) {
        nearest = chain;
      }
    }
    if (nearest < 0) {
      if (static_cast<int>(tails.size()) == most) return {};
      nearest = static_cast<int>(tails.size());
      tails.push_back(0);
    }
    tails[static_cast<Index>(nearest)] = static_cast<int>(node);
    chains.push_back(nearest);
  }
  return chains;
}

void fill_lanes(const Ideals& ideals, std::size_t ideal, const std::vector<int>& chains, Lanes* to,
                int blocks) {
  for (int block = 0; block < blocks; ++block) to[block] = Lanes{};
  const std::uint64_t* set = ideals.set(ideal);
  for (int w = 0; w < ideals.words; ++w) {
    for (std::uint64_t rest = set[w]; rest != 0; rest &= rest - 1) {
      const int node = w * 64 + std::countr_zero(rest);
      const int chain = chains[static_cast<Index>(node)];
      ++to[chain / 8][chain % 8];
    }
  }
}

}  // namespace weir::planner
