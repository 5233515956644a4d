// SPDX-License-Identifier: Apache-2.0
#include "worker/app/exposition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "worker/base/units.h"
#include "worker/protocol/metric_names.h"

namespace weir::app {
namespace {

using engine::Statistics;
using telemetry::Family;
using telemetry::Labels;
using telemetry::Sample;
using telemetry::Type;
namespace metric = protocol::metric;

class Builder {
 public:
  explicit Builder(const WorkerLabels& labels)
      : common_{{"pipeline_namespace", labels.job_namespace},
                {"pipeline_job", labels.job_name},
                {"worker", labels.worker}} {}

  void begin(const char* name, const char* help, Type type) {
    families_.push_back({.name = name, .help = help, .type = type});
  }
  void add(double value, Labels labels = {}) {
    families_.back().samples.push_back({.labels = with_common(std::move(labels)), .value = value});
  }
  void add(telemetry::Histogram histogram, Labels labels = {}) {
    families_.back().samples.push_back(
        {.labels = with_common(std::move(labels)), .histogram = std::move(histogram)});
  }
  void gauge(const char* name, const char* help, double value, Labels labels = {}) {
    begin(name, help, Type::kGauge);
    add(value, std::move(labels));
  }
  void counter(const char* name, const char* help, double value, Labels labels = {}) {
    begin(name, help, Type::kCounter);
    add(value, std::move(labels));
  }
  std::vector<Family> take() { return std::move(families_); }

 private:
  Labels with_common(Labels labels) const {
    labels.insert(labels.begin(), common_.begin(), common_.end());
    return labels;
  }

