// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/operator_line.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "worker/base/bounded_queue.h"
#include "worker/base/digest.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/coordinator/control_api.h"
#include "worker/http/server.h"
#include "worker/protocol/codec.h"

namespace weir::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr char kOperatorLine[] = "operator line";
constexpr std::chrono::seconds kLongPoll{50};  // below the usual idle limit of proxies, 60 s
constexpr std::chrono::seconds kAnswerTime{30}, kClaimTime{5};
constexpr std::chrono::milliseconds kFlushStep{50};
constexpr int kTraceTries = 4;  // of one part
constexpr std::chrono::milliseconds kTracePause{2000};
// Time since the last answer to a poll. Each poll is answered within 50 s, and some answers may be
// lost.
constexpr std::chrono::seconds kOutOfTouch{3 * kLongPoll};

std::uint64_t jitter_seed(std::string_view user) {
  return mix_seed(mix_seed(0, user), random_bytes(8));
}

// Logs a repeated failure as debug, every tenth as a warning.
class Complaints {
 public:
  void add(const char* what, const std::string& reason) {
    ++count_;
    if (count_ == 1 || count_ % 10 == 0) {
      log_warn(kOperatorLine, what, {{"reason", reason}, {"repetition", count_}});
    } else {
      log_debug(kOperatorLine, what, {{"reason", reason}});
    }
  }
  void reset() { count_ = 0; }

 private:
  int count_ = 0;
};

std::uint32_t revision_of_etag(const http::Response& response) {
  std::string digits = header_value(response, "ETag");
  std::erase(digits, '"');
  std::uint32_t revision = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), revision);
  return revision;
}

std::int64_t term_told(const http::Response& response) {
  const std::string digits = header_value(response, protocol::kTermHeader);
  std::int64_t term = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), term);
  return term;
}

class OperatorSource final : public PlanSource {
 public:
  OperatorSource(const LineOptions& options, const TransportFactory& factory, Clock& clock)
      : clock_(clock), poll_api_(options, factory, clock), post_api_(options, factory, clock) {}

  ~OperatorSource() override {
    poll_thread_.request_stop();
    post_thread_.request_stop();
    wake_.close();
  }

  void start(Callbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    poll_thread_ = std::jthread([this](const std::stop_token& stop) { run_poll(stop); });
    post_thread_ = std::jthread([this](const std::stop_token& stop) { run_posts(stop); });
  }

  void register_members(protocol::Register body) override {
    const std::lock_guard lock(outbox_mutex_);
    register_ = std::move(body);
    wake_.try_push({});  // if the queue is full, the thread is already awake
  }
  void report(protocol::Report body) override {
    const std::lock_guard lock(outbox_mutex_);
    report_ = std::move(body);
    wake_.try_push({});
  }
  void post_trace(std::string id, std::string octets) override {
    const std::lock_guard lock(outbox_mutex_);
    trace_ = Trace{.id = std::move(id), .octets = std::move(octets)};
    wake_.try_push({});
  }
  void post_flight(const protocol::FlightDump& dump) override {
    const std::lock_guard lock(outbox_mutex_);
    flight_ = Trace{.id = dump.id,
                    .more = "&kind=flight&why=" + http::percent_encoded(dump.why),
                    .octets = dump.octets};
    wake_.try_push({});
  }
  void have(std::uint32_t revision) override {
    const std::lock_guard lock(outbox_mutex_);
    have_ = std::max(have_, revision);
  }

  bool in_touch() const override {
    const auto last = last_answer_.load();
    return last != 0 && clock_.now().time_since_epoch().count() - last <
                            std::chrono::nanoseconds(kOutOfTouch).count();
  }

  void flush(std::chrono::steady_clock::time_point deadline) override {
    while (clock_.now() < deadline) {
      {
        const std::lock_guard lock(outbox_mutex_);
        if (ended_ || (!report_ && !posting_)) return;
      }
      clock_.sleep_until(std::min(clock_.now() + kFlushStep, deadline), {});
    }
  }

 private:
  struct Trace {
    std::string id;
    std::string more = {};  // of the query
    std::string octets;
    std::size_t part = 0;  // the next one to be sent
    int tries = 0;         // of this part
  };

  // ---- plans ----
  void run_poll(const std::stop_token& stop) {
    BackOff back_off(jitter_seed("poll"));
    Complaints complaints;
    while (!stop.stop_requested() && !ended()) {
      const auto outcome = poll_api_.send(
          http::Method::kGet,
          "plan?have=" + std::to_string(known()) + "&wait=" + std::to_string(kLongPoll.count()), "",
          kLongPoll + kAnswerTime, stop);
      if (outcome.verdict == Verdict::kDone) {
        last_answer_ = clock_.now().time_since_epoch().count();
        complaints.reset();
        const bool progress = outcome.response.status != 200 || take_plan(outcome.response);
        if (progress) {
          back_off.reset();
          continue;
        }
      } else if (!go_on(outcome)) {
        return;
      } else {
        complaints.add("no answer to the request for plans", outcome.reason);
      }
      clock_.sleep_until(clock_.now() + back_off.next(outcome.retry_after), stop);
    }
  }

