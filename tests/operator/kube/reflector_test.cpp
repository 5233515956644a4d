// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/reflector.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "operator/api/decode.h"
#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"

namespace weir::kube {
namespace reflector_test {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Do = ReflectorState::Do;
using Take = ReflectorState::Take;

const SteadyTime kNow{std::chrono::hours(5)};
ApiError error_of(int status, const std::string& reason = "") {
  ApiError error;
  error.http_status = status;
  error.reason = reason;
  error.code = status == 410   ? Code::kGone
               : status == 429 ? Code::kThrottled
               : status == 404 ? Code::kNotFound
                               : Code::kUnavailable;
  return error;
}
api::WatchEvent event_of(const std::string& type, const std::string& version) {
  api::WatchEvent event;
  event.type = type;
  event.resource_version = version;
  return event;
}
ReflectorState watching() {
  ReflectorState state(1);
  state.listed("10", kNow);
  return state;
}

TEST(ReflectorState, ListsThenWatchesFromThatVersion) {
  ReflectorState state(1);
  EXPECT_EQ(state.next(kNow), Do::kList);

  state.listed("10", kNow);

  EXPECT_EQ(state.next(kNow), Do::kWatch);
  EXPECT_EQ(state.version(), "10");
}

TEST(ReflectorState, MovesItsVersionWithEventsAndBookmarks) {
  ReflectorState state = watching();

  EXPECT_EQ(state.event(event_of("MODIFIED", "11")), Take::kDeliver);
  EXPECT_EQ(state.event(event_of("BOOKMARK", "20")), Take::kVersionOnly);

  EXPECT_EQ(state.version(), "20");
}

TEST(ReflectorState, WatchesAgainWithoutAListAfterANormalEnd) {
  ReflectorState state = watching();

  state.watch_ended(std::nullopt, minutes(5), kNow);

  EXPECT_EQ(state.next(kNow), Do::kWatch);
  EXPECT_EQ(state.wait(), milliseconds(0));
}

TEST(ReflectorState, BacksOffWithoutAListWhenTheConnectionIsRefused) {
  ReflectorState state = watching();

  std::vector<milliseconds> waits;
  for (int i = 0; i < 8; ++i) {
    state.watch_ended(error_of(0), seconds(0), kNow);
    waits.push_back(state.wait());
  }

  EXPECT_EQ(state.next(kNow), Do::kWatch);
  EXPECT_GE(waits[0], milliseconds(800));
  EXPECT_LE(waits[0], milliseconds(1600));
  EXPECT_GE(waits[7], milliseconds(30'000));
  EXPECT_LE(waits[7], milliseconds(60'000));
}

TEST(ReflectorState, ForgetsTheBackOffAfterTwoGoodMinutes) {
  ReflectorState state = watching();
  for (int i = 0; i < 8; ++i) state.watch_ended(error_of(0), seconds(0), kNow);
  state.wait();

  state.watch_ended(error_of(0), seconds(0), kNow + minutes(3));

  EXPECT_LE(state.wait(), milliseconds(1600));
}

TEST(ReflectorState, WatchesAgainAtOnceWhenAWorkingStreamBreaksOff) {
  ReflectorState state = watching();

  for (int i = 0; i < 100; ++i) {
    state.watch_ended(error_of(0), seconds(2), kNow + seconds(2 * i));
    EXPECT_EQ(state.wait(), milliseconds(0));
    EXPECT_EQ(state.next(kNow), Do::kWatch);
  }
}

TEST(ReflectorState, WaitsAsLongAsA429Says) {
  ReflectorState state = watching();
  ApiError error = error_of(429);
  error.retry_after = seconds(40);

  state.watch_ended(error, seconds(0), kNow);

  EXPECT_EQ(state.wait(), milliseconds(40'000));
  EXPECT_EQ(state.next(kNow), Do::kWatch);
}

TEST(ReflectorState, ListsAfter410AndNewerWhenThatIsExpiredToo) {
  ReflectorState state = watching();
  state.watch_ended(error_of(410), seconds(30), kNow);
  EXPECT_EQ(state.next(kNow), Do::kList);

  state.list_failed(error_of(410), kNow);
  EXPECT_EQ(state.next(kNow), Do::kListPaged);
  state.list_failed(error_of(410), kNow);
  EXPECT_EQ(state.next(kNow), Do::kListWhole);

  state.listed("50", kNow);
  EXPECT_EQ(state.next(kNow), Do::kWatch);
}

TEST(ReflectorState, ListsAfterAnErrorEventThatSaysExpired) {
  ReflectorState state = watching();
  api::WatchEvent expired = event_of("ERROR", "");
  expired.error_code = 410;

  EXPECT_EQ(state.event(expired), Take::kEndWatch);
  state.watch_ended(std::nullopt, seconds(30), kNow);

  EXPECT_EQ(state.next(kNow), Do::kList);
}

TEST(ReflectorState, TakesAnEtcdThatWentBackForNewestList) {
  ReflectorState state = watching();
  state.watch_ended(error_of(410), seconds(30), kNow);
  ApiError too_large = error_of(504, "Timeout");
  too_large.causes = {"ResourceVersionTooLarge: Too large resource version"};

  state.list_failed(too_large, kNow);

  EXPECT_EQ(state.next(kNow), Do::kListPaged);
}

TEST(ReflectorState, CountsAShortWatchWithoutEventsAsAnError) {
  ReflectorState state = watching();
  state.watch_ended(std::nullopt, milliseconds(200), kNow);
  EXPECT_GT(state.wait(), milliseconds(0));

  state.event(event_of("ADDED", "11"));
  state.watch_ended(std::nullopt, milliseconds(200), kNow);
  EXPECT_EQ(state.wait(), milliseconds(0));
}

TEST(ReflectorState, ListsAgainWhenTheResourceIsGone) {
  ReflectorState state = watching();

  state.watch_ended(error_of(404), seconds(0), kNow);

  EXPECT_EQ(state.next(kNow), Do::kList);
  EXPECT_GT(state.wait(), milliseconds(0));
}

TEST(ReflectorState, ComparesAboutEveryHalfHour) {
  ReflectorState state = watching();

  EXPECT_EQ(state.next(kNow + minutes(23)), Do::kWatch);
  EXPECT_EQ(state.next(kNow + minutes(37)), Do::kVerify);
  state.verified(kNow + minutes(37));
  EXPECT_EQ(state.next(kNow + minutes(38)), Do::kWatch);
}

// A sink whose objects can be read by name; its waits are bounded.
class Mirror {
 public:
  Sink sink() {
    Sink out;
    out.replace = [this](const std::vector<std::string>& items, const std::string&) {
      const std::lock_guard lock(mutex_);
      held_.clear();
      for (const std::string& item : items) note(item);
      ++lists_;
      changed_.notify_all();
    };
    out.compare = [](const std::vector<std::string>&) { return 0; };
    out.event = [this](const api::WatchEvent& event) {
      const std::lock_guard lock(mutex_);
      if (event.type == "DELETED") {
        held_.erase(api::decode_object_meta(event.object)->name);
      } else if (event.type != "BOOKMARK") {
        note(event.object);
      }
      changed_.notify_all();
    };
    out.connected = [](bool) {};
    return out;
  }
  bool wait_until(const std::vector<std::string>& names, int lists) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(30), [&] {
      std::vector<std::string> held;
      for (const auto& [name, version] : held_) held.push_back(name);
      return held == names && lists_ == lists;
    });
  }

 private:
  void note(const std::string& json) {
    const auto meta = api::decode_object_meta(json);
    held_[meta->name] = meta->resource_version;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> held_;
  int lists_ = 0;
};

struct Running {
  Running() {
    server.put("/api/v1/namespaces/a/pods/old", R"({"metadata": {"labels": {"x/y": "1"}}})");
    thread = std::jthread([this](const std::stop_token& stop) { reflector.run(stop); });
  }
  test::JumpClock clock;
  test::FakeTransport server;
  TokenSource token{"", "", clock};
  std::unique_ptr<Client> client = make_client(server, token, clock, {});
  Mirror mirror;
  Reflector reflector{*client, clock, {.resource = pods(), .label_selector = "x/y"}, mirror.sink()};
  std::jthread thread;
};

constexpr auto kLabelled = R"({"metadata": {"labels": {"x/y": "1"}}})";

TEST(Reflector, FollowsAdditionsAndDeletions) {
  Running running;
  ASSERT_TRUE(running.mirror.wait_until({"old"}, 1));

  running.server.put("/api/v1/namespaces/a/pods/new", kLabelled);
  running.server.put("/api/v1/namespaces/a/pods/foreign", "{}");
  EXPECT_TRUE(running.mirror.wait_until({"new", "old"}, 1));
  running.server.remove("/api/v1/namespaces/a/pods/old");
  EXPECT_TRUE(running.mirror.wait_until({"new"}, 1));
  EXPECT_EQ(running.server.count("resourceVersion=0&labelSelector=x%2Fy"), 1);
}

TEST(Reflector, MissesNothingBetweenTwoWatches) {
  Running running;
  ASSERT_TRUE(running.mirror.wait_until({"old"}, 1));
  for (int i = 0; i < 20; ++i) {
    running.server.wait_for_watches(1);
    running.server.end_watches();
    running.server.put("/api/v1/namespaces/a/pods/p" + std::to_string(i % 3), kLabelled);
  }

  EXPECT_TRUE(running.mirror.wait_until({"old", "p0", "p1", "p2"}, 1)) << "and no second list";
}

// A failed first list of an optional resource is no refusal: the others would wait for it in vain.
TEST(Reflector, TriesAnOptionalResourceAgainSoonUnlessItIsForbidden) {
  const auto waits = [](int status, bool may_be_absent = false) {
    test::JumpClock clock;
    test::FakeTransport server;
    TokenSource token("", "", clock);
    const auto client = make_client(server, token, clock, {});
    const std::string reason = status == 403   ? "Forbidden"
                               : status == 404 ? "NotFound"
                                               : "Conflict";
    server.fail({.match = "GET",
                 .count = 1,
                 .response = http::Response{
                     status, {}, R"({"kind": "Status", "reason": ")" + reason + R"("})"}});
    std::stop_source stop;
    Sink sink;
    int replaced = 0;
    sink.replace = [&](const auto&, const std::string& version) {
      ++replaced;
      if (!version.empty()) stop.request_stop();
    };
    sink.connected = [](bool) {};
    Reflector reflector(*client, clock,
                        {.resource = nodes(), .optional = true, .may_be_absent = may_be_absent},
                        sink);
    reflector.run(stop.get_token());
    std::chrono::milliseconds all{0};
    for (const auto wait : clock.slept()) all += wait;
    return std::pair(all, replaced);
  };

  EXPECT_LE(waits(409).first, milliseconds(1600));
  EXPECT_EQ(waits(409).second, 1);
  EXPECT_EQ(waits(403).first, minutes(5));
  EXPECT_EQ(waits(403).second, 2) << "empty until it is allowed";
  EXPECT_LE(waits(404).first, milliseconds(1600));
  EXPECT_EQ(waits(404, true).first, minutes(5));
  EXPECT_EQ(waits(404, true).second, 2) << "empty until it is installed";
}

// A role that is spoiled for an hour, by the watch and by lists: nobody knows whether the objects
// are gone, so nothing is.
TEST(Reflector, ARefusalOfWhatWasPermittedEmptiesNothing) {
  test::JumpClock clock;
  test::FakeTransport server;
  TokenSource token("", "", clock);
  const auto client = make_client(server, token, clock, {});
  server.put("/api/v1/namespaces/a/pods/p", kLabelled);
  const http::Response refusal{403, {}, R"({"kind": "Status", "reason": "Forbidden"})"};
  const http::Response gone{410, {}, R"({"kind": "Status", "reason": "Expired"})"};
  std::stop_source stop;
  Sink sink;
  std::vector<std::size_t> sizes;
  bool connected = true;
  sink.replace = [&](const auto& items, const std::string&) {
    sizes.push_back(items.size());
    if (sizes.size() == 1) {
      server.fail({.match = "WATCH", .count = 60, .response = refusal});
      server.fail({.match = "WATCH", .count = 1, .response = gone});
      server.fail({.match = "GET", .count = 60, .response = refusal});
      server.put("/api/v1/namespaces/a/pods/q", kLabelled);
    } else {
      stop.request_stop();
    }
  };
  sink.connected = [&](bool is) { connected = connected && is; };
  Reflector reflector(*client, clock,
                      {.resource = pods(),
                       .namespace_name = "a",
                       .optional = true,
                       .forbidden_retry = std::chrono::seconds(30)},
                      sink);

  reflector.run(stop.get_token());

  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 2})) << "listed, and when it is permitted again";
  std::chrono::milliseconds all{0};
  for (const auto wait : clock.slept()) all += wait;
  EXPECT_GT(all, std::chrono::hours(1));
}

// A restarted API server answers 403 until it has read its roles.
TEST(Reflector, AShortRefusalOfWhatWasPermittedEmptiesNothing) {
  test::JumpClock clock;
  test::FakeTransport server;
  TokenSource token("", "", clock);
  const auto client = make_client(server, token, clock, {});
  server.put("/api/v1/namespaces/a/pods/p", kLabelled);
  Mirror mirror;
  Reflector reflector(*client, clock, {.resource = pods(), .namespace_name = "a", .optional = true},
                      mirror.sink());
  const std::jthread thread([&](const std::stop_token& stop) { reflector.run(stop); });
  ASSERT_TRUE(mirror.wait_until({"p"}, 1));
  server.wait_for_watches(1);
  server.fail(
      {.match = "WATCH",
       .count = 3,
       .response = http::Response{403, {}, R"({"kind": "Status", "reason": "Forbidden"})"}});
  server.end_watches();
  server.put("/api/v1/namespaces/a/pods/q", kLabelled);
  EXPECT_TRUE(mirror.wait_until({"p", "q"}, 1)) << "and no second list";
  EXPECT_EQ(std::ranges::count(clock.slept(), std::chrono::milliseconds(minutes(5))), 0);
}

TEST(Reflector, ListsAgainWhenItsVersionIsGone) {
  Running running;
  ASSERT_TRUE(running.mirror.wait_until({"old"}, 1));
  running.server.wait_for_watches(1);
  running.server.fail({.match = "WATCH", .count = 1, .error = Error{Code::kUnavailable, "cut"}});
  running.server.put("/api/v1/namespaces/a/pods/new", kLabelled);
  running.server.remove("/api/v1/namespaces/a/pods/old");
  ASSERT_TRUE(running.mirror.wait_until({"new"}, 1));

  running.server.compact();
  running.server.end_watches();

  EXPECT_TRUE(running.mirror.wait_until({"new"}, 2));
}

}  // namespace reflector_test
}  // namespace weir::kube