  const Labels common_;
  std::vector<Family> families_;
};

template <std::size_t kBounds>
telemetry::Histogram histogram_of(const engine::TimeHistogram<kBounds>& from) {
  return {.bounds = {from.bounds.begin(), from.bounds.end()},
          .counts = {from.counts.begin(), from.counts.end()},
          .sum = from.sum};
}

telemetry::Histogram transfer_histogram(const transport::LinkCounters& counters) {
  constexpr double kFirstBound = 1e-4;  // seconds; 100 us x 2^i
  telemetry::Histogram histogram;
  double bound = kFirstBound;
  for (std::size_t i = 0; i < counters.histogram.size(); ++i, bound *= 2) {
    if (i + 1 < counters.histogram.size()) histogram.bounds.push_back(bound);
    histogram.counts.push_back(static_cast<std::uint64_t>(counters.histogram[i]));
  }
  histogram.sum = counters.transfer_seconds_sum;
  return histogram;
}

void add_process(Builder& out, const WorkerLabels& labels, const Statistics& s) {
  const bool placed = s.stage >= 0;
  out.gauge(
      metric::kWorkerInfo,
      "facts; threads: that compute on the device cpu; replica and stage are empty without a stage",
      1,
      {{"replica", placed ? std::to_string(s.replica) : ""},
       {"stage", placed ? std::to_string(s.stage) : ""},
       {"worker_group", labels.worker_group},
       {"node_name", labels.node},
       {"device", labels.device},
       {"transport", labels.transport},
       {"version", labels.version},
       {"emulated", labels.emulated ? "true" : "false"},
       {"threads", std::to_string(labels.threads)}});
  out.gauge(metric::kStep, "completed steps", static_cast<double>(s.step));
  out.gauge("weir_plan_epoch", "revision of the plan in force", s.epoch);
  if (placed && std::isfinite(s.loss))
    out.gauge("weir_loss", "of the last step; last stage only", s.loss);
  if (s.validation_step >= 0) {
    if (std::isfinite(s.validation_loss)) {
      out.gauge("weir_validation_loss", "of the last validation, on data that is not trained on",
                s.validation_loss);
    }
    out.gauge("weir_validation_step", "completed steps before the last validation",
              static_cast<double>(s.validation_step));
    out.begin("weir_validation_seconds", "all forwards of a validation", Type::kHistogram);
    out.add(histogram_of(s.validation));
  }
  out.begin(metric::kIterationSeconds, "start of a step until its parameters are updated",
            Type::kHistogram);
  out.add(histogram_of(s.iteration));
  out.counter("weir_samples_total", "samples of completed steps, counted by stage 0",
              static_cast<double>(s.samples));
  out.counter("weir_tokens_total", "tokens of completed steps, counted by stage 0",
              static_cast<double>(s.tokens));
  out.counter("weir_skipped_steps_total",
              "steps that changed no parameter: their loss or gradient was no finite number",
              static_cast<double>(s.skipped_steps));
  out.counter("weir_compressed_steps_total",
              "steps in which this worker sent or received tensors in fewer bits",
              static_cast<double>(s.compressed_steps));
  out.begin("weir_checkpoint_seconds", "from the copy until this worker's files lie on disk",
            Type::kHistogram);
  out.add(histogram_of(s.save));
  out.counter("weir_checkpoint_failures_total", "saves of the job that came to nothing",
              static_cast<double>(s.checkpoint_failures));
  if (s.checkpoint_step >= 0) {
    out.gauge("weir_checkpoint_last_step", "last complete checkpoint, once there is one",
              static_cast<double>(s.checkpoint_step));
  }
  if (s.copied_bytes >= 0) {
    out.counter("weir_recovery_copy_bytes_total",
                "bytes of a neighbor's state that this worker has fetched",
                static_cast<double>(s.copied_bytes));
    out.counter("weir_recovery_copy_wait_seconds_total",
                "time that training stood still for copies of this worker's state",
                s.snapshot_wait_seconds);
    out.gauge("weir_recovery_host_bytes",
              "memory of the copies that this worker keeps, all of them",
              static_cast<double>(s.snapshot_bytes));
  }
  if (s.copy_step >= 0) {
    out.gauge("weir_recovery_copy_step", "newest copy of a neighbor's state that this worker keeps",
              static_cast<double>(s.copy_step));
  }
  out.counter("weir_rejoins_total", "generations that this worker joined after its first",
              static_cast<double>(s.rejoins));
}

void add_stage(Builder& out, const Statistics& s) {
  const std::string stage = std::to_string(s.stage);
  out.gauge("weir_plan_k", "groups of kFkB in force", s.k);
  out.gauge("weir_plan_cap", "most micro-batches in flight on this stage", s.cap);
  out.begin(metric::kStageOpSeconds,
            "forward, backward and optimizer; of split backwards B is the gradient of the input, W "
            "the weights",
            Type::kHistogram);
  out.add(histogram_of(s.forward), {{"stage", stage}, {"op", "F"}});
  out.add(histogram_of(s.backward), {{"stage", stage}, {"op", "B"}});
  if (s.weights.sum > 0) out.add(histogram_of(s.weights), {{"stage", stage}, {"op", "W"}});
  out.add(histogram_of(s.optimizer), {{"stage", stage}, {"op", "O"}});
  using protocol::StepPart;
  out.begin("weir_stage_idle_seconds_total", "waiting, by cause", Type::kCounter);
  const auto waits = [&](std::initializer_list<StepPart> parts) {
    double seconds = 0;
    for (const StepPart part : parts) seconds += s.seconds_of(part);
    return seconds;
  };
  out.add(waits({StepPart::kForwardLate, StepPart::kForwardLink, StepPart::kVerdict}),
          {{"stage", stage}, {"cause", "wait_fwd"}});
  out.add(waits({StepPart::kGradientLate, StepPart::kGradientLink, StepPart::kNote}),
          {{"stage", stage}, {"cause", "wait_bwd"}});
  out.add(waits({StepPart::kFullLink, StepPart::kFullPeer}),
          {{"stage", stage}, {"cause", "credit"}});
  out.add(s.sync_seconds, {{"stage", stage}, {"cause", "sync"}});
  out.begin("weir_step_part_seconds_total",
            "all time of the engine, by what it did; the parts of a step add up to its time",
            Type::kCounter);
  for (std::size_t i = 0; i < protocol::kStepParts; ++i) {
    out.add(s.part_seconds[i], {{"stage", stage}, {"part", protocol::kStepPartNames[i]}});
  }
  out.begin("weir_step_fill_seconds_total",
            "waits for the first micro-batch of a step, in both directions, and for its header",
            Type::kCounter);
  out.add(s.fill_seconds, {{"stage", stage}});
  out.gauge("weir_inflight_peak", "most micro-batches in flight since the stage was built",
            s.in_flight_peak, {{"stage", stage}});
  out.gauge("weir_activation_bytes_peak",
            "most bytes kept from forward to the end of the backward since the stage was built",
            static_cast<double>(s.activation_bytes_peak), {{"stage", stage}});
  if (s.stage == 0) {
    out.counter(metric::kReplicaStepSeconds,
                "time of all steps without waiting for replicas; stage 0 only",
                s.iteration.sum - s.sync_seconds, {{"replica", std::to_string(s.replica)}});
  }
}

void add_sync(Builder& out, const Statistics& s) {
  constexpr std::array kKinds{"exact", "partial", "single"};
  out.begin("weir_sync_wait_seconds_total", "waiting for the other replicas", Type::kCounter);
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    out.add(s.sync_by_kind[i].wait_seconds, {{"kind", kKinds[i]}});
  }
  out.begin("weir_sync_rounds_total", "steps done together with all replicas, a group, or alone",
            Type::kCounter);
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    out.add(static_cast<double>(s.sync_by_kind[i].rounds), {{"kind", kKinds[i]}});
  }
  const std::int64_t raw = s.sync_bytes - s.packed_sync_bytes;
  out.begin(metric::kSyncBytes, "sent to other replicas for sums, on the wire", Type::kCounter);
  out.add(static_cast<double>(raw), {{"encoding", "raw"}});
  out.add(static_cast<double>(s.packed_sync_bytes), {{"encoding", "packed"}});
  out.begin(metric::kSyncPayloadBytes, "the same before packing", Type::kCounter);
  out.add(static_cast<double>(raw), {{"encoding", "raw"}});
  out.add(static_cast<double>(s.packed_sync_payload), {{"encoding", "packed"}});
  out.begin("weir_sync_yield_seconds_total",
            "sums and averages waited for tensors between stages on the same port", Type::kCounter);
  out.add(s.sync_send_yield_seconds, {{"dir", "out"}});
  out.add(s.sync_read_yield_seconds, {{"dir", "in"}});
  out.begin("weir_sync_group_size", "members of the groups that this replica averaged in",
            Type::kHistogram);
  out.add({.bounds = {s.group_sizes.kBounds.begin(), s.group_sizes.kBounds.end()},
           .counts = {s.group_sizes.counts.begin(), s.group_sizes.counts.end()},
           .sum = s.group_sizes.sum});
  out.gauge("weir_sync_staleness", "progress ahead of the slowest replica at the last average",
            s.staleness, {{"replica", std::to_string(s.replica)}});
  if (s.sync_bytes_per_second > 0) {
    out.gauge(
        metric::kSyncBusBandwidth,
        "bytes per second to other replicas while all took part; Partial: bandwidth of its node",
        s.sync_bytes_per_second, {{"replica", std::to_string(s.replica)}});
  }
}

