// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/compression/choose.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "operator/adaptation/costing/codec_seconds.h"
#include "worker/base/units.h"
#include "worker/schedule/bounds.h"

namespace weir::compression {
namespace {

using schedule::Codec;
using schedule::Codecs;

// Steps that differ by less count as equal: a shorter transfer always saves a little while the
// pipeline fills.
constexpr double kSame = 1.04;

std::chrono::nanoseconds transfer(const Raw& raw, std::size_t boundary, bool forward, Codec codec) {
  const auto& links = forward ? raw.model.forward : raw.model.backward;
  const std::int64_t bytes = raw.boundary_bytes[boundary];
  const std::int64_t wire = schedule::wire_bytes(codec, bytes, raw.samples, raw.number_bytes);
  const double part = bytes > 0 ? static_cast<double>(wire) / static_cast<double>(bytes) : 1;
  return from_seconds(to_seconds(links[boundary].transfer) * part);
}

// Seconds of the shortest transfer of a slow link.
double least_slow(const Raw& raw) {
  double stage = 0;
  for (const schedule::StageTime& time : raw.model.stages) {
    stage = std::max(stage, to_seconds(time.forward + time.backward));
  }
  return std::max(kSlow * stage, 1e-9);
}

}  // namespace

std::vector<Codec> ladder(Codec coarsest, int number_bytes) {
  constexpr int kFloat = 4;
  std::vector<Codec> codecs;
  for (const Codec codec : schedule::kCodecs) {
    const bool changes_nothing = codec == Codec::kBf16 && number_bytes < kFloat;
    if (codec <= coarsest && !changes_nothing) codecs.push_back(codec);
  }
  return codecs;
}

schedule::PipelineModel with_codecs(const Raw& raw, const Codecs& codecs) {
  schedule::PipelineModel model = raw.model;
  for (std::size_t b = 0; b < raw.boundary_bytes.size(); ++b) {
    const int boundary = static_cast<int>(b);
    model.forward[b].transfer = transfer(raw, b, true, codec_of(codecs.forward, boundary));
    model.backward[b].transfer = transfer(raw, b, false, codec_of(codecs.backward, boundary));
  }
  costing::add_codec_seconds(costing::codec_numbers(codecs, raw.boundary_bytes, raw.number_bytes),
                             raw.codec_seconds, model.stages);
  return model;
}

std::int64_t bytes_of(const Raw& raw, const Codecs& codecs) {
  std::int64_t bytes = 0;
  for (std::size_t b = 0; b < raw.boundary_bytes.size(); ++b) {
    for (const auto* direction : {&codecs.forward, &codecs.backward}) {
      bytes += schedule::wire_bytes(codec_of(*direction, static_cast<int>(b)),
                                    raw.boundary_bytes[b], raw.samples, raw.number_bytes);
    }
  }
  return bytes;
}

std::vector<Codecs> choices(const Raw& raw, Codec coarsest) {
  const std::vector<Codec> codecs = ladder(coarsest, raw.number_bytes);
  const std::size_t boundaries = raw.boundary_bytes.size();
  const double least = least_slow(raw);
  const auto slow = [&](std::size_t b, bool forward) {
    return to_seconds(transfer(raw, b, forward, Codec::kRaw)) >= least;
  };
  std::set<std::chrono::nanoseconds> times;
  for (std::size_t b = 0; b < boundaries; ++b) {
    for (const bool forward : {true, false}) {
      if (!slow(b, forward)) continue;
      for (const Codec codec : codecs) times.insert(transfer(raw, b, forward, codec));
    }
  }
  std::vector<Codecs> result;
  for (const std::chrono::nanoseconds time : times) {
    Codecs choice;
    for (std::size_t b = 0; b < boundaries; ++b) {
      for (const bool forward : {true, false}) {
        const auto fast = std::ranges::find_if(
            codecs, [&](Codec codec) { return transfer(raw, b, forward, codec) <= time; });
        const Codec codec = fast == codecs.end() ? codecs.back() : *fast;
        (forward ? choice.forward : choice.backward)
            .push_back(slow(b, forward) ? codec : Codec::kRaw);
      }
    }
    const bool known = std::ranges::find(result, choice) != result.end();
    if (!choice.raw() && !known) result.push_back(std::move(choice));
  }
  return result;
}

Codecs choose(const Raw& raw, Codec coarsest, schedule::Backwards backwards) {
  const auto least = [&](const Codecs& codecs) {
    return to_seconds(schedule::least_step(with_codecs(raw, codecs), raw.micro_batches, backwards));
  };
  std::vector<std::pair<Codecs, double>> costed{{Codecs{}, least({})}};
  for (Codecs& choice : choices(raw, coarsest)) {
    const double seconds = least(choice);
    costed.emplace_back(std::move(choice), seconds);
  }
  double best = costed.front().second;
  for (const auto& [codecs, seconds] : costed) best = std::min(best, seconds);
  const std::pair<Codecs, double>* finest = nullptr;
  for (const auto& one : costed) {
    if (one.second > kSame * best) continue;
    if (finest == nullptr || bytes_of(raw, one.first) > bytes_of(raw, finest->first)) {
      finest = &one;
    }
  }
  return finest->first;
}

bool has_slow_links(const Raw& raw) {
  const double least = least_slow(raw);
  const auto slow = [&](const schedule::LinkModel& link) {
    return to_seconds(link.transfer) >= least;
  };
  return std::ranges::any_of(raw.model.forward, slow) ||
         std::ranges::any_of(raw.model.backward, slow);
}

}  // namespace weir::compression