  // Returns false for a revision that we already have: to ask again at once would spin.
  bool take_plan(const http::Response& response) {
    auto plan = protocol::decode_plan(response.body);
    const std::uint32_t revision = plan ? plan->revision : revision_of_etag(response);
    if (revision <= known()) return false;
    have(revision);
    if (plan) {
      callbacks_.on_plan(*std::move(plan));
    } else if (callbacks_.on_bad_plan) {
      callbacks_.on_bad_plan(revision, plan.error().message);
    }
    return true;
  }

  std::uint32_t known() const {
    const std::lock_guard lock(outbox_mutex_);
    return have_;
  }

  // ---- register and reports ----
  void run_posts(const std::stop_token& stop) {
    BackOff back_off(jitter_seed("post"));
    Complaints complaints;
    while (!stop.stop_requested() && !ended()) {
      auto [registration, last_report] = take_outbox();
      if (!registration && !last_report) {
        if (send_trace(stop)) continue;
        if (stop.stop_requested() || ended()) return;
        wake_.pop(std::chrono::steady_clock::now() + 1s, stop);
        continue;
      }
      const char* call = registration ? "register" : "report";
      const auto outcome = post_api_.send(
          http::Method::kPost, call,
          registration ? protocol::encode(*registration) : protocol::encode(*last_report),
          kAnswerTime, stop);
      if (outcome.verdict == Verdict::kDone || outcome.verdict == Verdict::kDrop) {
        if (outcome.verdict == Verdict::kDrop) {
          log_error(kOperatorLine, "request dropped", {{"call", call}, {"reason", outcome.reason}});
        }
        if (!registration) {
          last_report.reset();
          take_wish(outcome.response.body);
        }
        put_back(std::nullopt, std::move(last_report));
        back_off.reset();
        complaints.reset();
        continue;
      }
      put_back(std::move(registration), std::move(last_report));
      if (!go_on(outcome)) return;
      if (outcome.verdict == Verdict::kRegisterAgain) {
        log_info(kOperatorLine, "a new leader wants /register again");
        back_off.reset();  // the operator is reachable
        callbacks_.on_register_wanted();
      } else {
        complaints.add("request not accepted", std::string(call) + ": " + outcome.reason);
      }
      clock_.sleep_until(clock_.now() + back_off.next(outcome.retry_after), stop);
    }
  }

  // An operator of an older release answers a text, and asks for nothing.
  void take_wish(const std::string& body) {
    const auto answer = protocol::decode_report_answer(body);
    if (!answer || !answer->trace || !callbacks_.on_trace_wanted) return;
    const int steps = answer->trace->steps;
    if (steps < 1 || steps > protocol::kMostTraceSteps) return;
    callbacks_.on_trace_wanted(*answer->trace);
  }

  // Sends one part of the trace that waits, if one does, or of a dump. Nobody waits for them long,
  // so they are given up after a few tries.
  bool send_trace(const std::stop_token& stop) {
    return send_part(trace_, stop) || send_part(flight_, stop);
  }
  bool send_part(std::optional<Trace>& waiting, const std::stop_token& stop) {
    std::optional<Trace> trace;
    {
      const std::lock_guard lock(outbox_mutex_);
      trace.swap(waiting);
    }
    if (!trace) return false;
    const std::size_t size = trace->octets.size();
    const std::size_t parts = std::max<std::size_t>(
        1, (size + protocol::kMaxTracePartBytes - 1) / protocol::kMaxTracePartBytes);
    const auto outcome = post_api_.send(
        http::Method::kPost,
        "trace?id=" + http::percent_encoded(trace->id) + "&part=" + std::to_string(trace->part) +
            "&parts=" + std::to_string(parts) + trace->more,
        trace->octets.substr(trace->part * protocol::kMaxTracePartBytes,
                             protocol::kMaxTracePartBytes),
        kAnswerTime, stop);
    if (!go_on(outcome)) return true;
    if (outcome.verdict == Verdict::kDone) {
      ++trace->part;
      trace->tries = 0;
    } else if (outcome.verdict == Verdict::kDrop || ++trace->tries == kTraceTries) {
      log_warn(kOperatorLine, "trace dropped", {{"id", trace->id}, {"reason", outcome.reason}});
      return true;
    } else {
      clock_.sleep_until(clock_.now() + outcome.retry_after.value_or(kTracePause), stop);
    }
    const std::lock_guard lock(outbox_mutex_);
    if (trace->part < parts && !waiting) waiting = std::move(trace);
    return true;
  }

