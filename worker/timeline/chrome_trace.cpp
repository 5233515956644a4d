// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "worker/protocol/step_part.h"
#include "worker/schedule/dispatch.h"
#include "worker/timeline/align.h"

namespace weir::timeline {
namespace {

using nlohmann::ordered_json;
using protocol::StepPart;
using schedule::OpKind;

constexpr std::array<std::pair<const char*, const char*>, schedule::kOpKinds> kOps{
    {{"F", "forward"}, {"B", "backward"}, {"W", "weights"}}};

struct Track {
  int process = 0, track = 0;
};
struct Span {
  std::int64_t begin = 0, end = 0;  // nanoseconds
};

// Perfetto takes a track 0 for that with the number of its process, and shows such a track first.
// So no track has the number of a process, of which there are at most 256.
constexpr int kFirstProcess = 1, kFirstTrack = 1000;

// Stage s is on track 1000+3s and its links to stage s+1 on the next two, so that what belongs
// together is shown together.
Track track_of(int replica, int stage) {
  return {kFirstProcess + replica, kFirstTrack + 3 * stage};
}
Track link_track(int replica, int boundary, bool forward) {
  const Track stage = track_of(replica, boundary);
  return {stage.process, stage.track + (forward ? 1 : 2)};
}

double micros(std::int64_t time) {
  return static_cast<double>(time) / 1e3;
}

class Events {
 public:
  void name_process(int replica) {
    events_.push_back({{"ph", "M"},
                       {"name", "process_name"},
                       {"pid", kFirstProcess + replica},
                       {"args", {{"name", "replica " + std::to_string(replica)}}}});
  }
  void name_track(Track track, const std::string& name) {
    events_.push_back({{"ph", "M"},
                       {"name", "thread_name"},
                       {"pid", track.process},
                       {"tid", track.track},
                       {"args", {{"name", name}}}});
  }
  void name_links(int replica, int stage) {
    const std::string name = std::to_string(stage), next = std::to_string(stage + 1);
    name_track(link_track(replica, stage, true), "link " + name + " -> " + next);
    name_track(link_track(replica, stage, false), "link " + next + " -> " + name);
  }
  void slice(Track track, const std::string& name, const char* category, Span span,
             ordered_json args) {
    ordered_json& event = add("X", track, name, span.begin);
    event["cat"] = category;
    event["dur"] = micros(span.end - span.begin);
    event["args"] = std::move(args);
  }
  // phase: "s" start, "t" step, "f" end; each lies in a slice of its track.
  void flow(const char* phase, std::int64_t id, Track track, std::int64_t time) {
    ordered_json& event = add(phase, track, "tensor", time);
    event["cat"] = "flow";
    event["id"] = id;
    if (*phase == 'f') event["bp"] = "e";
  }
  void count(Track track, const std::string& name, std::int64_t time, int value) {
    add("C", track, name, time)["args"] = {{"microBatches", value}};
  }
  void mark(Track track, const std::string& name, std::int64_t time) {
    add("i", track, name, time)["s"] = "p";
  }
  // other: what else a reader may want to know.
  std::string text(const ordered_json& other = nullptr) && {
    ordered_json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}};
    if (!other.is_null()) document["otherData"] = other;
    return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

