// SPDX-License-Identifier: Apache-2.0
// The only place that knows the text of a profile. Numbers that would overflow nanoseconds or bytes
// are refused.
#include "worker/protocol/profile.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "worker/base/utf8.h"
#include "worker/protocol/json_io.h"

namespace weir::protocol {
namespace {

constexpr const char* kProfileVersion = "weir.dev/profile/v1";
constexpr std::size_t kMostLayers = 65536;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr double kMostSeconds = 86400;
constexpr double kMostStateFactor = 64;  // 9 is the largest in use: 2-byte weights
constexpr std::size_t kLongestError = 400;
constexpr Names<Scaling, 2> kScalings = {
    {{Scaling::kInterpolate, "interpolate"}, {Scaling::kProportional, "proportional"}}};

struct Optimizer {
  double state_factor = schedule::kStateFactor;
};

template <class Io, class Number>
void check(Io& io, const char* name, Number value, Number least, Number most, const char* rule) {
  if constexpr (Io::kReads) {
    if (!(value >= least && value <= most)) io.fail(name, rule);
  }
}
template <class Io, class Bytes>
void bytes(Io& io, const char* name, Bytes& value) {
  io(name, value);
  check<Io, std::int64_t>(io, name, value, 0, kMostBytes, "not in 0 .. 2^50 bytes");
}
template <class Io, class Seconds>
void seconds(Io& io, const char* name, Seconds& value) {
  io(name, value);
  check<Io, double>(io, name, value, 0, kMostSeconds, "not in 0 .. 86400 seconds");
}

template <class Io, Is<Optimizer> T>
void fields(Io& io, T& optimizer) {
  io("stateFactor", optimizer.state_factor);
  check<Io, double>(io, "stateFactor", optimizer.state_factor, 1, kMostStateFactor,
                    "not in 1 .. 64");
}

void check_times(Reader& io, const ProfileLayer& layer) {
  if (layer.times.empty()) return io.fail("times", "not an object with a device class");
  for (const auto& [device_class, times] : layer.times) {
    const std::string name = "times." + device_class;
    if (times.empty()) io.fail(name.c_str(), "not a list of times");
    int least = 1;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i].samples < least) {
        io.fail((name + "[" + std::to_string(i) + "].samples").c_str(),
                std::to_string(times[i].samples) + " is below " + std::to_string(least) +
                    ", or not rising");
      }
      least = times[i].samples + 1;
    }
  }
}

void check_ties(Reader& io, const Profile& profile) {
  for (std::size_t i = 0; i < profile.ties.size() && io.ok(); ++i) {
    const ProfileTie& tie = profile.ties[i];
    if (tie.first == profile.layers.front().id && tie.last == profile.layers.back().id) continue;
    io.fail(("ties[" + std::to_string(i) + "]").c_str(),
            "not between the first and the last of the nodes");
  }
}

// Kahn: layers that never become free lie on a cycle.
bool has_cycle(const Profile& profile) {
  std::vector<std::vector<std::size_t>> consumers(profile.layers.size());
  std::vector<int> open(profile.layers.size(), 0);
  for (const auto& [from, to] : profile.edges) {
    consumers[static_cast<std::size_t>(from)].push_back(static_cast<std::size_t>(to));
    ++open[static_cast<std::size_t>(to)];
  }
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open[i] == 0) free.push_back(i);
  }
  for (std::size_t seen = 0; seen < free.size(); ++seen) {
    for (const std::size_t next : consumers[free[seen]]) {
      if (--open[next] == 0) free.push_back(next);
    }
  }
  return free.size() != open.size();
}

void read_edges(Reader& io, Profile& profile) {
  std::unordered_map<std::string, int> index;
  for (const ProfileLayer& layer : profile.layers) {
    const int i = static_cast<int>(index.size());
    if (index.emplace(layer.id, i).second) continue;
    return io.fail(("nodes[" + std::to_string(i) + "].id").c_str(),
                   in_quotes(layer.id) + " is there twice");
  }
  std::vector<std::array<std::string, 2>> edges;
  io("edges", edges);
  for (std::size_t i = 0; i < edges.size() && io.ok(); ++i) {
    int ends[2] = {};
    for (std::size_t side = 0; side < 2; ++side) {
      const auto found = index.find(edges[i][side]);
      if (found == index.end()) {
        return io.fail(("edges[" + std::to_string(i) + "]").c_str(),
                       "no node with id " + edges[i][side]);
      }
      ends[side] = found->second;
    }
    profile.edges.emplace_back(ends[0], ends[1]);
  }
  if (io.ok() && has_cycle(profile)) io.fail("edges", "form a cycle");
}

}  // namespace

void fields(auto& io, Is<SplitTime> auto& split) {
  io.needs("input");
  seconds(io, "input", split.input);
  io.needs("weights");
  seconds(io, "weights", split.weights);
}

void fields(auto& io, Is<SplitBytes> auto& split) {
  io.needs("heldBytesPerSample");
  bytes(io, "heldBytesPerSample", split.held_per_sample);
  bytes(io, "transientBytesPerSample", split.transient_per_sample);
}

