// SPDX-License-Identifier: Apache-2.0
#include "worker/app/recorded_steps.h"

#include <algorithm>
#include <limits>

#include "worker/timeline/codec.h"

namespace weir::app {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

std::uint32_t step_number(std::int64_t step) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(step, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

RecordNames record_names(const Options& options) {
  return {.job = options.job_namespace + "/" + options.job_name,
          .pod = options.pod,
          .node = options.node};
}

timeline::RankRecord recorded_steps(const engine::Engine& engine, const Clock& clock,
                                    const RecordNames& names, std::int64_t from, std::int64_t to,
                                    bool open) {
  const engine::Statistics placed = engine.statistics();
  const std::int64_t now = duration_cast<nanoseconds>(clock.now().time_since_epoch()).count();
  timeline::RankRecord record{.job = names.job,
                              .pod = names.pod,
                              .node = names.node,
                              .replica = placed.replica,
                              .replicas = placed.replicas,
                              .stage = placed.stage,
                              .stages = placed.stages,
                              .revision = placed.epoch};
  if (placed.stage < 0) return record;
  record.wall_less_own =
      duration_cast<nanoseconds>(clock.system_now().time_since_epoch()).count() - now;
  if (to >= from && to >= 0)
    record.events = engine.flight().read(step_number(from), step_number(to));
  const engine::UnderWay under_way = engine.flight().under_way();
  if (open && under_way.stage >= 0 && under_way.since > 0) {
    // `since` may be that of the part before, which is among the events.
    std::int64_t begin = under_way.since;
    for (const timeline::Event& event : record.events) {
      const bool of_engine =
          event.kind == timeline::EventKind::kPart || event.kind == timeline::EventKind::kOp;
      if (of_engine) begin = std::max(begin, event.end);
    }
    record.events.push_back({.begin = std::min(begin, now),
                             .end = now,
                             .step = under_way.step,
                             .micro_batch = under_way.micro_batch,
                             .kind = timeline::EventKind::kPart,
                             .detail = static_cast<std::uint8_t>(under_way.part)});
  }
  return record;
}

protocol::Steps answer(const protocol::StepsWanted& wanted, const engine::Engine& engine,
                       const Clock& clock, const RecordNames& names) {
  timeline::RankRecord record =
      recorded_steps(engine, clock, names, wanted.from, wanted.to, wanted.open);
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, wanted.most_bytes));
  timeline::keep_newest(record, most);
  return {.id = wanted.id, .octets = record.events.empty() ? "" : timeline::encode(record)};
}

}  // namespace weir::app
