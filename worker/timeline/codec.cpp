// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/codec.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "worker/base/digest.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/dispatch.h"

namespace weir::timeline {
namespace {

constexpr std::string_view kMagic = "WEIRREC1";
constexpr std::size_t kHeadBytes = 16;
constexpr std::size_t kMostText = 1024;

template <class T>
void put(std::string& out, T value) {
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(bits & 0xFFU));
    if constexpr (sizeof(T) > 1) bits = static_cast<std::make_unsigned_t<T>>(bits >> 8U);
  }
}

void put_text(std::string& out, std::string_view text) {
  text = text.substr(0, kMostText);
  put(out, static_cast<std::uint16_t>(text.size()));
  out += text;
}

std::uint32_t checksum(std::string_view body) {
  return crc32c(std::as_bytes(std::span(body)));
}

// Reads numbers in turn. After the first one that does not fit all are 0, and `ok` is false.
class Reader {
 public:
  Reader(std::string_view octets, std::size_t at) : octets_(octets), at_(at) {}

  template <class T>
  T number() {
    if (!has(sizeof(T))) return 0;
    std::make_unsigned_t<T> bits = 0;
    for (std::size_t i = sizeof(T); i > 0; --i) {
      const auto byte = static_cast<unsigned char>(octets_[at_ + i - 1]);
      if constexpr (sizeof(T) > 1) bits = static_cast<std::make_unsigned_t<T>>(bits << 8U);
      bits = static_cast<std::make_unsigned_t<T>>(bits | byte);
    }
    at_ += sizeof(T);
    return static_cast<T>(bits);
  }
  std::string text() {
    const std::size_t size = number<std::uint16_t>();
    if (!has(size)) return "";
    at_ += size;
    return std::string(octets_.substr(at_ - size, size));
  }
  bool ok() const { return ok_; }
  std::size_t at() const { return at_; }
  std::size_t left() const { return octets_.size() - at_; }

 private:
  bool has(std::size_t bytes) {
    ok_ = ok_ && bytes <= left();
    return ok_;
  }
  std::string_view octets_;
  std::size_t at_;
  bool ok_ = true;
};

Error at(std::size_t byte, const std::string& what) {
  return invalid("byte " + std::to_string(byte) + ": " + what);
}

int most_detail(EventKind kind) {
  switch (kind) {
    case EventKind::kPart:
      return static_cast<int>(protocol::kStepParts) - 1;
    case EventKind::kOp:
      return static_cast<int>(schedule::kOpKinds) - 1;
    case EventKind::kReceived:
    case EventKind::kSent:
      return static_cast<int>(Direction::kBackward);
    case EventKind::kPlan:
      return 0;
  }
  return -1;
}

Result<Event> read_event(Reader& in) {
  const std::size_t start = in.at();
  Event event{.begin = in.number<std::int64_t>(),
              .end = in.number<std::int64_t>(),
              .extra = in.number<std::int64_t>(),
              .step = in.number<std::uint32_t>(),
              .micro_batch = in.number<std::uint16_t>()};
  const int kind = in.number<std::uint8_t>();
  event.detail = in.number<std::uint8_t>();
  if (kind >= kEventKinds) return at(start, "an event of unknown kind " + std::to_string(kind));
  event.kind = static_cast<EventKind>(kind);
  if (event.detail > most_detail(event.kind)) {
    return at(start, "an event of unknown detail " + std::to_string(event.detail));
  }
  if (event.begin < -kLongestTime || event.end > kLongestTime || event.end < event.begin ||
      event.extra < 0 || event.extra > kLongestTime) {
    return at(start, "an event with an impossible time");
  }
  return event;
}