void fields(auto& io, Is<ProfileTime> auto& time) {
  io.required("samples", time.samples);
  io.needs("forward");
  seconds(io, "forward", time.forward);
  io.needs("backward");
  seconds(io, "backward", time.backward);
  seconds(io, "update", time.update);
  io("split", time.split);
}

template <class Io, Is<ProfileLayer> T>
void fields(Io& io, T& layer) {
  io.required("id", layer.id);
  io("description", layer.description);
  io.needs("parameterBytes");
  bytes(io, "parameterBytes", layer.parameter_bytes);
  io("staticBytes", layer.static_bytes);
  check<Io, std::int64_t>(io, "staticBytes", layer.static_bytes.value_or(0), 0, kMostBytes,
                          "not in 0 .. 2^50 bytes");
  io.needs("outputBytesPerSample");
  bytes(io, "outputBytesPerSample", layer.output_bytes_per_sample);
  if constexpr (Io::kReads) layer.activation_bytes_per_sample = layer.output_bytes_per_sample;
  bytes(io, "stashBytesPerSample", layer.activation_bytes_per_sample);
  if (Io::kReads || layer.activation_bytes != 0) bytes(io, "stashBytes", layer.activation_bytes);
  bytes(io, "transientBytesPerSample", layer.transient_bytes_per_sample);
  bytes(io, "transientBytes", layer.transient_bytes);
  io("split", layer.split);
  io.required("times", layer.times);
  if constexpr (Io::kReads) {
    if (layer.id.empty()) io.fail("id", "empty");
    check_times(io, layer);
  }
}

template <class Io, Is<ProfileTie> T>
void fields(Io& io, T& tie) {
  io.required("first", tie.first);
  io.required("last", tie.last);
  io.needs("bytes");
  bytes(io, "bytes", tie.bytes);
}

template <class Io, Is<Profile> T>
void fields(Io& io, T& profile) {
  std::string version = Io::kReads ? "" : kProfileVersion;
  io.required("apiVersion", version);
  if (version != kProfileVersion) {
    if constexpr (Io::kReads) {
      io.fail("apiVersion", in_quotes(version) + " is not known, expected " + kProfileVersion);
    }
  }
  io("model", profile.model);
  io("digest", profile.digest);
  Optimizer optimizer{profile.state_factor};
  io("optimizer", optimizer);
  io.choice("scaling", profile.scaling, kScalings);
  io.required("nodes", profile.layers);
  if (Io::kReads || !profile.ties.empty()) io("ties", profile.ties);
  if (Io::kReads || profile.number_bytes != Profile{}.number_bytes) {
    io("boundaryNumberBytes", profile.number_bytes);
  }
  if constexpr (Io::kReads) {
    profile.state_factor = optimizer.state_factor;
    const int bytes = profile.number_bytes;
    if (bytes != 0 && bytes != 2 && bytes != 4) {
      io.fail("boundaryNumberBytes", std::to_string(bytes) + " is none of 0, 2, 4");
    }
    if (profile.layers.empty() || profile.layers.size() > kMostLayers) {
      io.fail("nodes", "not a list of 1 .. 65536 layers");
    }
    read_edges(io, profile);
    check_ties(io, profile);
  }
}

std::string encode_profile(const Profile& profile) {
  return encode_struct(profile);
}

Result<Profile> decode_profile(std::string_view text, Fields needed) {
  const Result<Document> document = Document::parse(text);
  if (!document) return document.error().with("profile");
  Reader reader(document->root());
  if (needed == Fields::kTimesOnly) reader.accept_missing();
  Profile profile;
  fields(reader, profile);
  if (const auto error = reader.error()) return invalid(one_line(error->message, kLongestError));
  return profile;
}

Status merge(Profile& into, const Profile& other) {
  if (into.model != other.model) return invalid("model", into.model + " is not " + other.model);
  if (into.digest != other.digest) return invalid("digest", "differs between the profiles");
  if (into.layers.size() != other.layers.size()) {
    return invalid("nodes", std::to_string(into.layers.size()) + " layers are not " +
                                std::to_string(other.layers.size()));
  }
  for (std::size_t i = 0; i < into.layers.size(); ++i) {
    if (into.layers[i].id != other.layers[i].id) {
      return invalid("nodes[" + std::to_string(i) + "].id",
                     into.layers[i].id + " is not " + other.layers[i].id);
    }
  }
  into.state_factor =
      // differs if only some devices keep a copy for saves in the same memory
      std::max(into.state_factor, other.state_factor);
  for (std::size_t i = 0; i < into.layers.size(); ++i) {
    into.layers[i].times.insert(other.layers[i].times.begin(), other.layers[i].times.end());
    into.layers[i].static_bytes =
        std::max(into.layers[i].static_bytes, other.layers[i].static_bytes);
  }
  return Unit{};
}

}  // namespace weir::protocol