  using Outbox = std::pair<std::optional<protocol::Register>, std::optional<protocol::Report>>;

  Outbox take_outbox() {
    const std::lock_guard lock(outbox_mutex_);
    posting_ = register_ || report_;
    return {std::exchange(register_, std::nullopt), std::exchange(report_, std::nullopt)};
  }

  // Keeps what was not accepted for the next try, unless something newer has come.
  void put_back(std::optional<protocol::Register> registration,
                std::optional<protocol::Report> last_report) {
    const std::lock_guard lock(outbox_mutex_);
    posting_ = false;
    if (registration && !register_) register_ = std::move(registration);
    if (last_report && !report_) report_ = std::move(last_report);
  }

  // ---- both ----
  // Returns false if no more requests may be sent.
  bool go_on(const Outcome& outcome) {
    switch (outcome.verdict) {
      case Verdict::kStop:
        log_error(kOperatorLine, "the operator knows another job under this name; no more requests",
                  {{"reason", outcome.reason}});
        end();
        return false;
      case Verdict::kGone:
        if (end()) callbacks_.on_gone("the job is deleted");
        return false;
      case Verdict::kCancelled:
        return false;
      case Verdict::kMoved:
        if (callbacks_.on_moved) callbacks_.on_moved(term_told(outcome.response));
        return true;
      case Verdict::kDone:
      case Verdict::kDrop:
      case Verdict::kRetry:
      case Verdict::kRegisterAgain:
        return true;
    }
    return true;
  }

  bool ended() const {
    const std::lock_guard lock(outbox_mutex_);
    return ended_;
  }
  bool end() {  // true for the first caller
    const std::lock_guard lock(outbox_mutex_);
    return !std::exchange(ended_, true);
  }

  Clock& clock_;
  ControlApi poll_api_;  // poll thread
  ControlApi post_api_;  // post thread
  Callbacks callbacks_;
  // Guards the fields from register_ to ended_ except last_answer_.
  mutable std::mutex outbox_mutex_;
  std::optional<protocol::Register> register_;
  std::optional<protocol::Report> report_;
  std::optional<Trace> trace_, flight_;
  std::uint32_t have_ = 0;
  // Time of the last answer to a poll, ns of the steady clock; 0 = none yet.
  std::atomic<std::int64_t> last_answer_{0};
  bool posting_ = false, ended_ = false;
  BoundedQueue<Unit> wake_{1};
  std::jthread poll_thread_, post_thread_;
};

}  // namespace

Result<protocol::JoinAnswer> join(const LineOptions& options, const TransportFactory& factory,
                                  Clock& clock, const protocol::Join& body, std::stop_token stop) {
  ControlApi api(options, factory, clock);
  BackOff back_off(jitter_seed("join"));
  Complaints complaints;
  const std::string text = protocol::encode(body);
  while (true) {
    auto outcome = api.send(http::Method::kPost, "join", text, kAnswerTime, stop);
    switch (outcome.verdict) {
      case Verdict::kDone: {
        auto answer = protocol::decode_join_answer(outcome.response.body);
        if (answer) return answer;
        outcome.reason = answer.error().message;
        break;
      }
      case Verdict::kDrop:
        return invalid("join refused: " + outcome.reason);
      case Verdict::kStop:
        return Error{Code::kGone, "another job has this name: " + outcome.reason};
      case Verdict::kGone:
        return Error{Code::kGone, "the job is deleted"};
      case Verdict::kCancelled:
        return Error{Code::kCancelled, "stopped while joining"};
      case Verdict::kMoved:
      case Verdict::kRetry:
      case Verdict::kRegisterAgain:
        break;
    }
    complaints.add("not joined yet", outcome.reason);
    if (!clock.sleep_until(clock.now() + back_off.next(outcome.retry_after), stop)) {
      return Error{Code::kCancelled, "stopped while joining"};
    }
  }
}

Result<protocol::JoinAnswer> claim(const LineOptions& options, const TransportFactory& factory,
                                   Clock& clock, const protocol::Join& body, std::stop_token stop) {
  const Outcome outcome =
      ControlApi(options, factory, clock)
          .send(http::Method::kPost, "join", protocol::encode(body), kClaimTime, std::move(stop));
  if (outcome.verdict != Verdict::kDone) return Error{Code::kUnavailable, outcome.reason};
  return protocol::decode_join_answer(outcome.response.body);
}

std::unique_ptr<PlanSource> make_operator_source(const LineOptions& options,
                                                 TransportFactory factory, Clock& clock) {
  return std::make_unique<OperatorSource>(options, factory, clock);
}

}  // namespace weir::coordinator