Labels labels_of(const transport::LinkReport& link) {
  return {{"replica", std::to_string(link.replica)},
          {"link", link_name(link.boundary)},
          {"dir", direction_name(link.channel)},
          {"from_node", link.from_node},
          {"to_node", link.to_node}};
}

Labels labels_of(const engine::SyncLink& link, const Statistics& s) {
  return {{"replica", std::to_string(s.replica)},
          {"link", sync_link_name(s.stage, link.from, s.replica)},
          {"dir", "sync"},
          {"from_node", link.from_node},
          {"to_node", link.to_node}};
}

void add_connection_probes(Builder& out, const std::vector<transport::LinkReport>& links) {
  out.begin("weir_link_connection_probes_total",
            "trials of another number of connections, by their result; shared: more carried more, "
            "but others use the port, too",
            Type::kCounter);
  for (const transport::LinkReport& link : links) {
    const transport::ConnectionProbes& probes = link.counters.connection_probes;
    const std::pair<const char*, std::int64_t> results[] = {{"raised", probes.raised},
                                                            {"kept", probes.kept},
                                                            {"lowered", probes.lowered},
                                                            {"shared", probes.shared}};
    for (const auto& [result, count] : results) {
      Labels labels = labels_of(link);
      labels.emplace_back("result", result);
      out.add(static_cast<double>(count), std::move(labels));
    }
  }
}

