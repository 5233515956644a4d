// SPDX-License-Identifier: Apache-2.0
// Times of layers with several threads against one, in turn: a block of 768 channels with 8 x 128
// tokens, and gpt-tiny, whose ops are too small to gain.
//   threads_bench [--threads=N] [--rounds=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/cpus.h"
#include "worker/base/median.h"
#include "worker/base/units.h"
#include "worker/stage/measure.h"

namespace weir::bench {
namespace {

// Seconds of forward, backward and update of one layer of each kind.
using Times = std::map<std::string, double>;

Times time_of(const stage::Model& model, int threads, int samples) {
  const auto device = device::make_host_device("cpu", threads);
  const auto measured = stage::measure(model, *device, {samples}, 3, std::stop_token());
  if (!measured) {
    std::fprintf(stderr, "threads_bench: %s\n", measured.error().message.c_str());
    std::exit(1);
  }
  Times times;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const stage::LayerTiming& layer = (*measured)[i].front();
    times[model.layers[i].kind] =
        to_seconds(layer.forward) + to_seconds(layer.backward) + to_seconds(layer.update);
  }
  return times;
}

void compare(const std::string& name, int threads, int rounds) {
  constexpr int kSamples = 8;
  const auto model = stage::describe_model({.name = name, .sequence = 128});
  std::map<std::string, std::vector<double>> one, ratio;
  for (int round = 0; round < rounds; ++round) {
    const Times alone = time_of(*model, 1, kSamples), shared = time_of(*model, threads, kSamples);
    for (const auto& [kind, seconds] : alone) {
      one[kind].push_back(seconds);
      ratio[kind].push_back(seconds / shared.at(kind));
    }
  }
  for (auto& [kind, ratios] : ratio) {
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf(
        "%s, %s, 8 x 128 tokens: one thread %.2f ms; %d threads %.2f times as fast (%.2f to "
        "%.2f)\n",
        name.c_str(), kind.c_str(), 1e3 * median(one[kind]), threads, median(ratios), *least,
        *most);
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  int threads = weir::usable_cpus(), rounds = 9;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--threads=")) threads = std::atoi(argv[i] + 10);
    if (argument.starts_with("--rounds=")) rounds = std::atoi(argv[i] + 9);
  }
  for (const char* model : {"gpt-125m", "gpt-tiny"}) weir::bench::compare(model, threads, rounds);
}
