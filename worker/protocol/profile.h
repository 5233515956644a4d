// SPDX-License-Identifier: Apache-2.0
// The measured profile of a model (operator/planner/model/README.md "profile.json"). A rank writes
// it in the Measure phase; the coordinator merges profiles of different device classes; planner and
// emulation read it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/base/result.h"
#include "worker/schedule/validate.h"

namespace weir::protocol {

struct SplitTime {
  double input = 0, weights = 0;  // seconds of the two parts of a split backward
  bool operator==(const SplitTime&) const = default;
};

struct ProfileTime {
  int samples = 1;                               // samples per micro-batch
  double forward = 0, backward = 0, update = 0;  // seconds
  std::optional<SplitTime> split = {};           // empty: the backward is not split
  bool operator==(const ProfileTime&) const = default;
};

struct SplitBytes {
  // Kept from the gradient of the input to those of the weights; transient in either.
  std::int64_t held_per_sample = 0, transient_per_sample = 0;
  bool operator==(const SplitBytes&) const = default;
};

struct ProfileLayer {
  std::string id, description;
  std::int64_t parameter_bytes = 0;  // of those that are trained: of the sums over replicas
  std::optional<std::int64_t> static_bytes = {};  // empty: state_factor x parameter_bytes
  std::int64_t output_bytes_per_sample = 0;
  std::int64_t activation_bytes_per_sample = 0, activation_bytes = 0;
  std::int64_t transient_bytes_per_sample = 0, transient_bytes = 0;
  std::map<std::string, std::vector<ProfileTime>> times;  // by device class; rising samples
  std::optional<SplitBytes> split = {};                   // empty: unknown
  bool operator==(const ProfileLayer&) const = default;
};

// A table that the first and the last layer share: they add up its gradient after each step.
struct ProfileTie {
  std::string first, last;  // ids of the layers
  std::int64_t bytes = 0;   // of the table in float32
  bool operator==(const ProfileTie&) const = default;
};

enum class Scaling : unsigned char { kInterpolate, kProportional };

struct Profile {
  std::string model, digest;
  double state_factor = schedule::kStateFactor;  // bytes held per byte of parameters
  std::vector<ProfileLayer> layers = {};
  Scaling scaling = Scaling::kInterpolate;
  std::vector<std::pair<int, int>> edges = {};  // without cycles; empty: a chain. Only read.
  std::vector<ProfileTie> ties = {};
  // Bytes of a number of the tensors between stages, which codecs need to know; 0: they are not
  // numbers of one type.
  int number_bytes = 4;
  bool operator==(const Profile&) const = default;
};

std::string encode_profile(const Profile& profile);
// kTimesOnly: sizes and single times may be missing, they are 0.
enum class Fields : unsigned char { kAll, kTimesOnly };
// Errors are kInvalid and name the field, such as "nodes[1].times.cpu[0].forward: missing".
Result<Profile> decode_profile(std::string_view json, Fields needed = Fields::kAll);

// Adds the times of other device classes of the same model. If both have a class, the times of
// `into` stay. kInvalid if model, digest or layers differ.
Status merge(Profile& into, const Profile& other);

}  // namespace weir::protocol