 private:
  ordered_json& add(const char* phase, Track track, const std::string& name, std::int64_t time) {
    return events_.emplace_back(ordered_json{{"ph", phase},
                                             {"name", name},
                                             {"pid", track.process},
                                             {"tid", track.track},
                                             {"ts", micros(time)}});
  }
  ordered_json events_ = ordered_json::array();
};

// Steps count from 1 for those who look at a trace.
std::int64_t number_of(std::uint32_t step) {
  return std::int64_t{step} + 1;
}

// All of a job on one clock.
class Drawing {
 public:
  explicit Drawing(std::span<const RankRecord> records)
      : records_(records), tensors_(tensors_of(records)), alignment_(align(records, tensors_)) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      shift_[{records[i].replica, records[i].stage}] = alignment_.shift[i];
      for (const Event& event : records[i].events) {
        origin_ = std::min(origin_, event.begin + alignment_.shift[i]);
      }
    }
  }

  std::string text() {
    int named = -1;
    for (const auto& [place, shift] : shift_) {
      if (place.first != std::exchange(named, place.first)) out_.name_process(place.first);
    }
    for (const RankRecord& record : records_) {
      const std::string where = record.node.empty() ? "" : " on " + record.node;
      out_.name_track(track_of(record.replica, record.stage),
                      "stage " + std::to_string(record.stage) +
                          (record.pod.empty() ? "" : ": " + record.pod) + where);
      if (record.stage + 1 < record.stages) out_.name_links(record.replica, record.stage);
      const bool lacks_previous =
          record.stage > 0 && !shift_.contains({record.replica, record.stage - 1});
      if (lacks_previous) out_.name_links(record.replica, record.stage - 1);
    }
    for (const RankRecord& record : records_) draw(record);
    draw_tensors();
    return std::move(out_).text({{"job", records_.empty() ? "" : records_.front().job},
                                 {"clocksWithinMicroseconds", micros(alignment_.half_width)},
                                 {"neighboursWithoutCommonMessages", alignment_.unbounded},
                                 {"neighboursWhoseMessagesContradict", alignment_.contradictions}});
  }

 private:
  std::int64_t time(int replica, int stage, std::int64_t own) const {
    return own + shift_.at({replica, stage}) - origin_;
  }

  // A slice that covers another one comes before it.
  static std::vector<const Event*> in_order(const RankRecord& record) {
    std::vector<const Event*> events;
    for (const Event& event : record.events) events.push_back(&event);
    std::ranges::stable_sort(events, {}, [](const Event* event) {
      return std::tuple(event->begin, -event->end, event->kind != EventKind::kOp);
    });
    return events;
  }

  void draw(const RankRecord& record) {
    const Track track = track_of(record.replica, record.stage);
    const std::string flight = "in flight, stage " + std::to_string(record.stage);
    const bool splits = std::ranges::any_of(record.events, [](const Event& event) {
      return event.kind == EventKind::kOp && event.detail == static_cast<int>(OpKind::kWeights);
    });
    int in_flight = 0;
    for (const Event* event : in_order(record)) {
      const Span span{time(record.replica, record.stage, event->begin),
                      time(record.replica, record.stage, event->end)};
      switch (event->kind) {
        case EventKind::kPart:
          draw_part(track, *event, span, event == &record.events.back());
          break;
        case EventKind::kOp: {
          const auto& [letter, kind] = kOps.at(event->detail);
          out_.slice(track, letter + std::to_string(event->micro_batch), kind, span,
                     {{"microBatch", event->micro_batch}, {"step", number_of(event->step)}});
          const auto op = static_cast<OpKind>(event->detail);
          const bool ends = op == (splits ? OpKind::kWeights : OpKind::kBackward);
          if (op == OpKind::kForward) {
            out_.count(track, flight, span.begin, ++in_flight);
          } else if (ends && in_flight > 0) {  // its forward may be older than the record
            out_.count(track, flight, span.end, --in_flight);
          }
          break;
        }
        case EventKind::kPlan:
          out_.mark(track, "plan " + std::to_string(event->extra), span.begin);
          break;
        case EventKind::kReceived:
        case EventKind::kSent:
          break;  // on the tracks of links
      }
    }
  }

  // under_way: nothing has ended behind it.
  void draw_part(Track track, const Event& event, Span span, bool under_way) {
    const auto part = static_cast<StepPart>(event.detail);
    const bool of_op =
        part == StepPart::kForward || part == StepPart::kBackward || part == StepPart::kWeights;
    if (of_op && !under_way) return;  // a whole op is a slice of its own
    ordered_json args{{"step", number_of(event.step)}};
    if (event.micro_batch != kNoMicroBatch) args["microBatch"] = event.micro_batch;
    out_.slice(track, protocol::name(part), "part", span, std::move(args));
  }

  // By place, kind of op, step and micro-batch.
  using OpKey = std::tuple<int, int, OpKind, std::uint32_t, std::uint16_t>;

  void draw_tensors() {
    std::map<OpKey, std::int64_t> begin_of;  // of an op, in its rank's time
    for (const RankRecord& record : records_) {
      for (const Event& event : record.events) {
        if (event.kind != EventKind::kOp) continue;
        begin_of[{record.replica, record.stage, static_cast<OpKind>(event.detail), event.step,
                  event.micro_batch}] = event.begin;
      }
    }
    std::int64_t id = 0;
    std::map<std::pair<int, int>, std::int64_t> last;  // end of the last slice of a link track
    for (const auto& [key, tensor] : tensors_) {
      if (tensor.received == nullptr) continue;
      const auto& [replica, receiver, direction, step, micro_batch] = key;
      const bool forward = direction == Direction::kForward;
      const Track track = link_track(replica, forward ? receiver - 1 : receiver, forward);
      const int sender = forward ? receiver - 1 : receiver + 1;
      Span span{time(replica, receiver, tensor.received->begin),
                time(replica, receiver, tensor.received->end)};
      // The start is estimated by the rate of the rest: it may lie before the message was there.
      const bool paired = tensor.sent != nullptr;
      const std::int64_t handed = paired ? time(replica, sender, tensor.sent->begin) : span.begin;
      std::int64_t& before =
          last.try_emplace({track.process, track.track}, span.begin).first->second;
      span.begin = std::min(std::max({span.begin, handed, before}), span.end);
      before = span.end;
      ordered_json args{{"microBatch", micro_batch}, {"step", number_of(step)}};
      if (paired) args["withoutCreditMicroseconds"] = micros(tensor.sent->extra);
      out_.slice(track, (forward ? "act " : "grad ") + std::to_string(micro_batch), "send", span,
                 std::move(args));
      const OpKind kind = forward ? OpKind::kForward : OpKind::kBackward;
      const auto made = begin_of.find({replica, sender, kind, step, micro_batch});
      const auto used = begin_of.find({replica, receiver, kind, step, micro_batch});
      if (!paired || made == begin_of.end() || used == begin_of.end()) continue;
      ++id;
      out_.flow("s", id, track_of(replica, sender), handed);
      if (span.end > span.begin) out_.flow("t", id, track, span.begin);
      out_.flow("f", id, track_of(replica, receiver), time(replica, receiver, used->second));
    }
  }

  std::span<const RankRecord> records_;
  std::map<TensorKey, Tensor> tensors_;
  Alignment alignment_;
  std::map<std::pair<int, int>, std::int64_t> shift_;  // by replica and stage
  std::int64_t origin_ = std::numeric_limits<std::int64_t>::max();
  Events out_;
};

}  // namespace