// Links between stages are reported by their senders, links between replicas by their receivers.
void add_links(Builder& out, const std::vector<transport::LinkReport>& links, const Statistics& s) {
  const bool placed = s.stage >= 0 && !s.sync_links.empty();
  if (links.empty() && !placed) return;
  const auto each = [&](const char* name, const char* help, Type type, auto value_of) {
    out.begin(name, help, type);
    for (const transport::LinkReport& link : links) {
      out.add(value_of(link.counters), labels_of(link));
    }
  };
  const auto between_replicas = [&](auto value_of) {
    if (!placed) return;
    for (const engine::SyncLink& link : s.sync_links) out.add(value_of(link), labels_of(link, s));
  };
  using Counters = transport::LinkCounters;
  each(metric::kLinkBytes, "payload of the transfers that were timed", Type::kCounter,
       [](const Counters& c) { return static_cast<double>(c.bytes); });
  between_replicas([](const engine::SyncLink& link) { return link.bytes; });
  each(metric::kLinkBusySeconds, "time in which those bytes were on their way", Type::kCounter,
       [](const Counters& c) { return to_seconds(c.busy); });
  between_replicas([](const engine::SyncLink& link) { return link.busy_seconds; });
  if (links.empty()) return;
  each("weir_link_credit_wait_seconds_total", "a message was ready, the peer had no slot",
       Type::kCounter, [](const Counters& c) { return to_seconds(c.credit_wait); });
  each("weir_link_transfer_seconds", "of one message, timed by its receiver", Type::kHistogram,
       [](const Counters& c) { return transfer_histogram(c); });
  each(metric::kLinkRttSeconds, "smallest of the last 16 round trips; 0 = unknown", Type::kGauge,
       [](const Counters& c) { return c.rtt_seconds; });
  each("weir_link_connections", "connections that share the messages of the link", Type::kGauge,
       [](const Counters& c) { return static_cast<double>(c.connections); });
  add_connection_probes(out, links);
  const auto of_tensors = [&](const char* name, const char* help, auto value_of) {
    const auto sent = [&s](const transport::LinkReport& link) -> const engine::SentTensors& {
      return s.sent[static_cast<std::size_t>(link.channel)];
    };
    const auto known = [&](const transport::LinkReport& link) { return sent(link).bits > 0; };
    if (std::ranges::none_of(links, known)) return;  // no step has been done
    out.begin(name, help, Type::kGauge);
    for (const transport::LinkReport& link : links) {
      if (known(link)) out.add(value_of(sent(link)), labels_of(link));
    }
  };
  of_tensors("weir_link_codec_bits", "bits of a number between stages on the wire",
             [](const engine::SentTensors& sent) { return sent.bits; });
  of_tensors("weir_link_quantization_error_ratio",
             "relative error of the tensors of the last step by their codec; 0: none, or BF16",
             [](const engine::SentTensors& sent) { return sent.error_ratio; });
  of_tensors("weir_link_zeroed_ratio",
             "part of the numbers of the last step that their codec turned into 0",
             [](const engine::SentTensors& sent) { return sent.zeroed_ratio; });
}

// Times of links that use NCCL, if it reports them. Waiting for the receiver's memory means that
// the peer is late; waiting for the own GPU means neither a late peer nor a slow link.
void add_nccl_times(Builder& out, const std::vector<transport::LinkReport>& links) {
  const auto reported = [](const transport::LinkReport& link) {
    return link.counters.nccl.has_value();
  };
  if (!std::ranges::any_of(links, reported)) return;
  out.begin(
      "weir_link_nccl_seconds_total",
      "time of the sender's NCCL: on the network, else waiting for the peer, else for its GPU; "
      "its kernels by the GPU's clock and by CUDA events",
      Type::kCounter);
  for (const transport::LinkReport& link : links) {
    if (!reported(link)) continue;
    const transport::TransferTimes& times = *link.counters.nccl;
    const std::pair<const char*, std::chrono::nanoseconds> states[] = {{"network", times.network},
                                                                       {"peer", times.peer},
                                                                       {"gpu", times.gpu},
                                                                       {"kernel", times.kernel},
                                                                       {"events", times.events}};
    for (const auto& [state, time] : states) {
      Labels labels = labels_of(link);
      labels.emplace_back("state", state);
      out.add(to_seconds(time), std::move(labels));
    }
  }
}

void add_emulation(Builder& out, const Statistics& s) {
  out.begin("weir_emulated_lateness_seconds", "wake-ups of emulated ops after their deadline",
            Type::kHistogram);
  out.add(histogram_of(s.lateness));
  out.counter("weir_emulated_overruns_total", "ops whose real work took longer than the profile",
              static_cast<double>(s.overruns));
}

}  // namespace

std::string link_name(int boundary) {
  return std::to_string(boundary) + "-" + std::to_string(boundary + 1);
}

std::string sync_link_name(int stage, int from, int to) {
  return "s" + std::to_string(stage) + ":r" + std::to_string(from) + "-r" + std::to_string(to);
}

const char* direction_name(transport::Channel channel) {
  return channel == transport::Channel::kForward ? "fwd" : "bwd";
}

std::vector<Family> worker_families(const WorkerLabels& labels, const Statistics& statistics,
                                    const std::vector<transport::LinkReport>& links,
                                    std::int64_t memory_free, std::int64_t log_dropped) {
  Builder out(labels);
  add_process(out, labels, statistics);
  if (log_dropped >= 0) {
    out.counter("weir_log_dropped_total", "steps that the training log's disk did not take",
                static_cast<double>(log_dropped));
  }
  if (statistics.stage >= 0) add_stage(out, statistics);
  if (statistics.stage >= 0) add_sync(out, statistics);
  if (statistics.stage >= 0 && memory_free >= 0) {
    out.gauge("weir_gpu_free_bytes", "free memory of the device; on a CPU, of the container",
              static_cast<double>(memory_free), {{"stage", std::to_string(statistics.stage)}});
  }
  add_links(out, links, statistics);
  add_nccl_times(out, links);
  if (labels.emulated) add_emulation(out, statistics);
  return out.take();
}

}  // namespace weir::app
