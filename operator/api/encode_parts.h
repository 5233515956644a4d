// SPDX-License-Identifier: Apache-2.0
// Declarations that encode.cpp, pod_*.cpp share; not for other rooms.
#pragma once

#include <array>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "operator/api/encode.h"
#include "operator/api/pipeline_job.h"
#include "worker/base/result.h"

namespace weir::api {

// Port numbers of a worker.
constexpr std::array<std::pair<const char*, int>, 3> kWorkerPorts{
    {{"control", 7070}, {"data", 7071}, {"metrics", 9400}}};

// Name, namespace, labels and the controlling owner reference.
nlohmann::json owned_metadata(const PipelineJob& job, const std::string& name);

// The group's template, or {} if it has none. Every part that the operator merges into has the
// right type: metadata.labels and annotations, the lists of spec, nodeSelector and affinity. If one
// has not, the answer is kInvalid and names it.
Result<nlohmann::json> checked_template(const WorkerGroup& group);

// Adds affinities to the spec of a pod.
void add_affinity(const PipelineJob& job, const PodInput& input, nlohmann::json& spec);

}  // namespace weir::api