std::string chrome_trace(std::span<const schedule::Timeline* const> replicas) {
  Events events;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const schedule::Timeline& line = *replicas[i];
    const int replica = static_cast<int>(i), stages = static_cast<int>(line.busy.size());
    events.name_process(replica);
    for (int s = 0; s < stages; ++s) {
      events.name_track(track_of(replica, s), "stage " + std::to_string(s));
      if (s + 1 < stages) events.name_links(replica, s);
    }
    for (const schedule::TimedOp& op : line.ops) {
      const auto& [letter, kind] = kOps.at(static_cast<std::size_t>(op.op.kind));
      events.slice(track_of(replica, op.stage), letter + std::to_string(op.op.micro_batch), kind,
                   {op.start.count(), op.end.count()}, {{"microBatch", op.op.micro_batch}});
    }
    for (const schedule::TimedSend& send : line.sends) {
      events.slice(link_track(replica, send.boundary, send.forward),
                   (send.forward ? "act " : "grad ") + std::to_string(send.micro_batch), "send",
                   {send.start.count(), send.end.count()}, {{"microBatch", send.micro_batch}});
    }
  }
  return std::move(events).text();
}

std::string chrome_trace(std::span<const RankRecord> records) {
  return Drawing(records).text();
}

}  // namespace weir::timeline