Result<RankRecord> read_body(std::string_view octets, std::size_t start) {
  Reader in(octets, start);
  RankRecord record;
  record.wall_less_own = in.number<std::int64_t>();
  record.revision = in.number<std::uint32_t>();
  record.replica = in.number<std::uint16_t>();
  record.replicas = in.number<std::uint16_t>();
  record.stage = in.number<std::uint16_t>();
  record.stages = in.number<std::uint16_t>();
  record.job = in.text();
  record.pod = in.text();
  record.node = in.text();
  const auto count = in.number<std::uint32_t>();
  if (!in.ok()) return at(in.at(), "the record ends in its head");
  const bool placed = record.replica < record.replicas && record.stage < record.stages &&
                      record.replicas <= kMostReplicas && record.stages <= kMostStages;
  if (!placed) return at(start, "the place of the rank is impossible");
  if (record.wall_less_own < -kMostWallLessOwn || record.wall_less_own > kMostWallLessOwn) {
    return at(start, "the clock of the rank is impossible");
  }
  if (in.left() != count * kEventBytes) {
    return at(in.at(), std::to_string(count) + " events do not fit into the " +
                           std::to_string(in.left()) + " bytes that are left");
  }
  record.events.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    WEIR_TRY(const Event event, read_event(in));
    record.events.push_back(event);
  }
  return record;
}

}  // namespace

std::string encode(const RankRecord& record) {
  std::string body;
  put(body, record.wall_less_own);
  put(body, record.revision);
  for (const int number : {record.replica, record.replicas, record.stage, record.stages}) {
    put(body, static_cast<std::uint16_t>(number));
  }
  for (const std::string& text : {record.job, record.pod, record.node}) put_text(body, text);
  const std::size_t most = (kMostBodyBytes - body.size()) / kEventBytes;
  const std::size_t count = std::min(record.events.size(), most);
  put(body, static_cast<std::uint32_t>(count));
  for (const Event& event : std::span(record.events).first(count)) {
    put(body, event.begin);
    put(body, event.end);
    put(body, event.extra);
    put(body, event.step);
    put(body, event.micro_batch);
    put(body, static_cast<std::uint8_t>(event.kind));
    put(body, event.detail);
  }
  std::string out(kMagic);
  put(out, static_cast<std::uint32_t>(body.size()));
  put(out, checksum(body));
  return out + body;
}

void keep_newest(RankRecord& record, std::size_t bytes) {
  RankRecord empty = record;
  empty.events.clear();
  const std::size_t head = encode(empty).size();
  const std::size_t most = bytes > head ? (bytes - head) / kEventBytes : 0;
  std::vector<Event>& events = record.events;
  if (events.size() <= most) return;
  const std::uint32_t cut = events[events.size() - most - 1].step;
  const auto is_newer = [cut](const Event& event) { return event.step > cut; };
  if (std::ranges::any_of(events, is_newer)) {
    std::erase_if(events, std::not_fn(is_newer));
  }
  // Tensors of a step may stand among events of the next one.
  if (events.size() > most)
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(most));
}

Result<std::vector<RankRecord>> decode(std::string_view octets) {
  std::vector<RankRecord> records;
  std::size_t start = 0;
  do {
    if (octets.substr(start, kMagic.size()) != kMagic) return at(start, "no record begins here");
    Reader head(octets, start + kMagic.size());
    const auto length = head.number<std::uint32_t>();
    const auto sum = head.number<std::uint32_t>();
    if (!head.ok()) return at(octets.size(), "the record ends in its head");
    if (length > kMostBodyBytes || length > head.left()) {
      return at(start + kMagic.size(), "a length of " + std::to_string(length) +
                                           " is impossible: " + std::to_string(head.left()) +
                                           " bytes are left");
    }
    const std::size_t begin = start + kHeadBytes;
    if (checksum(octets.substr(begin, length)) != sum) {
      return at(begin, "the record is damaged: its checksum is another one");
    }
    WEIR_TRY(RankRecord record, read_body(octets.substr(0, begin + length), begin));
    records.push_back(std::move(record));
    start = begin + length;
  } while (start < octets.size());
  return records;
}

std::string cut_to(std::string_view octets, std::size_t bytes) {
  if (octets.size() <= bytes) return std::string(octets);
  auto records = decode(octets);
  if (!records) return "";
  std::string cut;
  for (RankRecord& record : *records) {
    keep_newest(record, bytes / records->size());
    if (!record.events.empty()) cut += encode(record);
  }
  return cut;
}

}  // namespace weir::timeline
