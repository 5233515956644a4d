// SPDX-License-Identifier: Apache-2.0
// Metrics of the worker that the operator queries. worker/telemetry/README.md lists all.
#pragma once

namespace weir::protocol::metric {

inline constexpr const char* kIterationSeconds = "weir_iteration_seconds";
inline constexpr const char* kLinkBusySeconds = "weir_link_busy_seconds_total";
inline constexpr const char* kLinkBytes = "weir_link_bytes_total";
inline constexpr const char* kLinkRttSeconds = "weir_link_rtt_seconds";
inline constexpr const char* kReplicaStepSeconds = "weir_replica_step_seconds_total";
inline constexpr const char* kStageOpSeconds = "weir_stage_op_seconds";
inline constexpr const char* kStep = "weir_step";
inline constexpr const char* kSyncBusBandwidth = "weir_sync_bus_bandwidth";
inline constexpr const char* kSyncBytes = "weir_sync_bytes_total";
inline constexpr const char* kSyncPayloadBytes = "weir_sync_payload_bytes_total";
inline constexpr const char* kWorkerInfo = "weir_worker_info";

}  // namespace weir::protocol::metric
